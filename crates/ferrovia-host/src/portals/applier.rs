//! Proxies with rules that lead to them.

use std::collections::BTreeSet;

use ferrovia_core::plan::iptables::IptablesObserved as Rules;
use ferrovia_core::plan::userspace::{UserspaceObserved, UserspacePlan};

use super::proxies::{Proxies, TroubleReporter};
use crate::Applier;
use crate::iptables::{ApplyError, IptablesApplier};

/// Why portals could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot sync the rules that redirect to the proxies: {0}")]
    Rules(ApplyError),
}

impl From<ApplyError> for Error {
    fn from(error: ApplyError) -> Self {
        Self::Rules(error)
    }
}

/// Keeps one family's proxies and the rules that lead to them.
///
/// A proxy that cannot be opened is left out, with its rules, and reported; it is retried at every full sync.
#[derive(Debug)]
pub struct PortalApplier {
    proxies: Proxies,
    rules: IptablesApplier,
    /// Proxies whose rules were left out since all was last compared. They may be open by now, but their rules are not written.
    left_out: BTreeSet<String>,
    listener: Box<dyn TroubleReporter>,
}

impl PortalApplier {
    /// An applier with these proxies, this way to write rules, and a reporter of proxies that cannot be opened.
    pub fn new(
        proxies: Proxies,
        rules: IptablesApplier,
        listener: Box<dyn TroubleReporter>,
    ) -> Self {
        Self {
            proxies,
            rules,
            left_out: BTreeSet::new(),
            listener,
        }
    }
}

impl Applier for PortalApplier {
    type Observed = UserspaceObserved;
    type Plan = UserspacePlan;
    type Error = Error;

    fn observe(&mut self) -> Result<UserspaceObserved, Error> {
        let Rules { save } = self.rules.observe()?;
        // What follows is a comparison of everything.
        self.left_out.clear();
        Ok(UserspaceObserved {
            save,
            open: self.proxies.open(),
            addresses: Vec::new(),
        })
    }

    fn apply(&mut self, plan: &UserspacePlan) -> Result<bool, Error> {
        let troubles = self.proxies.set(&plan.proxies);
        let left_out = troubles.iter().map(|trouble| trouble.proxy.to_string());
        self.left_out.extend(left_out);
        self.listener.report(&troubles, &self.proxies);
        let changed = if plan.rules.is_empty() {
            // The rules are as they were: nothing is run for proxies that only changed their endpoints.
            false
        } else {
            let (proxies, left_out) = (&self.proxies, &self.left_out);
            let number = |name: &str| proxies.port(name).filter(|_| !left_out.contains(name));
            let rules = plan.rules.with_ports(number);
            self.rules.apply(&rules)?
        };
        self.proxies.close(&plan.proxies);
        Ok(changed)
    }

    /// With a proxy left out all is to be compared, which opens it if that can be done by now.
    fn is_untouched(&mut self) -> Result<bool, Error> {
        Ok(self.left_out.is_empty() && self.rules.is_untouched()?)
    }
}
