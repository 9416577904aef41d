//! Bind portals on Windows, where kube-proxy's winuserspace mode worked this way: addresses by `netsh`, proxies by threads.
//!
//! The counterpart of Linux's `portals` and `userspace` in the simplest form that serves: [`Interface`] runs `netsh`, `proxies.rs` keeps what
//! listens, `listener.rs` is a thread for each address, and every connection (`tcp.rs`) and every client of UDP (`udp.rs`) has threads of
//! its own, of which there is a limit. Nothing is counted. What is to be opened is decided in `ferrovia-core`, and so are the arguments of
//! `netsh`.
//!
//! None of it calls Windows itself, so all of it is tested on Linux, with a stand-in for `netsh`.

mod listener;
mod netsh;
mod proxies;
mod service;
mod tcp;
#[cfg(test)]
mod tests;
mod udp;

use std::time::Duration;

use ferrovia_core::plan::userspace::windows::{after_closing, before_opening};
use ferrovia_core::plan::userspace::{UserspaceObserved, UserspacePlan};

pub use self::netsh::{Error, Interface};
use self::proxies::WindowsProxies;
use crate::Applier;

/// How long a port that is taken is left alone before it is tried again.
const RETRY: Duration = Duration::from_secs(15);

/// Keeps one family's proxies and the addresses they listen on.
#[derive(Debug)]
pub struct WinuserspaceApplier {
    interface: Interface,
    proxies: WindowsProxies,
}

impl WinuserspaceApplier {
    /// An applier for the family of this interface; a client of UDP is forgotten when it has been silent for so long.
    pub fn new(interface: Interface, udp_idle: Duration) -> Self {
        Self {
            interface,
            proxies: WindowsProxies::new(udp_idle),
        }
    }
}

impl Applier for WinuserspaceApplier {
    type Observed = UserspaceObserved;
    type Plan = UserspacePlan;
    type Error = Error;

    fn observe(&mut self) -> Result<UserspaceObserved, Error> {
        Ok(UserspaceObserved {
            save: String::new(),
            open: self.proxies.open(),
            addresses: self.interface.addresses()?,
        })
    }

    /// If `netsh` refuses something, everything else is done before the error is returned.
    fn apply(&mut self, plan: &UserspacePlan) -> Result<bool, Error> {
        let name = self.interface.name().to_owned();
        let added = self.interface.add(&before_opening(plan, &name));
        self.proxies.change(&plan.proxies);
        let removed = self.interface.remove(&after_closing(plan, &name));
        added.and(removed)?;
        Ok(!plan.new_addresses.is_empty() || !plan.old_addresses.is_empty())
    }

    /// What the addresses should be is known to the planner only.
    fn is_untouched(&mut self) -> Result<bool, Error> {
        Ok(false)
    }

    fn leftovers_after(&self) -> Option<Duration> {
        self.proxies.is_lacking().then_some(RETRY)
    }

    fn tidy(&mut self) -> Result<bool, Error> {
        self.proxies.retry();
        Ok(false)
    }
}
