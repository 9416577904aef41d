//! What cleaning up stale UDP flows costs on the real kernel.
//!
//! Each row has a world of its own, whose node is filled with flows as a busy node has them: half TCP, half UDP, most of it not to any
//! service. Then endpoints go, and the thread that cleans up is told. While it works, a sync begins and ends again and again: the longest
//! that one had to wait stands in the last column.
//!
//! How many flows a namespace may have is the whole machine's `nf_conntrack_max`, which this does not touch: sizes that do not fit are
//! measured with what fits, and the table says so.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::Context;
use ferrovia::conntrack::worker::Cleaner;
use ferrovia_core::desired::{Frontend, ServicePort};
use ferrovia_core::family::Family;
use ferrovia_lab::conntrack::cleanup::{at, cleanup, port};
use ferrovia_lab::conntrack::{ConntrackEntry, TCP, create};
use ferrovia_lab::{Role, Spec, World};

use crate::Extent;
use crate::process;
use crate::show::{goal, show};
use crate::table::Table;

const GONE: &str = "10.244.1.1:53";
const KEPT: &str = "10.244.1.2:53";
/// Where other traffic goes.
const OUTSIDE: &str = "198.51.100.1:443";

/// The longest it should take.
const GOAL: Duration = Duration::from_millis(500);
/// The flows, and those of them that are stale, that the goal is for.
const GOAL_FOR: (usize, usize) = (500_000, 5_000);

const HEAD: [&str; 7] = [
    "flows",
    "stale",
    "services",
    "removed",
    "cleaned in",
    "of that CPU",
    "sync waited at most",
];

/// What is said below the table.
const NOTES: &str = "\
- Endpoints of services go, and UDP flows to them are removed; half of all flows are TCP, most are of no service. The goal, half a \
second, is for 5,000 stale of 500,000 flows.
- More flows than nine tenths of `net.netfilter.nf_conntrack_max` are not made, and that limit is the machine's: it is left as it is.
";

/// What a row measures.
#[derive(Clone, Copy)]
struct Scene {
    flows: usize,
    stale: usize,
    /// How many services lose an endpoint at the same time.
    services: u16,
    /// They all have the same port, as far as possible.
    one_port: bool,
}

impl Scene {
    const fn new(flows: usize, stale: usize, services: u16, one_port: bool) -> Self {
        Self {
            flows,
            stale,
            services,
            one_port,
        }
    }

    /// How many flows there are, and whether there should be more.
    fn shown(self, flows: usize) -> String {
        if flows < self.flows {
            format!("{flows} (all that fit of {})", self.flows)
        } else {
            flows.to_string()
        }
    }

    fn cells(self, figures: &Figures) -> [String; 6] {
        let ports = if self.one_port { "" } else { ", ports differ" };
        // With fewer flows than the goal is for, it says nothing.
        let is_goal = (figures.flows, self.stale) == GOAL_FOR;
        [
            self.stale.to_string(),
            format!("{}{ports}", self.services),
            figures.removed.to_string(),
            goal(figures.took, is_goal.then_some(GOAL)),
            show(figures.cpu),
            show(figures.longest_wait),
        ]
    }
}

const SCENES: [Scene; 6] = [
    Scene::new(50_000, 500, 1, true),
    Scene::new(250_000, 2_500, 1, true),
    Scene::new(500_000, 5_000, 1, true),
    Scene::new(500_000, 5_000, 100, true),
    Scene::new(500_000, 5_000, 100, false),
    Scene::new(500_000, 200_000, 1, true),
];
const TINY: [Scene; 2] = [
    Scene::new(2_000, 20, 1, true),
    Scene::new(2_000, 40, 20, false),
];

/// What a row shows.
struct Figures {
    flows: usize,
    removed: usize,
    took: Duration,
    cpu: Duration,
    longest_wait: Duration,
}

/// Measures, and answers with the section of the page.
pub(crate) fn section(extent: Extent) -> anyhow::Result<String> {
    let scenes = match extent {
        Extent::Tiny => &TINY[..],
        Extent::Quick => &SCENES[..1],
        Extent::Full => &SCENES[..],
    };
    let mut table = Table::new(HEAD.map(str::to_owned).to_vec());
    for scene in scenes {
        eprintln!(
            "measuring {} stale of {} flows ...",
            scene.stale, scene.flows
        );
        let figures = measure(*scene)?;
        table.row(&scene.shown(figures.flows), scene.cells(&figures));
    }
    Ok(format!("## Removing stale flows\n\n{table}\n{NOTES}"))
}

/// Measures in a world of its own.
fn measure(scene: Scene) -> anyhow::Result<Figures> {
    let world = World::new(Spec {
        ports: vec![],
        ..Spec::default()
    })?;
    let _inside = world.enter(Role::Node)?;
    in_namespace(scene)
}

fn in_namespace(scene: Scene) -> anyhow::Result<Figures> {
    let limit = std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_max")
        .context("cannot read how many flows there may be")?;
    let flows = scene.flows.min(limit.trim().parse::<usize>()? * 9 / 10);
    create((0..flows).map(|n| entry(scene, n)))?;

    let (sender, reports) = mpsc::channel();
    let cleaner = Cleaner::start(Duration::ZERO, move |cleaned| {
        sender.send(cleaned).ok();
    })?;
    let old = services(scene, &[at(GONE), at(KEPT)]);
    let order = cleanup(Family::V4, old, services(scene, &[at(KEPT)]), &[]);
    let cpu = process::cpu(std::process::id())?;
    cleaner.submit(order);
    let mut longest_wait = Duration::ZERO;
    let report = loop {
        match reports.recv_timeout(Duration::from_millis(1)) {
            Ok(report) => break report,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let start = Instant::now();
                drop(cleaner.syncing());
                longest_wait = longest_wait.max(start.elapsed());
            }
            Err(error) => return Err(error.into()),
        }
    };
    Ok(Figures {
        flows,
        removed: report.result?.total(),
        took: report.took,
        cpu: process::cpu(std::process::id())?.saturating_sub(cpu),
        longest_wait,
    })
}

/// The address of a service.
fn address(scene: Scene, service: u16) -> SocketAddr {
    let ip = Ipv4Addr::from(0x0a60_0000 + u32::from(service));
    let port = if scene.one_port { 53 } else { 5000 + service };
    SocketAddr::new(ip.into(), port)
}

fn services(scene: Scene, endpoints: &[SocketAddr]) -> Vec<ServicePort> {
    let service = |n| {
        let frontends = [Frontend::ClusterIp(address(scene, n))];
        port(&format!("s{n}"), &frontends, endpoints)
    };
    (0..scene.services).map(service).collect()
}

/// The `n`th flow: first the stale ones, then as many that are not, then others.
fn entry(scene: Scene, n: usize) -> ConntrackEntry {
    const PORTS: usize = 50_000;
    let client = Ipv4Addr::from(0x0a80_0000 + (n / PORTS) as u32);
    let client = SocketAddr::new(client.into(), 1000 + (n % PORTS) as u16);
    let service = address(scene, (n % usize::from(scene.services)) as u16);
    if n < scene.stale {
        ConntrackEntry::udp(client, service, at(GONE))
    } else if n < 2 * scene.stale {
        ConntrackEntry::udp(client, service, at(KEPT))
    } else {
        let other = ConntrackEntry::udp(client, at(OUTSIDE), at(OUTSIDE));
        let protocol = if n.is_multiple_of(2) {
            TCP
        } else {
            other.protocol
        };
        ConntrackEntry { protocol, ..other }
    }
}
