//! The userspace mode, put together for this machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Duration;

use ferrovia_core::desired::Desired;
use ferrovia_core::family::{Family, PerFamily};
use ferrovia_core::plan::userspace::{
    Observed, Portals, UserspaceOptions, UserspacePlanner, is_portal_chain,
    is_portal_or_egress_chain,
};
use ferrovia_core::plan::{Found, Planner};
use ferrovia_core::trace::{self, TraceProfile};
use ferrovia_host::iptables::{self, IptablesApplier};
use ferrovia_host::portals::{
    BindApplier, Directory, Interface, InterfaceChoice, LazyEngine, PortalApplier, Proxies,
    ProxySettings, TroubleListener, interface,
};
use ferrovia_host::{addr, probe};

use super::remove::{Steps, TakenOver};
use super::troubles::{Consequence, Troubles};
use super::{Deaf, Installed};
use crate::config::{Config, PortalSetting, UserspaceSettings};
use crate::kube_event::Noticeboard;
use crate::sync::backend::{Backend, Pair, SyncError};

/// What it means that a proxy's port, or a service's own where portals are bound, cannot be opened.
const UNPROXIED: Consequence = Consequence {
    reason: "FailedToOpenProxyPort",
    sentence: "a port of this service is not proxied",
};

/// What is asked of the userspace mode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserspaceMode {
    /// The mode's own settings.
    pub settings: UserspaceSettings,
    /// The address to listen on; none for all.
    pub listen: Option<IpAddr>,
    /// Node ports answer on loopback too, where the addresses they answer on include it.
    pub localhost_node_ports: PerFamily<bool>,
    /// What pods send out of the cluster is masqueraded.
    pub egress: bool,
}

impl UserspaceMode {
    /// What the configuration asks for.
    pub(super) fn of(config: &Config) -> Self {
        Self {
            settings: config.userspace.clone(),
            listen: config.bind_address,
            egress: config.settings.egress_except.is_some(),
            localhost_node_ports: PerFamily::from_fn(|family| {
                config.localhost_node_ports && config.settings.node_ports.cover_loopback(family)
            }),
        }
    }

    /// It puts service addresses on an interface and writes no rules.
    pub(super) fn binds(&self) -> bool {
        self.settings.portals == PortalSetting::Bind
    }

    /// What the mode would open and write on an empty machine, as text.
    pub(super) fn plan(&self, desired: &Desired) -> String {
        self.planner(desired.family)
            .full(desired, &Observed::default(), Found::Adopt)
            .to_string()
    }

    /// A planner that knows nothing of this machine.
    pub(super) fn planner(&self, family: Family) -> UserspacePlanner {
        UserspacePlanner::new(family, self.options(family, None))
    }

    /// The planner that this machine's proxies and rules are made with.
    pub(super) fn planner_here(&self, family: Family) -> UserspacePlanner {
        let host = own_address(family).filter(|_| !self.binds());
        UserspacePlanner::new(family, self.options(family, host))
    }

    /// The interface that bound portals are on.
    pub(super) fn interface(&self) -> InterfaceChoice {
        match &self.settings.interface {
            Some(name) => InterfaceChoice::Named(name.clone()),
            None => InterfaceChoice::Own,
        }
    }

    /// How the mode treats packets.
    pub(super) fn trace_profile(&self) -> TraceProfile {
        let profile = if self.binds() {
            trace::BIND_PORTALS
        } else {
            trace::USERSPACE
        };
        profile.with_localhost_node_ports(self.localhost_node_ports)
    }

    /// Finds the tools, or the interface. Nothing is opened before the first sync.
    pub(super) fn install(&self, notices: &Noticeboard) -> Result<Installed, SyncError> {
        if let Some(ip) = self.listen.filter(IpAddr::is_loopback) {
            return Err(format!(
                "bindAddress {ip}: the userspace mode cannot proxy on loopback, because nobody's packets get there; use an address of this node, or none"
            )
            .into());
        }
        if self.binds() {
            self.install_bound(notices)
        } else {
            self.install_with_rules(notices)
        }
    }

