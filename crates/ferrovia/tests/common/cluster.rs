//! A lab whose node runs the engine, in this process, in any of the modes.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ferrovia::mode::{
    InstallContext, IptablesMode, IpvsMode, Mode, NftablesMode, PortalSetting, UserspaceMode,
    UserspaceSettings,
};
use ferrovia::sync::Engine;
use ferrovia_core::desired::{NodePortSetting, Settings};
use ferrovia_core::dialect::nft::sim::Sim;
use ferrovia_core::family::{Family, PerFamily};
use ferrovia_core::plan::Found;
use ferrovia_core::plan::nft::layout::TABLE;
use ferrovia_core::plan::nft::view::meaning;
use ferrovia_core::store::Event;
use ferrovia_core::trace::TraceContext;
use ferrovia_host::iptables::Backend;
use ferrovia_host::nft::Nft;
use ferrovia_host::portals::{InterfaceChoice, interface};
use ferrovia_lab::case::Step;
use ferrovia_lab::flow::Line;
use ferrovia_lab::layout::Role;
use ferrovia_lab::world::{Inside, World};

use super::objects::Objects;
use super::paper::Paper;

/// How the kernel is programmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// In nftables mode.
    Nft,
    /// In iptables mode, with one of the two kinds of tools.
    Iptables(Backend),
    /// In ipvs mode.
    Ipvs,
    /// In userspace mode, with rules that lead to the proxies.
    Userspace,
    /// In userspace mode with bind portals: proxies listen on the addresses of services themselves.
    BindPortals,
}

impl Way {
    /// Those that work on any kernel.
    pub(crate) const HERE: [Self; 5] = [
        Self::Nft,
        Self::Iptables(Backend::Nft),
        Self::Iptables(Backend::Legacy),
        Self::Userspace,
        Self::BindPortals,
    ];
    /// Those that need a kernel with IPVS.
    pub(crate) const IN_USER_MODE_LINUX: [Self; 1] = [Self::Ipvs];

    /// For messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nft => "nftables",
            Self::Iptables(backend) => backend.as_str(),
            Self::Ipvs => "ipvs",
            Self::Userspace => "userspace",
            Self::BindPortals => "bound",
        }
    }

    /// The flows of a step, as the case has them for this way.
    fn lines(self, step: &Step) -> &[Line] {
        step.flows(match self {
            Self::Nft => &["nft"],
            Self::Iptables(_) => &["iptables"],
            Self::Ipvs => &["ipvs"],
            // Like the iptables mode it looks after nothing but the addresses and ports of services.
            Self::Userspace => &["userspace", "iptables"],
            Self::BindPortals => &["bound", "userspace", "iptables"],
        })
    }

    fn mode(self, options: &BTreeMap<String, String>) -> Box<dyn Mode> {
        match self {
            Self::Nft => Box::new(NftablesMode::default()),
            Self::Iptables(_) => Box::new(iptables_mode(options)),
            Self::Ipvs => Box::new(IpvsMode::default()),
            Self::Userspace | Self::BindPortals => Box::new(UserspaceMode {
                settings: UserspaceSettings {
                    portals: if self == Self::BindPortals {
                        PortalSetting::Bind
                    } else {
                        PortalSetting::Rules
                    },
                    ..UserspaceSettings::default()
                },
                localhost_node_ports: PerFamily::from_fn(|_| {
                    iptables_mode(options).localhost_node_ports
                }),
                ..UserspaceMode::default()
            }),
        }
    }
}

/// What a case's options mean for the iptables mode. Node ports answer on loopback only where they answer everywhere.
pub(crate) fn iptables_mode(options: &BTreeMap<String, String>) -> IptablesMode {
    let node_ports = super::settings(options).node_ports;
    IptablesMode {
        localhost_node_ports: matches!(node_ports, NodePortSetting::Any),
    }
}

/// The engine with its connections into the node's namespace.
pub(crate) struct Cluster<'w> {
    /// What has been fed to it.
    pub(crate) objects: Objects,
    settings: Settings,
    addresses: Vec<IpAddr>,
    engine: Engine,
    way: Way,
    mode: Box<dyn Mode>,
    world: &'w World,
}

impl<'w> Cluster<'w> {
    /// An engine with an empty cluster in the kernel.
    pub(crate) fn start(options: &BTreeMap<String, String>, world: &'w World, way: Way) -> Self {
        let settings = super::settings(options);
        let mode = way.mode(options);
        let (installed, addresses) = {
            let _inside = enter(world);
            match way {
                // In ipvs mode there are no other tools than those of the one kind.
                Way::Nft | Way::BindPortals | Way::Ipvs => {}
                Way::Iptables(backend) => say_which(world, backend),
                Way::Userspace => say_which(world, Backend::Nft),
            }
            let installed = mode
                .install(&InstallContext::default())
                .expect("the mode works here");
            let addresses = ferrovia_host::addr::local_addresses().expect("addresses can be read");
            (installed, addresses)
        };
        let mut engine = Engine::new(settings.clone(), installed.backends);
        engine.set_addresses(addresses.clone());
        let mut cluster = Self {
            objects: Objects::default(),
            settings,
            addresses,
            engine,
            way,
            mode,
            world,
        };
        let events = cluster.objects.start();
        let problems = cluster.take(events);
        assert!(problems.is_empty(), "{problems:?}");
        cluster
    }

