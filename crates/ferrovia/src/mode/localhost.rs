//! Node ports on loopback for a mode whose rules cannot lead there: proxies of this process listen on 127.0.0.1 and ::1.

use std::time::{Duration, Instant};

use ferrovia_core::desired::{Delta, Desired};
use ferrovia_core::family::{Family, PerFamily};
use ferrovia_core::model::Warning;
use ferrovia_core::plan::Found;
use ferrovia_core::plan::userspace::{ProxyChange, localhost};
use ferrovia_core::trace::TraceMode;
use ferrovia_host::portals::{LazyEngine, Proxies, ProxySettings, TroubleListener};

use super::troubles::{Consequence, Troubles};
use super::{Installed, Mode};
use crate::config::Config;
use crate::notice::Noticeboard;
use crate::sync::backend::{Backend, SyncError, Written};

/// How long a port that somebody else has is left alone before it is tried again.
const RETRY: Duration = Duration::from_secs(15);

/// What it means that such a port cannot be opened.
const UNHEARD: Consequence = Consequence {
    reason: "FailedToListenOnLocalhost",
    sentence: "the node port does not answer on loopback",
};

/// Adds node ports on loopback to a mode, where they are asked for and the mode does not have them of its own.
#[must_use]
pub fn with_localhost_node_ports(
    mut installed: Installed,
    mode: &Mode,
    config: &Config,
    notices: &Noticeboard,
) -> Installed {
    let wanted = wanted(mode, config);
    if !wanted.v4 && !wanted.v6 {
        return installed;
    }
    let engine = LazyEngine::default();
    let settings = ProxySettings {
        ports: None,
        udp_idle: config.userspace.udp_idle,
    };
    installed.backends = PerFamily::from_fn(|family| {
        let inner = installed.backends[family].take()?;
        if !wanted[family] {
            return Some(inner);
        }
        let (engine, directory) = (engine.clone(), installed.proxies.clone());
        let proxies = Proxies::new(family, settings.clone(), engine, directory);
        let decorated = Localhost {
            inner,
            family,
            proxies,
            troubles: Troubles::new(UNHEARD, notices.clone()),
        };
        Some(Box::new(decorated) as Box<dyn Backend>)
    });
    installed
}

/// A mode as far as it matters to where packets go, with node ports on loopback where they are added to it.
pub fn trace_mode(mode: &Mode, config: &Config) -> TraceMode {
    match mode {
        Mode::Nftables => TraceMode::Nftables {
            localhost_node_ports: wanted(mode, config),
        },
        mode => mode.to_trace(),
    }
}

/// The families in which node ports on loopback are added to a mode.
fn wanted(mode: &Mode, config: &Config) -> PerFamily<bool> {
    PerFamily::from_fn(|family| {
        *mode == Mode::Nftables
            && config.localhost_node_ports
            && config.settings.node_ports.cover_loopback(family)
    })
}

/// A mode with node ports on loopback.
struct Localhost {
    inner: Box<dyn Backend>,
    family: Family,
    proxies: Proxies,
    troubles: Troubles,
}

impl Localhost {
    /// Opens and closes proxies once the mode's rules are written; a port that somebody has is no reason to call the sync failed.
    fn follow(
        &mut self,
        written: Written,
        changes: impl FnOnce(&Proxies) -> Vec<ProxyChange>,
    ) -> Written {
        let start = Instant::now();
        let changes = changes(&self.proxies);
        let troubles = self.proxies.change(&changes);
        self.troubles.hear(&troubles, &self.proxies);
        Written {
            apply: written.apply + start.elapsed(),
            ..written
        }
    }
}

impl Backend for Localhost {
    fn full(&mut self, desired: &Desired, found: Found) -> Result<Written, SyncError> {
        let written = self.inner.full(desired, found)?;
        Ok(self.follow(written, |proxies| {
            localhost::full(desired, proxies.open().into_keys())
        }))
    }

    fn partial(&mut self, desired: &Desired, delta: &Delta) -> Result<Written, SyncError> {
        let written = self.inner.partial(desired, delta)?;
        let family = self.family;
        Ok(self.follow(written, |_| localhost::partial(delta, family)))
    }

    fn leftovers_after(&self) -> Option<Duration> {
        let own = self.proxies.is_lacking().then_some(RETRY);
        let inner = self.inner.leftovers_after();
        [own, inner].into_iter().flatten().min()
    }

    fn tidy(&mut self) -> Result<Written, SyncError> {
        let troubles = self.proxies.retry();
        self.troubles.hear(&troubles, &self.proxies);
        self.inner.tidy()
    }

    fn is_untouched(&mut self) -> Result<bool, SyncError> {
        self.inner.is_untouched()
    }

    fn take_warnings(&mut self) -> Vec<Warning> {
        self.inner.take_warnings()
    }
}
