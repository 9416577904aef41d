//! Planners: from the desired state to the changes that must be written to the kernel, one module per mode.
//!
//! A [`Planner`] sees the desired state, a delta and the observed state, and returns a [`Plan`], a value that prints itself. It does no I/O and
//! reads no clock, but it is not stateless. Between two plans it keeps what it needs to make an incremental plan in time proportional to the
//! delta: allocated numbers, slots and selector classes (nftables), reference counts of shared addresses and set entries (ipvs, bind portals),
//! the number of rules and health check ports (iptables), and the node settings of the last plan (all modes). One rule makes this safe: every
//! plan is applied before the next one is requested, and after any failure the caller observes the kernel and requests a full plan, which
//! rebuilds all kept state from the desired and the observed state alone.
//!
//! [`conntrack`] serves all modes; `node_address_frontends.rs` serves the ipvs mode and bind portals.

pub mod conntrack;
pub mod iptables;
pub mod ipvs;
pub mod nft;
mod node_address_frontends;
pub mod userspace;

use std::fmt;

use crate::desired::{Delta, Desired};
use crate::model::Warning;

/// The changes that one mode writes to the kernel. Prints as text for people and tests.
pub trait Plan: fmt::Display {
    /// Messages about the plan, for the log.
    fn notes(&self) -> &[String];
}

/// How a full plan treats the observed state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObservedPolicy {
    /// Change as little as possible, and remove what is not desired.
    Adopt,
    /// Like `Adopt`, but keep rules of unknown services: some objects could not be read yet.
    KeepUnknown,
    /// Replace everything: changing it in place has failed.
    Replace,
}

/// A mode's planner for one family.
///
/// It keeps state between plans; the [module documentation](self) states the rule that makes this safe.
pub trait Planner {
    /// The observed state of the kernel.
    type Observed;
    /// The plan of this mode.
    type Plan: Plan;

    /// The changes from the observed state to the desired state.
    fn full(
        &mut self,
        desired: &Desired,
        observed: &Self::Observed,
        policy: ObservedPolicy,
    ) -> Self::Plan;

    /// The changes for a delta, given that all earlier plans are applied. Work is proportional to the delta.
    fn incremental(&mut self, desired: &Desired, delta: &Delta) -> Self::Plan;

    /// Earlier plans left objects that can only be deleted in a later transaction.
    fn has_deferred_removals(&self) -> bool {
        false
    }

    /// Deletes some of these objects.
    fn deferred_removals(&mut self) -> Self::Plan;

    /// Warnings for the authors of Services about the plans since the last call.
    fn take_warnings(&mut self) -> Vec<Warning> {
        Vec::new()
    }
}
