//! Node ports on loopback, where rules cannot lead: proxies of this process listen on 127.0.0.1 and ::1.

use std::time::{Duration, Instant};

use ferrovia_core::desired::{Delta, Desired};
use ferrovia_core::family::{Family, PerFamily};
use ferrovia_core::model::Warning;
use ferrovia_core::plan::ObservedPolicy;
use ferrovia_core::plan::userspace::{ProxyChange, localhost};
use ferrovia_host::portals::{LazyEngine, Proxies, ProxySettings, TroubleReporter};

use super::NftablesMode;
use crate::kube_event::Noticeboard;
use crate::mode::Installed;
use crate::mode::port_failures::{Consequence, PortFailures};
use crate::sync::backend::{Backend, SyncError, Written};

/// How long to wait before a port that another process has is tried again.
const RETRY: Duration = Duration::from_secs(15);

/// The consequence if such a port cannot be opened.
const NO_ANSWER: Consequence = Consequence {
    reason: "FailedToListenOnLocalhost",
    sentence: "the node port does not answer on loopback",
};

/// Adds node ports on loopback, in the families where they are configured.
pub(super) fn add(
    mut installed: Installed,
    mode: &NftablesMode,
    notices: &Noticeboard,
) -> Installed {
    let families = mode.localhost_node_ports;
    let engine = LazyEngine::default();
    let settings = ProxySettings {
        ports: None,
        udp_idle: mode.udp_idle,
    };
    installed.backends = PerFamily::from_fn(|family| {
        let inner = installed.backends[family].take()?;
        if !families[family] {
            return Some(inner);
        }
        let (engine, directory) = (engine.clone(), installed.proxies.clone());
        let proxies = Proxies::new(family, settings.clone(), engine, directory);
        let decorated = Localhost {
            inner,
            family,
            proxies,
            failures: PortFailures::new(NO_ANSWER, notices.clone()),
        };
        Some(Box::new(decorated) as Box<dyn Backend>)
    });
    installed
}

/// A mode with node ports on loopback.
struct Localhost {
    inner: Box<dyn Backend>,
    family: Family,
    proxies: Proxies,
    failures: PortFailures,
}

impl Localhost {
    /// Opens and closes proxies once the mode's rules are written; a port that another process has does not make the sync fail.
    fn follow(
        &mut self,
        written: Written,
        changes: impl FnOnce(&Proxies) -> Vec<ProxyChange>,
    ) -> Written {
        let start = Instant::now();
        let changes = changes(&self.proxies);
        let troubles = self.proxies.change(&changes);
        self.failures.report(&troubles, &self.proxies);
        Written {
            apply: written.apply + start.elapsed(),
            ..written
        }
    }
}

impl Backend for Localhost {
    fn full(&mut self, desired: &Desired, found: ObservedPolicy) -> Result<Written, SyncError> {
        let written = self.inner.full(desired, found)?;
        Ok(self.follow(written, |proxies| {
            localhost::full(desired, proxies.open().into_keys())
        }))
    }

    fn partial(&mut self, desired: &Desired, delta: &Delta) -> Result<Written, SyncError> {
        let written = self.inner.partial(desired, delta)?;
        let family = self.family;
        Ok(self.follow(written, |_| localhost::incremental(delta, family)))
    }

    fn leftovers_after(&self) -> Option<Duration> {
        let own = self.proxies.is_lacking().then_some(RETRY);
        let inner = self.inner.leftovers_after();
        [own, inner].into_iter().flatten().min()
    }

    fn tidy(&mut self) -> Result<Written, SyncError> {
        let troubles = self.proxies.retry();
        self.failures.report(&troubles, &self.proxies);
        self.inner.tidy()
    }

    fn is_untouched(&mut self) -> Result<bool, SyncError> {
        self.inner.is_untouched()
    }

    fn take_warnings(&mut self) -> Vec<Warning> {
        self.inner.take_warnings()
    }
}
