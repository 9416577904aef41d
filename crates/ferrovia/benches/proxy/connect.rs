//! Connections of a pod of the node: how long one takes, and who answers it.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::Context;
use ferrovia_lab::{Role, World};

use crate::cluster::{FIRST_POD, PORT, Size, TIMED_PORT, cluster_ip};
use crate::figures::Samples;

/// Where all calls come from.
pub(crate) const CLIENT: Role = Role::PodA;

/// How many connections are made each way.
const CONNECTIONS: usize = 3_000;
/// The first ones are not counted: neighbours are looked up, caches fill.
const WARM_UP: usize = 200;
/// An answer comes in microseconds; this only keeps a broken ruleset from hanging the run.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection takes far less.
const AT_ONCE: Duration = Duration::from_millis(1);

/// How long `connect` takes, by way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latency {
    /// To the pod's own address.
    pub(crate) direct: Samples,
    /// Through the first service.
    pub(crate) first: Samples,
    /// Through the last.
    pub(crate) last: Samples,
}

/// Times connections to the same pod by three ways, in turn, so that whatever else the machine does meets all alike.
///
/// This thread is client and server. All work of a handshake, the node's included, is then done by one CPU inside the client's call, and
/// no other thread is woken by it: what differs is what the packets meet.
pub(crate) fn latency(world: &World, size: Size) -> anyhow::Result<Latency> {
    let direct = SocketAddrV4::new(FIRST_POD.v4(), TIMED_PORT);
    let listener = {
        let _inside = world.enter(FIRST_POD.role())?;
        TcpListener::bind(direct)?
    };
    let _inside = world.enter(CLIENT)?;
    let (first, last) = (through(0), through(size.last()));
    let mut latency = Latency::default();
    for round in 0..WARM_UP + CONNECTIONS {
        let ways = [
            (direct, &mut latency.direct),
            (first, &mut latency.first),
            (last, &mut latency.last),
        ];
        for (to, samples) in ways {
            let took = timed(&listener, to)?;
            if round >= WARM_UP {
                samples.add(took);
            }
        }
    }
    Ok(latency)
}

/// Whether a connection is made at once. Where nothing is known of an address, packets vanish: to wait longer is of no use.
pub(crate) fn is_answered(to: SocketAddrV4) -> bool {
    TcpStream::connect_timeout(&to.into(), AT_ONCE).is_ok()
}

/// The name of the pod that answers a call.
pub(crate) fn who_answers(to: SocketAddrV4) -> anyhow::Result<String> {
    let stream = TcpStream::connect_timeout(&to.into(), PATIENCE)
        .with_context(|| format!("cannot connect to {to}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    // A pod's answer begins with its name.
    let name = line.split_whitespace().next();
    Ok(name.context("an empty answer")?.to_owned())
}

/// The address of a service.
pub(crate) fn through(service: usize) -> SocketAddrV4 {
    SocketAddrV4::new(cluster_ip(service), PORT)
}

fn timed(listener: &TcpListener, to: SocketAddrV4) -> anyhow::Result<Duration> {
    let start = Instant::now();
    let client = TcpStream::connect(to).with_context(|| format!("cannot connect to {to}"))?;
    let took = start.elapsed();
    let (server, _) = listener.accept()?;
    // Who closes first has to remember the connection for a minute. The client's ports are the scarcer ones.
    drop(server);
    drop(client);
    Ok(took)
}
