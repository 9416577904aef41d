//! `bench/compare`: a kube-proxy and this proxy, one after the other, in the same kind of node, on the same objects, by packets.
//!
//! - [`remote`]: the objects in an API server of somebody else's. Without one, the lab's own is used.
//! - [`api`]: instead of the usual course, what a real API server sends and spends.
//! - [`flows`]: instead of the usual course, what removing stale UDP flows costs.
//! - [`request`]: what is asked for on the command line. [`release`]: which kube-proxy it is.
//! - [`trial`]: a run that only shows that it works.

pub(crate) mod api;
mod flows;
mod release;
pub(crate) mod remote;
mod request;
pub(crate) mod trial;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use ferrovia_lab::interrupt::Interrupt;
use ferrovia_lab::{Pod, Role};

use crate::api::daemon::{Launch, Node, Program};
use crate::api::objects;
use crate::cluster::Size;
use crate::connect::{CLIENT, is_answered, who_answers};
use crate::figures::Samples;
use crate::process::Memory;
use crate::report;
use crate::show::{memory, ratio, show};
use crate::table::Table;

use release::Release;
use remote::Remote;
use request::Request;

/// The argument that asks for this.
pub(crate) const COMPARE: &str = "compare";

/// Endpoints of every service that is not called.
const ENDPOINTS: usize = 2;
/// How long a proxy may take for a start or a change. With 10,000 services in the iptables mode an old kube-proxy needs minutes on a busy
/// machine; one that ends is noticed at once.
const PATIENCE: Duration = Duration::from_secs(1200);
/// What both use in other modes than nftables, whichever kind it is.
const TOOL: &str = "iptables";
/// Memory is looked at this long after the start.
const SETTLE: Duration = Duration::from_secs(2);
/// Who tries to connect while a proxy starts; see [`crate::api`].
const EARLY_CLIENT: Role = Role::PodD;

/// What is said below the table.
const NOTES: &str = "\
- Each in a network namespace of its own, with nobody else, one after the other; API server, clients and pods share the machine's CPUs.
- Start: from the start of the process until a client that tries again every millisecond has a connection through the last service.
- Change: the only endpoint of one service is replaced; from giving the API server the slice until the new pod answers. CPU: of the \
proxy's process and of the programs it starts and waits for.
- Both are started with their own defaults, and use the iptables that this machine has by that name. A kube-proxy that waits between two \
syncs (`minSyncPeriod`, 1 s in iptables mode) shows it in the time of a change.
";

/// What was measured of a proxy.
struct Figures {
    /// From the start of the process until the last service answered.
    start: Duration,
    /// CPU time until a little later.
    start_cpu: Duration,
    /// From a change until the new endpoint answered.
    changes: Samples,
    /// CPU time of one.
    change_cpu: Duration,
    /// In the end.
    memory: Memory,
}

/// Does what the command line asks for.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let Some(request) = Request::read(arguments)? else {
        return Ok(());
    };
    let release = Release::of(&request.kube_proxy)?;
    release.check(&request.mode, request.server)?;
    // Objects in somebody's cluster must not stay behind.
    let interrupt = Interrupt::watch()?;
    if request.api {
        return api::run(&request, &release, &interrupt);
    }
    if !request.flows.is_empty() {
        return flows::run(&request, &release, &interrupt);
    }
    let size = Size::new(request.services, ENDPOINTS);
    let remote = request
        .server
        .map(|server| make_objects(server, size, &interrupt))
        .transpose()?;
    let mut results = Vec::new();
    for (name, program) in contestants(&request, &release) {
        eprintln!(
            "measuring {name} with {size} in the {} mode ...",
            request.mode
        );
        let mut node = match &remote {
            Some(remote) => Node::far_from(Arc::clone(remote))?,
            None => Node::new(objects::all(size))?,
        };
        node.patience = PATIENCE;
        let launch = Launch {
            program,
            mode: request.mode.clone(),
            // The lock of iptables' tools is the whole machine's unless they are told otherwise.
            environment: vec![("XTABLES_LOCKFILE", node.file("xtables.lock"))],
        };
        if request.mode != "nftables" {
            // A kube-proxy runs what is called so; this proxy would choose by itself on a node without rules.
            node.use_tools(&launch, TOOL)?;
        }
        let figures = measure(
            &mut node,
            &launch,
            &Course {
                size,
                times: request.changes,
                interrupt: &interrupt,
            },
        );
        results.push(figures.with_context(|| format!("{name} cannot be measured"))?);
    }
    println!("\n{}\n", report::machine()?);
    println!("{}\n{NOTES}", table(&request, &release, &results));
    Ok(())
}

