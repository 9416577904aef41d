//! The userspace mode: this process proxies the connections.
//!
//! Rules redirect packets to it; with bind portals it listens on the Services' own addresses, and there are no rules.

mod settings;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use ferrovia_core::desired::{Delta, Desired, Frontend, ServicePort};
use ferrovia_core::difference::userspace::Listeners;
use ferrovia_core::difference::{self, Difference};
use ferrovia_core::family::{Family, PerFamily};
use ferrovia_core::plan::userspace::{
    PortalMode, UserspaceObserved, UserspaceOptions, UserspacePlanner, is_portal_chain,
    is_portal_or_egress_chain,
};
use ferrovia_core::plan::{ObservedPolicy, Planner as _};
use ferrovia_core::trace::in_kernel::KernelObject;
use ferrovia_core::trace::{self, Trace, TraceProfile};
use ferrovia_host::iptables::IptablesApplier;
use ferrovia_host::portals::{
    BindPortalsApplier, Directory, Interface, InterfaceChoice, LazyEngine, PortalApplier, Proxies,
    ProxySettings, TroubleReporter, interface,
};
use ferrovia_host::{addr, probe};

pub(super) use self::settings::UDP_IDLE;
pub use self::settings::{PortalSetting, UserspaceSettings};
use super::port_failures::{Consequence, PortFailures};
use super::remove::take_over;
use super::{
    ConfigSection, InstallContext, Installed, Mode, OwnChains, Properties, Removal, RemovalSteps,
    full_plan, iptables_tools, listeners, plan_of_change,
};
use crate::config::Config;
use crate::kube_event::Noticeboard;
use crate::serve::metrics::FailureMetrics;
use crate::sync::backend::{Backend, Pair, SyncError};

/// The consequence if a proxy's port, or a service's own with bind portals, cannot be opened.
const NOT_PROXIED: Consequence = Consequence {
    reason: "FailedToOpenProxyPort",
    sentence: "a port of this service is not proxied",
};

/// The mode, with its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserspaceMode {
    /// What only this mode has.
    pub settings: UserspaceSettings,
    /// The address to listen on; none for all.
    pub listen: Option<IpAddr>,
    /// Node ports answer on loopback too, where the addresses they answer on include it.
    pub localhost_node_ports: PerFamily<bool>,
    /// Egress masquerade is on.
    pub egress: bool,
}

pub(super) static DEFAULT: UserspaceMode = UserspaceMode {
    settings: settings::DEFAULT,
    listen: None,
    localhost_node_ports: PerFamily {
        v4: false,
        v6: false,
    },
    egress: false,
};

const SECTION: ConfigSection = ConfigSection {
    uses_port_range: true,
    ..super::iptables::SECTION
};

impl Default for UserspaceMode {
    fn default() -> Self {
        DEFAULT.clone()
    }
}

impl UserspaceMode {
    /// Service addresses are put on an interface, and no rules are written.
    fn has_bind_portals(&self) -> bool {
        self.settings.portals == PortalSetting::Bind
    }

    /// A planner that knows nothing of this machine.
    fn planner(&self, family: Family) -> UserspacePlanner {
        UserspacePlanner::new(family, self.options(family, None))
    }

    /// The planner for this machine.
    fn planner_here(&self, family: Family) -> UserspacePlanner {
        let host = own_address(family).filter(|_| !self.has_bind_portals());
        UserspacePlanner::new(family, self.options(family, host))
    }

    /// The interface of bind portals.
    fn interface(&self) -> InterfaceChoice {
        match &self.settings.interface {
            Some(name) => InterfaceChoice::Named(name.clone()),
            None => InterfaceChoice::Own,
        }
    }

