//! What a proxy costs the API server, and following one costs the proxy: a real kube-apiserver and etcd, which `KUBEBUILDER_ASSETS` names.
//!
//! - [`plane`]: the control plane, with many objects in it.
//! - [`nodes`]: many clients in one process, each as a daemon has it.
//! - [`table`]: the figures as tables.

pub(crate) mod nodes;
mod plane;
mod table;

use std::fs::File;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use ferrovia_lab::Role;
use ferrovia_lab::control_plane::Assets;
use ferrovia_lab::interrupt::Interrupt;

use super::{Launch, PATIENCE, Request, SETTLE, contestants, go_on};
use crate::api::objects;
use crate::compare::release::Release;
use crate::connect::{CLIENT, is_answered, who_answers};
use crate::process::{self, Memory};
use crate::report;

use nodes::Nodes;
use plane::Plane;

/// The sizes, unless one is asked for.
const SIZES: [usize; 2] = [10_000, 44_000];
/// Services while many nodes are simulated: what each of them receives has to pass this machine's loopback device.
const SIMULATED_SERVICES: usize = 1_000;
/// Time between two looks.
const TURN: Duration = Duration::from_millis(5);
/// The server's own work is measured for this long while nothing else happens.
const IDLE: Duration = Duration::from_secs(5);

/// What was measured of a proxy.
struct Figures {
    start: Phase,
    changes: Phase,
    /// After the start.
    memory: Memory,
}

/// What something cost.
#[derive(Clone, Copy, Debug)]
struct Phase {
    /// What the server sent.
    bytes: u64,
    /// CPU time of the proxy, with the programs it starts.
    proxy: Duration,
    /// CPU time of the API server, without what it does anyway.
    server: Duration,
}

/// The figures of one size.
struct Row {
    services: usize,
    /// Whether the server has watch-lists.
    watch_lists: bool,
    /// kube-proxy's and ours.
    figures: Vec<Figures>,
}

/// What some number of simulated nodes cost the server.
struct Simulated {
    nodes: usize,
    http2: bool,
    connections: u64,
    start: Duration,
    /// In KiB, more than before.
    memory: i64,
    changes: Duration,
}

/// Measures everything and prints it.
pub(super) fn run(
    request: &Request,
    release: &Release,
    interrupt: &Interrupt,
) -> anyhow::Result<()> {
    let assets = Assets::find()?;
    let sizes = request.sizes.clone().unwrap_or_else(|| SIZES.to_vec());
    let mut rows = Vec::new();
    let simulated = {
        let mut plane = Plane::start(&assets, &[])?;
        plane.grow(SIMULATED_SERVICES.min(sizes[0]), interrupt)?;
        let simulated = simulate(&mut plane, request, interrupt)?;
        for services in &sizes {
            plane.grow(*services, interrupt)?;
            rows.push(measure_all(&mut plane, true, request, release, interrupt)?);
        }
        simulated
    };
    let mut plane = Plane::start(&assets, &["--feature-gates=WatchList=false"])?;
    plane.grow(sizes[0], interrupt)?;
    rows.push(measure_all(&mut plane, false, request, release, interrupt)?);
    println!("\n{}\n", report::machine()?);
    println!("{}", table::proxies(request, release, &rows));
    println!(
        "{}",
        table::simulated(request, plane.simulated_services(), &simulated)
    );
    println!("{}", table::NOTES);
    Ok(())
}

/// Measures both proxies, one after the other.
fn measure_all(
    plane: &mut Plane,
    watch_lists: bool,
    request: &Request,
    release: &Release,
    interrupt: &Interrupt,
) -> anyhow::Result<Row> {
    let services = plane.services();
    let mut figures = Vec::new();
    for (name, program) in contestants(request, release) {
        eprintln!("measuring {name} with {services} Services of a real API server ...");
        let launch = Launch {
            program,
            mode: request.mode.clone(),
            environment: Vec::new(),
        };
        let measured = measure(plane, &launch, request.changes, interrupt);
        figures.push(measured.with_context(|| format!("{name} cannot be measured"))?);
    }
    Ok(Row {
        services,
        watch_lists,
        figures,
    })
}

