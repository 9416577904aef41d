//! What removing stale UDP flows costs each proxy, in a namespace that tracks some number of flows.
//!
//! Endpoints of UDP Services are replaced one after the other, at a steady rate that does not depend on the proxy. Before each change a flow
//! to the endpoint that goes is written into the kernel's table, and it is timed until that flow is gone.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use ferrovia_lab::apiserver::sample;
use ferrovia_lab::conntrack::{ConntrackEntry, TCP, create, write_tuple};
use ferrovia_lab::interrupt::Interrupt;
use ferrovia_lab::plain_http::try_request;
use ferrovia_lab::{Role, World};
use ferrovia_netlink::uapi::nfnetlink::NFNL_SUBSYS_CTNETLINK;
use ferrovia_netlink::uapi::nfnetlink_conntrack::{CTA_TUPLE_ORIG, IPCTNL_MSG_CT_GET};
use ferrovia_netlink::{Protocol, Socket, Writer, nfnetlink};
use serde_json::{Value, json};

use super::{Launch, Node, PATIENCE, Request, SETTLE, contestants, go_on, kube_proxy};
use crate::api::objects;
use crate::cluster::Size;
use crate::compare::release::Release;
use crate::figures::Samples;
use crate::report;
use crate::show::{ratio, show};
use crate::table::Table;

/// How many Services there are; each has one endpoint.
const SERVICES: usize = 200;
/// The time between two changes.
const INTERVAL: Duration = Duration::from_millis(50);
/// The time between two looks whether flows are gone.
const TURN: Duration = Duration::from_millis(5);
/// Where flows of no Service go.
const OUTSIDE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)), 443);
/// What both count their rounds with.
const ROUNDS: &str = "kubeproxy_conntrack_reconciler_sync_duration_seconds";
const METRICS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10249);

/// What is said below the table.
const NOTES: &str = "\
- Flows: half TCP, half UDP, of no Service, in the proxy's own network namespace; 200 UDP Services with an endpoint each. The endpoint of one \
after the other is replaced, 20 a second. Before each change a flow to the endpoint that goes is entered; it is timed until that flow is gone.
- CPU: of the proxy's process and the programs it starts, for all changes together, rules included. Rounds, and the time in them: as both count \
them themselves (`kubeproxy_conntrack_reconciler_sync_duration_seconds`).
- No more flows fit than `net.netfilter.nf_conntrack_max` says, which is the whole machine's.
";

/// What was measured of a proxy.
struct Figures {
    /// For all changes.
    cpu: Duration,
    rounds: f64,
    in_rounds: Duration,
    /// From a change until the flow to the old endpoint was gone.
    gone: Samples,
}

/// Measures both with every number of flows that is asked for.
pub(super) fn run(
    request: &Request,
    release: &Release,
    interrupt: &Interrupt,
) -> anyhow::Result<()> {
    let names = [kube_proxy(release), "Ferrovia".to_owned()];
    let head = ["", &names[0], &names[1], "ratio"].map(ToOwned::to_owned);
    let mut table = Table::new(head.to_vec());
    for flows in &request.flows {
        ensure!(
            *flows < room()?,
            "{flows} flows do not fit: net.netfilter.nf_conntrack_max is {}",
            room()?
        );
        let mut results = Vec::new();
        for (name, program) in contestants(request, release) {
            eprintln!("measuring {name} with {flows} tracked flows ...");
            let launch = Launch {
                program,
                mode: request.mode.clone(),
                environment: Vec::new(),
            };
            let figures = measure(&launch, *flows, request.changes, interrupt);
            results.push(figures.with_context(|| format!("{name} cannot be measured"))?);
        }
        add_rows(&mut table, *flows, request.changes, &results);
    }
    println!("\n{}\n", report::machine()?);
    println!("{table}\n{NOTES}");
    Ok(())
}

fn room() -> anyhow::Result<usize> {
    let text = std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_max")
        .context("cannot read how many flows there may be")?;
    Ok(text.trim().parse()?)
}

fn add_rows(table: &mut Table, flows: usize, changes: usize, results: &[Figures]) {
    let [theirs, ours] = results else { return };
    let mut times = |name: &str, figure: fn(&Figures) -> Duration| {
        let (theirs, ours) = (figure(theirs), figure(ours));
        let ratio = format!("{:.1} ×", ratio(theirs, ours));
        table.row(name, [show(theirs), show(ours), ratio]);
    };
    times(
        &format!("**{flows} flows**: CPU for {changes} changes"),
        |f| f.cpu,
    );
    times("– time in rounds of clean-up", |f| f.in_rounds);
    times("– one round", |f| f.in_rounds.div_f64(f.rounds.max(1.0)));
    times("– until the stale flow is gone, p50", |f| f.gone.p50());
    times("– p99", |f| f.gone.p99());
    let rounds = [theirs, ours].map(|f| format!("{}", f.rounds));
    table.row("– rounds", rounds.into_iter().chain([String::new()]));
}

fn measure(
    launch: &Launch,
    flows: usize,
    changes: usize,
    interrupt: &Interrupt,
) -> anyhow::Result<Figures> {
    let mut node = Node::new(all_objects())?;
    node.patience = PATIENCE;
    let mut table = Tracked::fill(&node.world, flows)?;
    // Both clean up with their first sync, so this shows when they are ready.
    let early = flow(0, 0, endpoint(0, 9));
    enter(&node.world, early)?;
    node.start(launch)?;
    let begin = Instant::now();
    node.until(begin, || {
        interrupt.sleep(TURN);
        go_on(interrupt)?;
        Ok(!table.has(&early)?)
    })?;
    interrupt.sleep(SETTLE);
    let (cpu, before) = (node.cpu_with_children()?, Rounds::read(&node.world)?);
    let gone = replace_endpoints(&node, &mut table, changes, interrupt)?;
    // What a change brings with it may still be under way.
    interrupt.sleep(SETTLE);
    let after = Rounds::read(&node.world)?;
    Ok(Figures {
        cpu: node.cpu_with_children()?.saturating_sub(cpu),
        rounds: after.count - before.count,
        in_rounds: Duration::from_secs_f64((after.seconds - before.seconds).max(0.0)),
        gone,
    })
}