    /// The node's addresses.
    pub(crate) fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Feeds events and syncs; answers with what went wrong.
    pub(crate) fn take(&mut self, events: Vec<Event>) -> Vec<String> {
        for event in events {
            self.engine.handle(event);
        }
        // Sockets stay in the namespace they were opened in, but programs start in the thread's.
        let _inside = enter(self.world);
        let mut outcomes = self.engine.sync();
        outcomes.extend(self.engine.tidy());
        if self.way == Way::Ipvs {
            let waited = self.world.wait_for_addresses(Role::Node);
            waited.expect("the services' addresses become the node's own");
        }
        outcomes
            .into_iter()
            .filter_map(|outcome| Some(outcome.result.err()?.to_string()))
            .collect()
    }

    /// The flows to run after a step. Where a proxy is between, clients' connections end in it, so endpoints see the node.
    pub(crate) fn flows(&self, step: &Step) -> Vec<Line> {
        let lines = self.way.lines(step).iter().cloned();
        match self.way {
            Way::Nft | Way::Iptables(_) | Way::Ipvs => lines.collect(),
            Way::Userspace => lines.map(Line::proxied).collect(),
            Way::BindPortals if step.has_flows_of("bound") => lines.map(Line::proxied).collect(),
            Way::BindPortals => {
                let now = self.addresses_with_services();
                let is_here = |ip| now.contains(&ip);
                lines
                    .map(|line| line.proxied().refused_at(is_here))
                    .collect()
            }
        }
    }

    /// The node's addresses, those that bind portals put there included.
    fn addresses_with_services(&self) -> Vec<IpAddr> {
        let _inside = enter(self.world);
        let of_services = Family::ALL.into_iter().flat_map(|family| {
            let found = interface::addresses_on(&InterfaceChoice::Own, family);
            found.expect("addresses can be read").0
        });
        self.addresses.iter().copied().chain(of_services).collect()
    }

    /// The flows whose fate a trace would predict wrongly.
    pub(crate) fn wrong_predictions(&self, lines: &[Line]) -> Vec<String> {
        super::prediction::wrong_predictions(&self.trace_context(), lines)
    }

    /// What traces are drawn from.
    pub(crate) fn trace_context(&self) -> TraceContext<'_> {
        self.engine.trace_context(self.mode.trace_profile())
    }

    /// Says where the kernel's rules differ in meaning from those written from scratch.
    pub(crate) fn compare_with_scratch(&mut self, family: Family) -> Option<String> {
        let _inside = enter(self.world);
        match self.way {
            Way::Nft => self.compare_table(family),
            Way::Iptables(_) => self.compare_with_nothing_to_write(family),
            Way::Userspace | Way::BindPortals | Way::Ipvs => self.compare_again(family),
        }
    }

    /// Whoever compares everything finds nothing to write. In userspace mode only this engine knows which ports are open, and in ipvs mode
    /// starting another one takes a guest seconds.
    fn compare_again(&mut self, family: Family) -> Option<String> {
        self.engine.suspect(family);
        let outcomes = self.engine.sync();
        let results = outcomes.into_iter().map(|outcome| outcome.result);
        let changed = results.map(|result| result.expect("the rules can be compared").changed);
        changed
            .into_iter()
            .any(|changed| changed)
            .then(|| "the rules differ from those written from scratch".to_owned())
    }

    fn compare_table(&self, family: Family) -> Option<String> {
        let kernel = Nft::open()
            .and_then(|mut nft| nft.observe(family, TABLE, &[]))
            .expect("the table can be read");
        let plan = Paper::scratch(
            self.settings.clone(),
            &self.addresses,
            &self.objects,
            family,
        );
        let mut sim = Sim::default();
        sim.apply(&plan).expect("a plan from scratch is right");
        let (found, wanted) = (meaning(&kernel), meaning(&sim.observe()));
        let only = |a: &std::collections::BTreeSet<String>,
                    b: &std::collections::BTreeSet<String>| {
            a.difference(b).cloned().collect::<Vec<_>>().join("\n  ")
        };
        (found != wanted).then(|| {
            format!(
                "the kernel has\n  {}\nand lacks\n  {}",
                only(&found, &wanted),
                only(&wanted, &found)
            )
        })
    }

    /// Whoever comes anew finds nothing to write.
    fn compare_with_nothing_to_write(&mut self, family: Family) -> Option<String> {
        let mut installed = self
            .mode
            .install(&InstallContext::default())
            .expect("the mode works here");
        let mut backend = installed.backends[family].take()?;
        let desired = self.engine.desired(family)?;
        let written = backend
            .full(desired, Found::Adopt)
            .expect("the rules can be compared");
        written
            .changed
            .then(|| "the rules differ from those written from scratch".to_owned())
    }
}

fn enter(world: &World) -> Inside {
    world
        .enter(Role::Node)
        .expect("the node's namespace can be entered")
}

/// Says which tools this node uses, as a kubelet does.
fn say_which(world: &World, backend: Backend) {
    let args = ["-w", "60", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT"];
    let status = world.exec(Role::Node, backend.as_str()).args(args).status();
    assert!(status.is_ok_and(|status| status.success()));
}