/// A proxy that runs until this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn measure(
    plane: &mut Plane,
    launch: &Launch,
    changes: usize,
    interrupt: &Interrupt,
) -> anyhow::Result<Figures> {
    plane.clear_rules()?;
    let last = plane.services() - 1;
    plane.apply(&objects::slice_at_pod(last, objects::FIRST_POD))?;
    let idle = plane.idle(interrupt)?;
    let before = Meter::read(plane, None)?;
    let log = File::create(plane.file("proxy.log"))?;
    let mut command = launch.command(&plane.world, &plane.kubeconfig()?, objects::NODE_NAME);
    let running = Running(command.stdout(Stdio::null()).stderr(log).spawn()?);
    let pid = running.0.id();
    until(plane, interrupt, || Ok(is_answered(objects::address(last))))?;
    settle(interrupt)?;
    let after = Meter::read(plane, Some(pid))?;
    let start = after.since(&before, idle);
    let memory = process::memory(pid)?;

    let before = Meter::read(plane, Some(pid))?;
    plane.replace_endpoints(changes, interrupt)?;
    let other = ferrovia_lab::Pod::C;
    plane.apply(&objects::slice_at_pod(last, other))?;
    until(plane, interrupt, || {
        // A kube-proxy may refuse connections for a moment in between.
        let answer = who_answers(objects::address(last));
        Ok(answer.is_ok_and(|name| name == other.name()))
    })?;
    settle(interrupt)?;
    let after = Meter::read(plane, Some(pid))?;
    Ok(Figures {
        start,
        changes: after.since(&before, idle),
        memory,
    })
}

/// Counters at some time.
struct Meter {
    at: Instant,
    bytes: u64,
    proxy: Duration,
    server: Duration,
}

impl Meter {
    fn read(plane: &Plane, proxy: Option<u32>) -> anyhow::Result<Self> {
        let used =
            |pid| Ok::<_, anyhow::Error>(process::cpu(pid)? + process::cpu_of_children(pid)?);
        Ok(Self {
            at: Instant::now(),
            bytes: plane.received(),
            proxy: proxy.map(used).transpose()?.unwrap_or_default(),
            server: process::cpu(plane.server()?)?,
        })
    }

    /// What was used since, without the server's share of a second in which nothing happens.
    fn since(&self, before: &Self, idle: f64) -> Phase {
        let passed = self.at - before.at;
        let server = self.server.saturating_sub(before.server);
        Phase {
            bytes: self.bytes - before.bytes,
            proxy: self.proxy.saturating_sub(before.proxy),
            server: server.saturating_sub(passed.mul_f64(idle)),
        }
    }
}

/// Waits in the client's namespace until something is so.
fn until(
    plane: &Plane,
    interrupt: &Interrupt,
    mut is_so: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let begin = Instant::now();
    let _inside = plane.world.enter(CLIENT)?;
    while !is_so()? {
        go_on(interrupt)?;
        ensure!(
            begin.elapsed() < PATIENCE,
            "nothing happened within {} s; its log ends with\n{}",
            PATIENCE.as_secs(),
            plane.last_words()
        );
        interrupt.sleep(TURN);
    }
    Ok(())
}

fn settle(interrupt: &Interrupt) -> anyhow::Result<()> {
    interrupt.sleep(SETTLE);
    go_on(interrupt)
}

/// Measures what one and many simulated nodes cost the server, with both versions of HTTP.
fn simulate(
    plane: &mut Plane,
    request: &Request,
    interrupt: &Interrupt,
) -> anyhow::Result<Vec<Simulated>> {
    let mut all = Vec::new();
    for (nodes, http2) in [
        (0, true),
        (1, true),
        (request.nodes, true),
        (request.nodes, false),
    ] {
        eprintln!("simulating {nodes} nodes ...");
        all.push(simulate_one(
            plane,
            nodes,
            http2,
            request.changes,
            interrupt,
        )?);
        // What the server keeps of closed connections is not the next one's.
        interrupt.sleep(IDLE);
    }
    Ok(all)
}

fn simulate_one(
    plane: &mut Plane,
    count: usize,
    http2: bool,
    changes: usize,
    interrupt: &Interrupt,
) -> anyhow::Result<Simulated> {
    let idle = plane.idle(interrupt)?;
    let (before, memory) = (Meter::read(plane, None)?, plane.server_memory()?);
    let mut nodes = Nodes::start(&plane.world, &plane.direct_kubeconfig()?, count, http2)?;
    nodes.wait_until_listed(interrupt)?;
    settle(interrupt)?;
    let start = Meter::read(plane, None)?.since(&before, idle).server;
    let memory = plane.server_memory()?.cast_signed() - memory.cast_signed();
    let connections = plane.connections()?;
    let before = Meter::read(plane, None)?;
    plane.replace_endpoints(changes, interrupt)?;
    nodes.wait_until_changed(changes, interrupt)?;
    settle(interrupt)?;
    Ok(Simulated {
        nodes: count,
        http2,
        connections,
        start,
        memory,
        changes: Meter::read(plane, None)?.since(&before, idle).server,
    })
}

/// Where the control plane and the proxies are.
const NODE: Role = Role::Node;