    fn install_with_rules(&self, notices: &Noticeboard) -> Result<Installed, SyncError> {
        let families = probe::supported_families();
        let mut detected = iptables_tools::detect(&families, "rules that redirect to proxies")?;
        let (engine, directory) = (LazyEngine::default(), Directory::default());
        let mut backends = PerFamily { v4: None, v6: None };
        for family in families {
            let Some(tool) = detected.tools[family].take() else {
                continue;
            };
            let proxies = self.proxies(family, &engine, &directory);
            let pair = Pair::new(
                self.planner_here(family),
                PortalApplier::new(proxies, IptablesApplier::new(tool), port_failures(notices)),
            );
            backends[family] = Some(Box::new(pair) as Box<dyn Backend>);
        }
        let chains = OwnChains {
            backend: detected.backend,
            is_ours: if self.egress {
                is_portal_or_egress_chain
            } else {
                is_portal_chain
            },
        };
        let mode = self.clone();
        Ok(Installed {
            proxies: directory,
            ..Installed::new(backends, move |patience| {
                take_over(&mode, Some(chains), patience)
            })
        })
    }

    fn install_bind_portals(&self, notices: &Noticeboard) -> Result<Installed, SyncError> {
        let choice = self.interface();
        let (engine, directory) = (LazyEngine::default(), Directory::default());
        let mut backends = PerFamily { v4: None, v6: None };
        for family in probe::supported_families() {
            let interface = Interface::open(&choice)?;
            tracing::info!(%family, interface = interface.name(), "Putting service addresses on an interface");
            let proxies = self.proxies(family, &engine, &directory);
            let pair = Pair::new(
                self.planner_here(family),
                BindPortalsApplier::new(family, proxies, interface, port_failures(notices)),
            );
            backends[family] = Some(Box::new(pair) as Box<dyn Backend>);
        }
        let mode = self.clone();
        Ok(Installed {
            proxies: directory,
            // Virtual servers get packets before sockets do, so there would always be new connections: waiting for them is of no use.
            ..Installed::new(backends, move |_| take_over(&mode, None, Duration::ZERO))
        })
    }

