//! Proxies on the services' own addresses, without any rule.

use std::time::Duration;

use ferrovia_core::family::Family;
use ferrovia_core::plan::userspace::{UserspaceObserved, UserspacePlan};

use super::interface::{self, Interface};
use super::proxies::{Proxies, Trouble, TroubleReporter};
use crate::Applier;

/// How long a port that is taken is left alone before it is tried again.
const RETRY: Duration = Duration::from_secs(15);

/// Why addresses could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The interface did not do it.
    #[error(transparent)]
    Interface(#[from] interface::Error),
}

/// Keeps one family's proxies and the addresses they listen on.
#[derive(Debug)]
pub struct BindPortalsApplier {
    family: Family,
    proxies: Proxies,
    interface: Interface,
    listener: Box<dyn TroubleReporter>,
}

impl BindPortalsApplier {
    /// An applier with these proxies, this interface, and a reporter of proxies that cannot be opened.
    pub fn new(
        family: Family,
        proxies: Proxies,
        interface: Interface,
        listener: Box<dyn TroubleReporter>,
    ) -> Self {
        Self {
            family,
            proxies,
            interface,
            listener,
        }
    }

    fn report(&mut self, troubles: &[Trouble]) {
        self.listener.report(troubles, &self.proxies);
    }
}

impl Applier for BindPortalsApplier {
    type Observed = UserspaceObserved;
    type Plan = UserspacePlan;
    type Error = Error;

    fn observe(&mut self) -> Result<UserspaceObserved, Error> {
        Ok(UserspaceObserved {
            save: String::new(),
            open: self.proxies.open(),
            addresses: self.interface.addresses(self.family)?,
        })
    }

    fn apply(&mut self, plan: &UserspacePlan) -> Result<bool, Error> {
        // An address that is refused keeps no other service out. Its error is returned at the end, and the next sync is a full one.
        let added = self.interface.add(&plan.new_addresses);
        let troubles = self.proxies.change(&plan.proxies);
        self.report(&troubles);
        let removed = self.interface.remove(&plan.old_addresses);
        added.and(removed)?;
        Ok(!plan.new_addresses.is_empty() || !plan.old_addresses.is_empty())
    }

    /// Reading the addresses of one interface is cheap, and what they should be is known to the planner only.
    fn is_untouched(&mut self) -> Result<bool, Error> {
        Ok(false)
    }

    fn leftovers_after(&self) -> Option<Duration> {
        self.proxies.is_lacking().then_some(RETRY)
    }

    fn tidy(&mut self) -> Result<bool, Error> {
        let troubles = self.proxies.retry();
        self.report(&troubles);
        Ok(false)
    }
}
