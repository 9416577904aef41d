//! The proxy's process, in the node's namespace: the engine, or the plain copy loop.

use std::net::SocketAddr;
use std::time::Duration;

use ferrovia_host::memory;
use ferrovia_host::userspace::{Endpoint, Engine, Options, Protocol};

use crate::nodes::{NODE_ADDRESS, SERVER_ADDRESS, Service, obey};
use crate::plain;

/// The argument that makes this program a proxy; which one follows.
pub(crate) const ROLE: &str = "--proxy";
pub(crate) const PLAIN: &str = "copy loop";
pub(crate) const ENGINE: &str = "engine";

pub(crate) fn run(kind: &str) {
    memory::keep_small();
    let ways = Service::ALL.map(|service| {
        let from: SocketAddr = (NODE_ADDRESS, service.proxy_port()).into();
        let to: SocketAddr = (SERVER_ADDRESS, service.port()).into();
        let protocol = match service {
            Service::Udp => Protocol::Udp,
            _ => Protocol::Tcp,
        };
        (protocol, from, to)
    });
    // Whatever is started lives until the process ends.
    let mut engine = None;
    if kind == PLAIN {
        for (protocol, from, to) in ways {
            match protocol {
                Protocol::Tcp => plain::carry_tcp(from, to),
                Protocol::Udp => plain::carry_udp(from, to),
            }
        }
    } else {
        // The limit that the engine sets itself leaves descriptors for a whole daemon.
        let options = Options {
            most_connections: Some(usize::MAX),
            ..Options::default()
        };
        let started = Engine::start(&options).unwrap();
        let services = ways.map(|(protocol, from, to)| {
            let (service, _) = started.forward(protocol, from, to).unwrap();
            let endpoint = Endpoint {
                is_local: true,
                ..to.into()
            };
            service.set_endpoints(&[endpoint], None);
            service
        });
        engine = Some((started, services));
    }
    obey(|_| {
        let seconds = processor_time().as_secs_f64();
        let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
        format!("{seconds} {} {descriptors}", resident())
    });
    drop(engine);
}

/// What of this process is in memory, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn processor_time() -> Duration {
    // SAFETY: all zeroes is a valid value, and it outlives the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}
