//! From what is wanted to what must be written, one folder a mode; [`conntrack`] is for all of them, `listed.rs` for two.
//!
//! A planner is pure: it sees the desired state, what changed, and what is in the kernel, and answers with a plan that prints itself.

pub mod conntrack;
pub mod iptables;
pub mod ipvs;
mod listed;
pub mod nft;
pub mod userspace;

use std::fmt;

use crate::desired::{Delta, Desired};
use crate::model::Warning;

/// What a mode wants written. Prints as text for people and tests.
pub trait Plan: fmt::Display {
    /// What people should know about it.
    fn notes(&self) -> &[String];
}

/// How a full plan treats what it finds in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is changed as little as possible, and what is not wanted goes.
    Adopt,
    /// The same, but what belongs to services we know nothing of stays: not all objects could be read yet.
    Keep,
    /// Nothing of it is of use: writing on top of it has failed.
    Replace,
}

/// A mode's planner for one family.
///
/// It remembers what it planned last, on the understanding that every plan is applied before the next is asked for; after a failure the
/// caller observes the kernel and asks for a full plan, which forgets everything remembered.
pub trait Planner {
    /// What the mode finds in the kernel.
    type Observed;
    /// What the mode wants written.
    type Plan: Plan;

    /// Everything that must change to get from what is in the kernel to what is wanted.
    fn full(&mut self, desired: &Desired, observed: &Self::Observed, found: Found) -> Self::Plan;

    /// What must change for a delta, given that everything before it is in the kernel. Work is proportional to the delta.
    fn partial(&mut self, desired: &Desired, delta: &Delta) -> Self::Plan;

    /// Earlier plans left something behind that can only be removed in a transaction of its own.
    fn has_leftovers(&self) -> bool {
        false
    }

    /// Removes some of what earlier plans left behind.
    fn tidy(&mut self) -> Self::Plan;

    /// What authors of Services should know about the plans since the last call.
    fn take_warnings(&mut self) -> Vec<Warning> {
        Vec::new()
    }
}
