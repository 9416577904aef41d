//! A lab whose node runs the engine, in this process.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ferrovia::mode::Mode;
use ferrovia::sync::Engine;
use ferrovia_core::desired::Settings;
use ferrovia_core::dialect::nft::sim::Sim;
use ferrovia_core::family::Family;
use ferrovia_core::plan::nft::layout::TABLE;
use ferrovia_core::plan::nft::view::meaning;
use ferrovia_core::store::Event;
use ferrovia_host::nft::Nft;
use ferrovia_lab::layout::Role;
use ferrovia_lab::world::World;

use super::objects::Objects;
use super::paper::Paper;

/// The engine with its connections into the node's namespace.
pub(crate) struct Cluster {
    /// What has been fed to it.
    pub(crate) objects: Objects,
    settings: Settings,
    addresses: Vec<IpAddr>,
    engine: Engine,
    nft: Nft,
}

impl Cluster {
    /// An engine with an empty cluster in the kernel.
    pub(crate) fn start(options: &BTreeMap<String, String>, world: &World) -> Self {
        let settings = super::settings(options);
        // Sockets stay in the namespace they were opened in, so the thread need not.
        let (installed, addresses, nft) = {
            let _inside = world
                .enter(Role::Node)
                .expect("the node's namespace can be entered");
            let installed = Mode::Nftables.install(true).expect("the mode works here");
            let addresses = ferrovia_host::addr::local_addresses().expect("addresses can be read");
            (
                installed,
                addresses,
                Nft::open().expect("nf_tables can be reached"),
            )
        };
        let mut engine = Engine::new(settings.clone(), installed.backends);
        engine.set_addresses(addresses.clone());
        let mut cluster = Self {
            objects: Objects::default(),
            settings,
            addresses,
            engine,
            nft,
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
        let mut outcomes = self.engine.sync();
        while self.engine.has_leftovers() {
            outcomes.extend(self.engine.tidy());
        }
        outcomes
            .into_iter()
            .filter_map(|outcome| Some(outcome.result.err()?.to_string()))
            .collect()
    }

    /// Says where the kernel's table differs in meaning from one written from scratch.
    pub(crate) fn compare_with_scratch(&mut self, family: Family) -> Option<String> {
        let kernel = self
            .nft
            .observe(family, TABLE, &[])
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
}