    fn install_with_rules(&self, notices: &Noticeboard) -> Result<Installed, SyncError> {
        let families = probe::supported_families();
        let purpose = "writing iptables rules that lead to our proxies";
        let mut detected = super::detect_tools(&families, purpose)?;
        let (engine, directory) = (LazyEngine::default(), Directory::default());
        let mut backends = PerFamily { v4: None, v6: None };
        for family in families {
            let Some(tool) = detected.tools[family].take() else {
                continue;
            };
            let proxies = self.proxies(family, &engine, &directory);
            let pair = Pair::new(
                self.planner_here(family),
                PortalApplier::new(proxies, IptablesApplier::new(tool), troubles(notices)),
            );
            backends[family] = Some(Box::new(pair) as Box<dyn Backend>);
        }
        let backend = detected.backend;
        let is_ours = if self.egress {
            is_portal_or_egress_chain
        } else {
            is_portal_chain
        };
        Ok(Installed {
            backends,
            listen: Box::new(|| Ok(Box::new(Deaf))),
            read: None,
            take_over: Box::new(move |patience| take_over(backend, is_ours, patience)),
            proxies: directory,
            filled_sets: None,
        })
    }

    fn install_bound(&self, notices: &Noticeboard) -> Result<Installed, SyncError> {
        let choice = self.interface();
        let (engine, directory) = (LazyEngine::default(), Directory::default());
        let mut backends = PerFamily { v4: None, v6: None };
        for family in probe::supported_families() {
            let interface = Interface::open(&choice)?;
            tracing::info!(%family, interface = interface.name(), "putting service addresses on this interface");
            let proxies = self.proxies(family, &engine, &directory);
            let pair = Pair::new(
                self.planner_here(family),
                BindApplier::new(family, proxies, interface, troubles(notices)),
            );
            backends[family] = Some(Box::new(pair) as Box<dyn Backend>);
        }
        Ok(Installed {
            backends,
            listen: Box::new(|| Ok(Box::new(Deaf))),
            read: None,
            take_over: Box::new(|_| take_over_bound()),
            proxies: directory,
            filled_sets: None,
        })
    }

    fn options(&self, family: Family, host: Option<IpAddr>) -> UserspaceOptions {
        UserspaceOptions {
            portals: if self.binds() {
                Portals::Bind
            } else {
                Portals::Rules {
                    listen: self.listen.filter(|ip| Family::of(*ip) == family),
                    host,
                }
            },
            localhost_node_ports: self.localhost_node_ports[family],
        }
    }

    fn proxies(&self, family: Family, engine: &LazyEngine, directory: &Directory) -> Proxies {
        let settings = ProxySettings {
            ports: self.settings.ports.clone(),
            udp_idle: self.settings.udp_idle,
        };
        Proxies::new(family, settings, engine.clone(), directory.clone())
    }
}

fn troubles(notices: &Noticeboard) -> Box<dyn TroubleListener> {
    Box::new(Troubles::new(UNPROXIED, notices.clone()))
}

/// Removes the service addresses of bound portals, and the device they are on.
pub(super) fn remove() -> Result<Vec<String>, SyncError> {
    Ok(interface::remove_leftovers()?)
}

/// Removes what would be in force beside rules of this mode: what other modes wrote, ours and kube-proxy's.
fn take_over(
    backend: iptables::Backend,
    is_ours: iptables::IsOurs,
    patience: Duration,
) -> Result<TakenOver, SyncError> {
    let mut steps = Steps::default();
    steps.add(super::mark(backend));
    steps.add(super::nftables::remove(true));
    steps.add(super::ipvs::remove(patience));
    steps.add_chains(iptables::remove_leftovers_beside(backend, is_ours));
    steps.add(remove());
    steps.end()
}

/// The same for bound portals, whose device stays. Virtual servers do not wait for their connections to end: they take packets before
/// sockets do, so new connections would go on coming to them.
fn take_over_bound() -> Result<TakenOver, SyncError> {
    let mut steps = Steps::default();
    steps.add(super::nftables::remove(true));
    steps.add(super::ipvs::remove(Duration::ZERO));
    steps.add_chains(iptables::remove_leftovers());
    steps.end()
}

/// The address that this machine would send from, which is the one its own packets to a service are sent to. Nothing is sent to find it out.
fn own_address(family: Family) -> Option<IpAddr> {
    // Addresses for documentation: nobody has them, so the way there is the default one.
    let (any, somewhere) = match family {
        Family::V4 => (
            IpAddr::from(Ipv4Addr::UNSPECIFIED),
            IpAddr::from(Ipv4Addr::new(192, 0, 2, 1)),
        ),
        Family::V6 => (
            IpAddr::from(Ipv6Addr::UNSPECIFIED),
            IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
        ),
    };
    let routed = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((somewhere, 9))?;
        socket.local_addr()
    });
    let is_usable = |ip: &IpAddr| Family::of(*ip) == family && !ip.is_loopback();
    let routed = routed.ok().map(|at| at.ip());
    // Without a default route, any address that others can reach does.
    let others = || addr::local_addresses().unwrap_or_default();
    routed
        .filter(is_usable)
        .or_else(|| others().into_iter().find(is_usable))
}
