//! `cargo bench --bench conntrack`: what cleaning up stale UDP flows costs on the real kernel, as a table.
//!
//! Each row has a network namespace of its own, filled with flows as a busy node has them: half TCP, half UDP, most of it not to any
//! service. Then endpoints go, and the thread that cleans up is told. While it works, a sync begins and ends again and again: the longest
//! that one had to wait stands in the last column. Nothing is asserted; the goal is half a second for 5,000 stale flows among 500,000.
//!
//! How many flows a namespace may have is the whole machine's `nf_conntrack_max`, which this does not touch: sizes that do not fit are
//! measured with what fits, and the table says so. `cargo test --benches` runs a tiny size, to show that all of it works.

#[path = "../../ferrovia-host/tests/conntrack/entries.rs"]
mod entries;
#[path = "proxy/table.rs"]
mod table;
#[path = "../../ferrovia-host/tests/conntrack/wanted.rs"]
mod wanted;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use ferrovia::conntrack::worker::Cleaner;
use ferrovia_core::desired::{Frontend, ServicePort};
use ferrovia_core::family::Family;

use crate::entries::{Entry, TCP, create};
use crate::table::Table;
use crate::wanted::{at, cleanup, port};

const GONE: &str = "10.244.1.1:53";
const KEPT: &str = "10.244.1.2:53";
/// Where other traffic goes.
const OUTSIDE: &str = "198.51.100.1:443";

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

fn main() -> anyhow::Result<()> {
    // Cargo says `--bench` to a benchmark that it runs as such.
    let scenes = if std::env::args().any(|argument| argument == "--bench") {
        &SCENES[..]
    } else {
        &TINY[..]
    };
    let head = [
        "flows",
        "stale",
        "services",
        "removed",
        "cleaned in",
        "of that CPU",
        "sync waited at most",
    ];
    let mut table = Table::new(head.map(str::to_owned).to_vec());
    for scene in scenes {
        eprintln!(
            "measuring {} stale of {} flows ...",
            scene.stale, scene.flows
        );
        let figures = measure(*scene)?;
        let short = if figures.flows < scene.flows {
            " (all that fit)"
        } else {
            ""
        };
        table.row(
            &format!("{}{short}", figures.flows),
            [
                scene.stale.to_string(),
                format!(
                    "{}{}",
                    scene.services,
                    if scene.one_port { "" } else { ", ports differ" }
                ),
                figures.removed.to_string(),
                format!("{:.1} ms", figures.took.as_secs_f64() * 1e3),
                format!("{:.1} ms", figures.cpu.as_secs_f64() * 1e3),
                format!("{:.1} µs", figures.longest_wait.as_secs_f64() * 1e6),
            ],
        );
    }
    println!("\n{table}");
    Ok(())
}

/// Measures in a thread of its own, with which its namespace goes.
fn measure(scene: Scene) -> anyhow::Result<Figures> {
    let measured = thread::spawn(move || {
        // SAFETY: no pointers; affects this thread only.
        let made = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        let error = std::io::Error::last_os_error();
        ensure!(
            made == 0,
            "cannot make a network namespace ({error}): run as root"
        );
        in_namespace(scene)
    });
    measured
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn in_namespace(scene: Scene) -> anyhow::Result<Figures> {
    let limit = std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_max")
        .context("cannot read how many flows there may be")?;
    let flows = scene.flows.min(limit.trim().parse::<usize>()? * 9 / 10);
    create((0..flows).map(|n| entry(scene, n)))?;

    let (sender, reports) = mpsc::channel();
    let cleaner = Cleaner::start(move |cleaned| {
        sender.send(cleaned).ok();
    })?;
    let old = services(scene, &[at(GONE), at(KEPT)]);
    let order = cleanup(Family::V4, old, services(scene, &[at(KEPT)]), &[]);
    let cpu = cpu_time();
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
        cpu: cpu_time().saturating_sub(cpu),
        longest_wait,
    })
}

/// What this process has used, in the kernel and outside. Besides the thread that cleans up, hardly anything runs.
fn cpu_time() -> Duration {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to room for one value, all zeroes of which is a valid one should the call not fill it.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let time = |value: libc::timeval| {
        Duration::from_secs(value.tv_sec.unsigned_abs())
            + Duration::from_micros(value.tv_usec.unsigned_abs())
    };
    time(usage.ru_utime) + time(usage.ru_stime)
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
fn entry(scene: Scene, n: usize) -> Entry {
    const PORTS: usize = 50_000;
    let client = Ipv4Addr::from(0x0a80_0000 + (n / PORTS) as u32);
    let client = SocketAddr::new(client.into(), 1000 + (n % PORTS) as u16);
    let service = address(scene, (n % usize::from(scene.services)) as u16);
    if n < scene.stale {
        Entry::udp(client, service, at(GONE))
    } else if n < 2 * scene.stale {
        Entry::udp(client, service, at(KEPT))
    } else {
        let other = Entry::udp(client, at(OUTSIDE), at(OUTSIDE));
        let protocol = if n.is_multiple_of(2) {
            TCP
        } else {
            other.protocol
        };
        Entry { protocol, ..other }
    }
}
