//! A lab whose node is programmed by the engine, in this process, in any of the modes.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ferrovia::mode::{
    InstallContext, IpvsMode, Mode, NftablesMode, PortalSetting, UserspaceMode, UserspaceSettings,
};
use ferrovia::sync::Engine;
use ferrovia_core::desired::NodeSettings;
use ferrovia_core::dialect::nft::sim::NftSim;
use ferrovia_core::family::{Family, PerFamily};
use ferrovia_core::plan::ObservedPolicy;
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

use crate::objects::Objects;
use crate::offline::OfflineProxy;
use crate::options::{iptables_mode, settings};
use crate::prediction;

/// A mode, with the options that cases are run with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModeVariant {
    /// The nftables mode.
    Nft,
    /// The iptables mode, with one of the two sets of tools.
    Iptables(Backend),
    /// The ipvs mode.
    Ipvs,
    /// The userspace mode with rules that redirect to the proxies.
    Userspace,
    /// The userspace mode with bind portals: proxies listen on the addresses of Services.
    BindPortals,
}

impl ModeVariant {
    /// Variants that work on any kernel.
    pub(crate) const HERE: [Self; 5] = [
        Self::Nft,
        Self::Iptables(Backend::Nft),
        Self::Iptables(Backend::Legacy),
        Self::Userspace,
        Self::BindPortals,
    ];
    /// Variants that need a kernel with IPVS.
    pub(crate) const IN_USER_MODE_LINUX: [Self; 1] = [Self::Ipvs];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nft => "nftables",
            Self::Iptables(backend) => backend.as_str(),
            Self::Ipvs => "ipvs",
            Self::Userspace => "userspace",
            Self::BindPortals => "bound",
        }
    }

    /// The flows of a step for this variant.
    fn lines(self, step: &Step) -> &[Line] {
        step.flows(match self {
            Self::Nft => &["nft"],
            Self::Iptables(_) => &["iptables"],
            Self::Ipvs => &["ipvs"],
            // Like the iptables mode it handles only the addresses and ports of Services.
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

/// The engine, which programs the kernel in the node's namespace.
pub(crate) struct EngineNode<'w> {
    /// The objects of the cluster.
    pub(crate) objects: Objects,
    settings: NodeSettings,
    addresses: Vec<IpAddr>,
    engine: Engine,
    variant: ModeVariant,
    mode: Box<dyn Mode>,
    world: &'w World,
}

impl<'w> EngineNode<'w> {
    /// An engine that has written the rules of an empty cluster.
    pub(crate) fn start(
        options: &BTreeMap<String, String>,
        world: &'w World,
        variant: ModeVariant,
    ) -> Self {
        let settings = settings(options);
        let mode = variant.mode(options);
        let (installed, addresses) = {
            let _inside = enter(world);
            match variant {
                // User-mode Linux has only one set of tools.
                ModeVariant::Nft | ModeVariant::BindPortals | ModeVariant::Ipvs => {}
                ModeVariant::Iptables(backend) => hint_iptables_backend(world, backend),
                ModeVariant::Userspace => hint_iptables_backend(world, Backend::Nft),
            }
            let installed = mode
                .install(&InstallContext::default())
                .expect("the mode works here");
            let addresses = ferrovia_host::addr::local_addresses().expect("addresses can be read");
            (installed, addresses)
        };
        let mut engine = Engine::new(settings.clone(), installed.backends);
        engine.set_addresses(addresses.clone());
        let mut node = Self {
            objects: Objects::default(),
            settings,
            addresses,
            engine,
            variant,
            mode,
            world,
        };
        let events = node.objects.start();
        let problems = node.apply(events);
        assert!(problems.is_empty(), "{problems:?}");
        node
    }

    pub(crate) fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Handles events and syncs; returns the errors.
    pub(crate) fn apply(&mut self, events: Vec<Event>) -> Vec<String> {
        for event in events {
            self.engine.handle(event);
        }
        // Sockets stay in the namespace that they were opened in, but programs start in that of the thread.
        let _inside = enter(self.world);
        let mut outcomes = self.engine.sync();
        outcomes.extend(self.engine.tidy());
        if self.variant == ModeVariant::Ipvs {
            let waited = self.world.wait_for_addresses(Role::Node);
            waited.expect("the services' addresses become the node's own");
        }
        outcomes
            .into_iter()
            .filter_map(|outcome| Some(outcome.result.err()?.to_string()))
            .collect()
    }

    /// The flows to run after a step. A userspace proxy terminates connections, so endpoints see the node's address.
    pub(crate) fn flows(&self, step: &Step) -> Vec<Line> {
        let lines = self.variant.lines(step).iter().cloned();
        match self.variant {
            ModeVariant::Nft | ModeVariant::Iptables(_) | ModeVariant::Ipvs => lines.collect(),
            ModeVariant::Userspace => lines.map(Line::proxied).collect(),
            ModeVariant::BindPortals if step.has_flows_of("bound") => {
                lines.map(Line::proxied).collect()
            }
            ModeVariant::BindPortals => {
                let now = self.addresses_with_services();
                let is_here = |ip| now.contains(&ip);
                lines
                    .map(|line| line.proxied().refused_at(is_here))
                    .collect()
            }
        }
    }

    /// The node's addresses, including those that bind portals added.
    fn addresses_with_services(&self) -> Vec<IpAddr> {
        let _inside = enter(self.world);
        let of_services = Family::ALL.into_iter().flat_map(|family| {
            let found = interface::addresses_on(&InterfaceChoice::Own, family);
            found.expect("addresses can be read").0
        });
        self.addresses.iter().copied().chain(of_services).collect()
    }

    /// The flows for which a trace predicts another outcome than the case expects.
    pub(crate) fn wrong_predictions(&self, lines: &[Line]) -> Vec<String> {
        prediction::wrong_predictions(&self.trace_context(), lines)
    }

    /// The input of traces.
    pub(crate) fn trace_context(&self) -> TraceContext<'_> {
        self.engine.trace_context(self.mode.trace_profile())
    }

    /// The semantic difference between the kernel's rules and those of a full sync into an empty kernel.
    pub(crate) fn compare_with_scratch(&mut self, family: Family) -> Option<String> {
        let _inside = enter(self.world);
        match self.variant {
            ModeVariant::Nft => self.compare_table(family),
            ModeVariant::Iptables(_) => self.compare_by_new_engine(family),
            ModeVariant::Userspace | ModeVariant::BindPortals | ModeVariant::Ipvs => {
                self.compare_by_full_sync(family)
            }
        }
    }

    /// A full sync of this engine must find nothing to write. In userspace mode only this engine knows which ports are open; in ipvs mode
    /// starting another one takes seconds in user-mode Linux.
    fn compare_by_full_sync(&mut self, family: Family) -> Option<String> {
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
        let plan = OfflineProxy::scratch(
            self.settings.clone(),
            &self.addresses,
            &self.objects,
            family,
        );
        let mut sim = NftSim::default();
        sim.apply(&plan).expect("the simulator accepts a full plan");
        let (found, wanted) = (meaning(&kernel), meaning(&sim.observe()));
        let only = |a: &std::collections::BTreeSet<String>,
                    b: &std::collections::BTreeSet<String>| {
            a.difference(b).cloned().collect::<Vec<_>>().join("\n  ")
        };
        (found != wanted).then(|| {
            format!(
                "the kernel has unexpected\n  {}\nand lacks\n  {}",
                only(&found, &wanted),
                only(&wanted, &found)
            )
        })
    }

    /// A new engine must find nothing to write.
    fn compare_by_new_engine(&mut self, family: Family) -> Option<String> {
        let mut installed = self
            .mode
            .install(&InstallContext::default())
            .expect("the mode works here");
        let mut backend = installed.backends[family].take()?;
        let desired = self.engine.desired(family)?;
        let written = backend
            .full(desired, ObservedPolicy::Adopt)
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

/// Marks which iptables tools this node uses, as the kubelet does.
fn hint_iptables_backend(world: &World, backend: Backend) {
    let args = ["-w", "60", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT"];
    let status = world.exec(Role::Node, backend.as_str()).args(args).status();
    assert!(status.is_ok_and(|status| status.success()));
}