    fn options(&self, family: Family, host: Option<IpAddr>) -> UserspaceOptions {
        UserspaceOptions {
            portals: if self.has_bind_portals() {
                PortalMode::Bind
            } else {
                PortalMode::Rules {
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

    /// Addresses, listeners and rules against the desired state.
    fn compare_with(
        &self,
        desired: &Desired,
        proxies: &Directory,
    ) -> Result<Vec<Difference>, SyncError> {
        let family = desired.family;
        let open = proxies.services().into_iter();
        let open = open.filter(|(_, of, _)| *of == family);
        let listeners: Listeners = open
            .map(|(name, _, service)| (name, service.listeners()))
            .collect();
        let port = |at: &[SocketAddr]| at.first().map(SocketAddr::port);
        let ports = listeners
            .iter()
            .map(|(name, at)| (name.clone(), port(at).filter(|_| !self.has_bind_portals())));
        let mut observed = UserspaceObserved {
            open: ports.collect(),
            ..UserspaceObserved::default()
        };
        // On an interface that is not ours, other addresses may have been put there by anyone.
        let mut is_own = false;
        if self.has_bind_portals() {
            (observed.addresses, is_own) = interface::addresses_on(&self.interface(), family)?;
        } else {
            observed.save = iptables_tools::observe(family)?.save;
        }
        let mut planner = self.planner_here(family);
        let mut plan = planner.full(desired, &observed, ObservedPolicy::Adopt);
        plan.old_addresses.retain(|_| is_own);
        Ok(difference::userspace::differences(
            &plan, &observed, &listeners,
        ))
    }
}

impl Mode for UserspaceMode {
    fn name(&self) -> &'static str {
        trace::USERSPACE.mode
    }

    fn configured(&self, config: &Config) -> Arc<dyn Mode> {
        Arc::new(Self {
            settings: config.modes.userspace.clone(),
            listen: config.bind_address,
            egress: config.settings.egress_except.is_some(),
            localhost_node_ports: PerFamily::from_fn(|family| {
                config.localhost_node_ports && config.settings.node_ports.cover_loopback(family)
            }),
        })
    }

    fn config_section(&self) -> &'static ConfigSection {
        &SECTION
    }

    fn trace_profile(&self) -> TraceProfile {
        let profile = if self.has_bind_portals() {
            trace::BIND_PORTALS
        } else {
            trace::USERSPACE
        };
        profile.with_localhost_node_ports(self.localhost_node_ports)
    }

    fn properties(&self) -> Properties {
        Properties {
            needs_iptables_tools: !self.has_bind_portals(),
            needs_low_ports: self.has_bind_portals(),
            stops_with_process: true,
            accepts_forwarded_packets: false,
            shares_kube_proxy_chains: false,
            sets_route_localnet: false,
        }
    }

    /// kube-proxy's userspace mode had none.
    fn failure_metrics(&self) -> FailureMetrics {
        FailureMetrics {
            full: &[],
            incremental: &[],
            cleanup: &[],
        }
    }

    /// Finds the tools, or the interface. Nothing is opened before the first sync.
    fn install(&self, context: &InstallContext) -> Result<Installed, SyncError> {
        if let Some(ip) = self.listen.filter(IpAddr::is_loopback) {
            return Err(format!(
                "bindAddress {ip}: the userspace mode cannot proxy on loopback, because packets of clients do not get there; use an address of this node, or none"
            )
            .into());
        }
        if self.has_bind_portals() {
            self.install_bind_portals(&context.notices)
        } else {
            self.install_with_rules(&context.notices)
        }
    }

    /// Removes the service addresses of bind portals, and the device they are on. The chains go with those of the iptables mode.
    fn remove(&self, _removal: &Removal, steps: &mut RemovalSteps) {
        steps.add(interface::remove_leftovers().map_err(Into::into));
    }

    fn remove_own_leftovers(&self, removal: &Removal, steps: &mut RemovalSteps) {
        if !self.has_bind_portals() {
            self.remove(removal, steps);
        }
    }

    fn plan(&self, desired: &Desired) -> String {
        full_plan(self.planner(desired.family), desired)
    }

    fn plan_change(&self, old: &Desired, new: &Desired, delta: &Delta) -> String {
        plan_of_change(self.planner(new.family), old, new, delta)
    }

    /// Rules redirect to ports that were free when the daemon opened them, so only it can compare.
    fn compare(
        &self,
        desired: &Desired,
        _counters: bool,
        proxies: Option<&Directory>,
    ) -> Result<Vec<Difference>, SyncError> {
        match proxies {
            Some(proxies) => self.compare_with(desired, proxies),
            None => Err(
                "in userspace mode only the daemon knows where it listens; ask it, by leaving out --manifests and --config, or see the desired state with ferrovia plan"
                    .into(),
            ),
        }
    }

    fn find_in_kernel(&self, trace: &Trace) -> Result<Vec<KernelObject>, SyncError> {
        if self.has_bind_portals() {
            listeners::find(trace)
        } else {
            iptables_tools::find_rules(trace)
        }
    }

    /// Rules name the proxy's port, which `ferrovia trace` shows; with bind portals the socket has the frontend's own address.
    fn inspect_command(
        &self,
        _family: Family,
        port: &ServicePort,
        frontend: Frontend,
    ) -> Option<String> {
        let at = frontend.address().filter(|_| self.has_bind_portals())?;
        let protocol = port.protocol().to_string().to_lowercase();
        Some(format!(
            "ss --no-header --listening --numeric --{protocol} src {at}"
        ))
    }
}

fn port_failures(notices: &Noticeboard) -> Box<dyn TroubleReporter> {
    Box::new(PortFailures::new(NOT_PROXIED, notices.clone()))
}

/// The address that this machine would send from, to which its own packets to a service are redirected. Nothing is sent to find it out.
fn own_address(family: Family) -> Option<IpAddr> {
    // Addresses for documentation, which no host has: packets to them take the default route.
    let (any, remote) = match family {
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
        socket.connect((remote, 9))?;
        socket.local_addr()
    });
    let is_usable = |ip: &IpAddr| Family::of(*ip) == family && !ip.is_loopback();
    let routed = routed.ok().map(|at| at.ip());
    // Without a default route, any address that is not loopback will do.
    let others = || addr::local_addresses().unwrap_or_default();
    routed
        .filter(is_usable)
        .or_else(|| others().into_iter().find(is_usable))
}
