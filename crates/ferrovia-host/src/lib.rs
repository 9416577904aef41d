//! Everything of Ferrovia that reads from or writes to the kernel, and nothing else.
//!
//! Plans come in as values from `ferrovia-core`; what is found in the kernel goes back as values. No decision about services is taken here.
//!
//! - The modes: [`nft`] speaks nf_tables, [`iptables`] runs the iptables tools, [`ipvs`] is the kernel's own load balancer with [`ipset`] and
//!   the device in [`link`], [`userspace`] carries connections and datagrams itself and [`portals`] leads clients there.
//!   On Windows the last two are `winuserspace`, and there is nothing else of this crate.
//! - Under them: `ferrovia-netlink` is the codec for every netlink family, [`exec`] runs other programs.
//! - The node: [`addr`] reads its addresses, [`sysctl`] its settings, [`conntrack`] its connections; [`probe`] says at start what the kernel
//!   lacks, [`survey`] reads what the node looks like, [`scratch`] makes a small network of its own to try rules out in.
//! - The process: [`owner`] makes sure that one daemon at a time writes, [`privileges`] gives up what is not needed, [`signal`] waits for the end, [`memory`] keeps the heap small.
#![deny(unsafe_code)]

mod balance;
pub mod exec;
#[cfg(any(windows, test))]
pub mod winuserspace;

// Everything else is made of Linux's system calls.
#[cfg(target_os = "linux")]
pub mod addr;
#[cfg(target_os = "linux")]
pub mod conntrack;
#[cfg(all(target_os = "linux", any(test, fuzzing)))]
pub mod hostile;
#[cfg(target_os = "linux")]
pub mod ipset;
#[cfg(target_os = "linux")]
pub mod iptables;
#[cfg(target_os = "linux")]
pub mod ipvs;
#[cfg(target_os = "linux")]
pub mod link;
#[cfg(target_os = "linux")]
pub mod memory;
#[cfg(target_os = "linux")]
pub mod nft;
#[cfg(target_os = "linux")]
pub mod owner;
#[cfg(target_os = "linux")]
pub mod portals;
#[cfg(target_os = "linux")]
pub mod privileges;
#[cfg(target_os = "linux")]
pub mod probe;
#[cfg(target_os = "linux")]
pub mod scratch;
#[cfg(target_os = "linux")]
pub mod signal;
#[cfg(target_os = "linux")]
mod sockopt;
#[cfg(target_os = "linux")]
pub mod survey;
#[cfg(target_os = "linux")]
pub mod sysctl;
#[cfg(target_os = "linux")]
pub mod userspace;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A mode's way into the kernel, for one family. The counterpart of the core's `Planner`.
pub trait Applier {
    type Observed;
    type Plan;
    type Error;

    /// Reads what is in the kernel.
    ///
    /// # Errors
    /// If it cannot be read.
    fn observe(&mut self) -> Result<Self::Observed, Self::Error>;

    /// Writes a plan: all of it or nothing where the kernel can do that, else in an order in which traffic is right between any two steps.
    /// Returns whether there was anything to write.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn apply(&mut self, plan: &Self::Plan) -> Result<bool, Self::Error>;

    /// Whether no other process has changed anything since we last read or wrote. Cheap; `false` only means that one may have.
    ///
    /// # Errors
    /// If this cannot be determined.
    fn is_untouched(&mut self) -> Result<bool, Self::Error>;

    /// After this time, `tidy` should remove what could not be removed yet.
    fn leftovers_after(&self) -> Option<Duration> {
        None
    }

    /// Removes what had to stay, as far as it can go now. Returns whether anything was removed.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn tidy(&mut self) -> Result<bool, Self::Error> {
        Ok(false)
    }
}

/// Takes a lock even if its holder panicked: what our locks guard is consistent between any two steps.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