/// Makes the changes at their times; answers with how long each stale flow stayed.
fn replace_endpoints(
    node: &Node,
    table: &mut Tracked,
    changes: usize,
    interrupt: &Interrupt,
) -> anyhow::Result<Samples> {
    let mut gone = Samples::default();
    let mut waiting = VecDeque::new();
    let begin = Instant::now();
    let mut made = 0;
    while made < changes || !waiting.is_empty() {
        go_on(interrupt)?;
        ensure!(begin.elapsed() < PATIENCE, "stale flows are not removed");
        if made < changes && begin.elapsed() >= INTERVAL * u32::try_from(made)? {
            let (service, turn) = (made % SERVICES, made / SERVICES);
            let stale = flow(1 + made, service, endpoint(service, turn % 2));
            enter(&node.world, stale)?;
            node.server.apply(slice(service, (turn + 1) % 2))?;
            waiting.push_back((stale, Instant::now()));
            made += 1;
        }
        let mut left = VecDeque::new();
        for (stale, since) in waiting {
            if table.has(&stale)? {
                left.push_back((stale, since));
            } else {
                gone.add(since.elapsed());
            }
        }
        waiting = left;
        interrupt.sleep(TURN);
    }
    Ok(gone)
}

/// Writes a flow into the node's table.
fn enter(world: &World, entry: ConntrackEntry) -> anyhow::Result<()> {
    let _inside = world.enter(Role::Node)?;
    Ok(create(std::iter::once(entry))?)
}

/// The kernel's table of the node.
struct Tracked {
    socket: Socket,
}

impl Tracked {
    fn fill(world: &World, flows: usize) -> anyhow::Result<Self> {
        let _inside = world.enter(Role::Node)?;
        create((0..flows).map(other_flow))?;
        let socket = Socket::open(Protocol::Netfilter)?;
        Ok(Self { socket })
    }

    /// Whether a flow is there, which costs the kernel one look-up.
    fn has(&mut self, entry: &ConntrackEntry) -> anyhow::Result<bool> {
        const GET: u16 = nfnetlink::message_type(NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_GET);
        let body = |w: &mut Writer| {
            w.raw(&nfnetlink::header(libc::AF_INET as u8));
            w.nested(CTA_TUPLE_ORIG, |w| {
                write_tuple(w, entry.protocol, entry.client, entry.sent_to);
            });
        };
        match self.socket.query(GET, body, |_| Some(())) {
            Ok(()) => Ok(true),
            Err(error) if error.errno() == Some(libc::ENOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// A proxy's own count of its rounds.
struct Rounds {
    count: f64,
    seconds: f64,
}

impl Rounds {
    fn read(world: &World) -> anyhow::Result<Self> {
        let _inside = world.enter(Role::Node)?;
        let reply = try_request(METRICS, "GET", "/metrics", &[], "")?;
        let sum = |suffix: &str| {
            let name = format!("{ROUNDS}_{suffix}{{");
            let lines = reply.body.lines().filter(|line| line.starts_with(&name));
            lines
                .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
                .sum()
        };
        Ok(Self {
            count: sum("count"),
            seconds: sum("sum"),
        })
    }
}

fn all_objects() -> impl Iterator<Item = Value> {
    let whole_cluster = objects::all(Size::new(0, 1));
    whole_cluster
        .chain((0..SERVICES).map(service))
        .chain((0..SERVICES).map(|number| slice(number, 0)))
}

fn service(number: usize) -> Value {
    let mut service = objects::service(number);
    service["spec"]["ports"][0]["protocol"] = json!("UDP");
    service
}

/// A Service's slice with the endpoint of that turn.
fn slice(number: usize, turn: usize) -> Value {
    let mut slice = objects::slice(Size::new(0, 1), number, 0);
    let at = endpoint(number, turn);
    slice["endpoints"][0]["addresses"] = json!([at.ip()]);
    slice["ports"][0]["protocol"] = json!("UDP");
    slice["ports"][0]["port"] = json!(at.port());
    slice
}

fn endpoint(service: usize, turn: usize) -> SocketAddr {
    let ip = sample::endpoint_ip(service as u32, turn as u32);
    SocketAddr::new(ip.into(), 5353)
}

/// A flow of its own to a Service, answered by an endpoint.
fn flow(number: usize, service: usize, endpoint: SocketAddr) -> ConntrackEntry {
    let client = SocketAddr::new(Ipv4Addr::new(10, 200, 0, 1).into(), 1000 + number as u16);
    ConntrackEntry::udp(client, objects::address(service).into(), endpoint)
}

/// A flow of no Service.
fn other_flow(number: usize) -> ConntrackEntry {
    const PORTS: usize = 50_000;
    let ip = Ipv4Addr::from_bits(0x0ac9_0000 + (number / PORTS) as u32);
    let client = SocketAddr::new(ip.into(), 1000 + (number % PORTS) as u16);
    let udp = ConntrackEntry::udp(client, OUTSIDE, OUTSIDE);
    let protocol = match number % 2 {
        0 => TCP,
        _ => udp.protocol,
    };
    ConntrackEntry { protocol, ..udp }
}