fn contestants(request: &Request, release: &Release) -> [(String, Program); 2] {
    let theirs = Program::KubeProxy {
        path: request.kube_proxy.clone(),
        flags: release.flags(&request.mode),
    };
    [
        (kube_proxy(release), theirs),
        ("Ferrovia".to_owned(), Program::Ferrovia),
    ]
}

fn kube_proxy(release: &Release) -> String {
    format!("kube-proxy {}", release.name)
}

fn make_objects(
    server: std::net::SocketAddr,
    size: Size,
    interrupt: &Interrupt,
) -> anyhow::Result<Arc<Remote>> {
    eprintln!("making {size} in the cluster ...");
    let remote = Arc::new(Remote::new(server)?);
    for object in objects::all(size) {
        go_on(interrupt)?;
        remote.apply(&object)?;
    }
    Ok(remote)
}

/// What is done with each.
struct Course<'a> {
    size: Size,
    /// How many changes are timed.
    times: usize,
    interrupt: &'a Interrupt,
}

/// An error if somebody wants this to end.
fn go_on(interrupt: &Interrupt) -> anyhow::Result<()> {
    ensure!(!interrupt.is_raised(), "interrupted");
    Ok(())
}

fn measure(node: &mut Node, launch: &Launch, course: &Course<'_>) -> anyhow::Result<Figures> {
    let last = course.size.last();
    let settle = || {
        course.interrupt.sleep(SETTLE);
        go_on(course.interrupt)
    };
    // Both begin with the same endpoint.
    node.server
        .apply(objects::slice_at_pod(last, objects::FIRST_POD))?;
    let address = node.server.address(last)?;
    settle()?;
    let begin = Instant::now();
    node.start(launch)?;
    let start = {
        let _inside = node.world.enter(EARLY_CLIENT)?;
        node.until(begin, || {
            go_on(course.interrupt)?;
            Ok(is_answered(address))
        })?
    };
    settle()?;
    let start_cpu = node.cpu_with_children()?;

    let mut changes = Samples::default();
    let pods = [Pod::C, objects::FIRST_POD].into_iter().cycle();
    for pod in pods.take(course.times) {
        let begin = Instant::now();
        // The server may be one that is reached from outside of the lab only.
        node.server.apply(objects::slice_at_pod(last, pod))?;
        let _inside = node.world.enter(CLIENT)?;
        changes.add(node.until(begin, || {
            go_on(course.interrupt)?;
            Ok(who_answers(address)? == pod.name())
        })?);
    }
    // What a change brings with it may still be under way.
    settle()?;
    let all = node.cpu_with_children()?.saturating_sub(start_cpu);
    Ok(Figures {
        start,
        start_cpu,
        changes,
        change_cpu: all / u32::try_from(course.times.max(1))?,
        memory: node.memory()?,
    })
}

fn table(request: &Request, release: &Release, results: &[Figures]) -> Table {
    let size = Size::new(request.services, ENDPOINTS);
    let title = format!("{} mode, {size}", request.mode);
    let head = [&title, &kube_proxy(release), "Ferrovia", "ratio"].map(ToOwned::to_owned);
    let mut table = Table::new(head.to_vec());
    let [theirs, ours] = results else {
        return table;
    };
    let mut times = |name, figure: fn(&Figures) -> Duration| {
        let (theirs, ours) = (figure(theirs), figure(ours));
        let ratio = format!("{:.1} ×", ratio(theirs, ours));
        table.row(name, [show(theirs), show(ours), ratio]);
    };
    times("start, until the last service answers", |f| f.start);
    times("– CPU", |f| f.start_cpu);
    times("change, until the new endpoint answers, p50", |f| {
        f.changes.p50()
    });
    times("– p99", |f| f.changes.p99());
    times("– CPU", |f| f.change_cpu);
    let sizes = (theirs.memory.resident, ours.memory.resident);
    let share = format!("{:.1} ×", sizes.0 as f64 / sizes.1.max(1) as f64);
    table.row(
        "memory",
        [memory(sizes.0, None), memory(sizes.1, None), share],
    );
    table
}
