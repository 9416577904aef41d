//! The iptables mode, put together for this machine.

use std::net::Ipv4Addr;
use std::thread;

use ferrovia_core::desired::{Desired, NodePortSetting};
use ferrovia_core::family::{Family, PerFamily};
use ferrovia_core::plan::iptables::{IptablesOptions, IptablesPlanner, Observed};
use ferrovia_core::plan::{Found, Planner};
use ferrovia_host::iptables::{self, Counter, Counters, IptablesApplier};
use ferrovia_host::probe;
use ipnet::{IpNet, Ipv4Net};

use super::{Installed, Watcher};
use crate::config::Config;
use crate::sync::backend::{Backend, Pair, SyncError};

/// What is asked of the iptables mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IptablesSettings {
    /// Node ports answer on 127.0.0.1 too. Only to be set where the addresses node ports answer on include it.
    pub localhost_node_ports: bool,
}

impl Default for IptablesSettings {
    fn default() -> Self {
        Self {
            localhost_node_ports: true,
        }
    }
}

impl IptablesSettings {
    /// What the configuration asks for.
    pub fn of(config: &Config) -> Self {
        Self {
            localhost_node_ports: config.localhost_node_ports
                && covers_loopback(&config.settings.node_ports),
        }
    }

    fn options(self) -> IptablesOptions {
        IptablesOptions {
            localhost_node_ports: self.localhost_node_ports,
            ..IptablesOptions::default()
        }
    }
}

/// Node ports are to answer on 127.0.0.1 too.
fn covers_loopback(node_ports: &NodePortSetting) -> bool {
    let loopback = Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8);
    match node_ports {
        NodePortSetting::Any => true,
        NodePortSetting::Primary => false,
        NodePortSetting::Cidrs(nets) => nets.iter().any(|net| match net {
            IpNet::V4(net) => loopback.contains(net) || net.contains(&loopback.network()),
            IpNet::V6(_) => false,
        }),
    }
}

/// What the mode would write into an empty kernel, as text.
pub(super) fn plan(settings: IptablesSettings, desired: &Desired) -> String {
    IptablesPlanner::new(desired.family, settings.options())
        .full(desired, &Observed::default(), Found::Adopt)
        .to_string()
}

/// Finds the tools and what the kernel can count.
pub(super) fn install(settings: IptablesSettings) -> Result<Installed, SyncError> {
    let families = probe::supported_families();
    let mut detected = iptables::detect(&families)?;
    tracing::info!(backend = %detected.backend, reason = detected.reason, "writing iptables rules");
    detected
        .warnings
        .iter()
        .for_each(|warning| tracing::warn!("{warning}"));
    let counters = usable_counters();
    let options = IptablesOptions {
        drop_invalid: !iptables::is_liberal(),
        count_invalid: counters.contains(&Counter::Invalid),
        count_localhost: counters.contains(&Counter::Localhost),
        commits: detected.backend.commits(),
        ..settings.options()
    };
    let mut backends = PerFamily { v4: None, v6: None };
    for family in families {
        let Some(tool) = detected.tools[family].take() else {
            continue;
        };
        let mut applier = IptablesApplier::new(tool).with_counters(&counters);
        if settings.localhost_node_ports {
            applier = applier.with_localhost_node_ports();
        }
        let pair = Pair::new(IptablesPlanner::new(family, options), applier);
        backends[family] = Some(Box::new(pair) as Box<dyn Backend>);
    }
    Ok(Installed {
        backends,
        listen: Box::new(|| Ok(Box::new(Deaf))),
        take_over: Box::new(move || take_over(detected.backend)),
    })
}

/// Removes what would be in force beside this mode's rules: our own and kube-proxy's nftables, and kube-proxy's rules of the other iptables
/// backend. To be called when this mode's rules are in force.
///
/// The backend is the one they were written to. It must not be found out anew: a kubelet that has come up since may have named the other one,
/// and ours would be taken for a predecessor's.
fn take_over(backend: iptables::Backend) -> Result<Vec<String>, SyncError> {
    let mut removed = super::remove_tables(true)?;
    removed.extend(super::in_words(&iptables::remove_leftovers_beside(
        backend,
    )?));
    Ok(removed)
}

/// The counters that rules may count into. A kernel without them is no worse, only quieter.
fn usable_counters() -> Vec<Counter> {
    let mut counters = match Counters::open() {
        Ok(counters) => counters,
        Err(error) => {
            tracing::debug!(%error, "the kernel's packet counters cannot be reached");
            return Vec::new();
        }
    };
    let mut usable = vec![Counter::Invalid, Counter::Localhost];
    usable.retain(|counter| match counters.ensure(*counter) {
        Ok(()) => true,
        Err(error) => {
            tracing::debug!(?counter, %error, "this kernel has no such packet counter; rules do without");
            false
        }
    });
    usable
}

/// Nobody tells us when somebody changes iptables rules; the check every sync period finds it.
struct Deaf;

impl Watcher for Deaf {
    fn wait(&mut self) -> Result<Option<Family>, SyncError> {
        loop {
            thread::park();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_covered_as_kube_proxy_has_it() {
        let covers = |cidrs: &[&str]| {
            let nets = cidrs.iter().map(|net| net.parse().unwrap()).collect();
            covers_loopback(&NodePortSetting::Cidrs(nets))
        };
        assert!(covers_loopback(&NodePortSetting::Any));
        assert!(covers(&["0.0.0.0/0"]));
        assert!(covers(&["127.0.2.0/28"]));
        assert!(covers(&["64.0.0.0/2"]));
        assert!(!covers(&["128.0.2.0/28"]));
        assert!(!covers(&["::1/128"]));
        assert!(!covers_loopback(&NodePortSetting::Primary));
    }
}
