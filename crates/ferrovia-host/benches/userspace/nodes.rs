//! The namespaces, the processes in them, and what is said to these.

use std::io::{BufRead, BufReader, Lines, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ferrovia_lab::namespace::{enter_new, run};

/// The arguments that make this program one of the pods.
pub(crate) const CLIENT: &str = "--client";
pub(crate) const SERVER: &str = "--server";

/// The server's pod.
pub(crate) const SERVER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 99, 2, 2);
/// The node, as the client's pod reaches it.
pub(crate) const NODE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 99, 1, 1);

/// Where the congestion control of new connections is read and set. Those that pace themselves (bbr) are slower by far between
/// pods of one node, whichever way bytes go.
const CONGESTION: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
/// How many descriptors each process should have.
const DESCRIPTORS: u64 = 65_536;
/// So long a proxy has to close ten thousand connections.
const CLOSING: Duration = Duration::from_secs(10);

/// What the server offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// One message, one answer, and an end.
    Short,
    /// Everything comes back.
    Echo,
    /// Everything is read; at the end a byte reports it.
    Sink,
    /// Datagrams come back.
    Udp,
    /// One message, one answer, and no end.
    Keep,
}

impl Service {
    pub(crate) const ALL: [Self; 5] = [Self::Short, Self::Echo, Self::Sink, Self::Udp, Self::Keep];

    /// Where the server offers it.
    pub(crate) fn port(self) -> u16 {
        7001 + self as u16
    }

    /// Where a proxy does.
    pub(crate) fn proxy_port(self) -> u16 {
        8001 + self as u16
    }
}

/// Which pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pod {
    Client = 1,
    Server = 2,
}

/// Makes this process's namespace that of the node: a fresh one, which goes with the process.
pub(crate) fn become_node() {
    own_namespace();
    run("ip link set lo up");
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
}

/// Lets this process, and what it starts, have as many descriptors as ten thousand connections take, or as many as it may; says how many.
pub(crate) fn raise_descriptor_limit() -> u64 {
    for wanted in [DESCRIPTORS, hard_limit()] {
        let limit = libc::rlimit {
            rlim_cur: wanted,
            rlim_max: wanted,
        };
        // SAFETY: the structure outlives the call.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } == 0 {
            return wanted;
        }
    }
    panic!("cannot set the limit of descriptors to what it is");
}

fn hard_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the structure outlives the call.
    let read = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    assert_eq!(read, 0, "cannot read the limit of descriptors");
    limit.rlim_max
}

/// Gives a pod's process its device, its address and its way.
pub(crate) fn plug_in(pod: &Child, which: Pod) {
    let (net, pid) = (which as u8, pod.process.id());
    run(&format!(
        "ip link add pod{net} type veth peer name eth0 netns {pid}"
    ));
    run(&format!("ip address add 10.99.{net}.1/24 dev pod{net}"));
    run(&format!("ip link set pod{net} up"));
    // In the pod's namespace, by its process, without a name for it.
    for command in [
        "ip link set lo up".to_owned(),
        format!("ip address add 10.99.{net}.2/24 dev eth0"),
        "ip link set eth0 up".to_owned(),
        format!("ip route add default via 10.99.{net}.1"),
    ] {
        run(&format!("nsenter --net=/proc/{pid}/ns/net {command}"));
    }
}

/// How TCP finds out how fast it may send, in this process's namespace.
pub(crate) fn congestion_control() -> String {
    std::fs::read_to_string(CONGESTION).unwrap()
}

/// Moves this process, which must have one thread, into a fresh network namespace.
pub(crate) fn own_namespace() {
    enter_new();
    if let Ok(wanted) = std::env::var("BENCH_CONGESTION") {
        std::fs::write(CONGESTION, &wanted)
            .unwrap_or_else(|error| panic!("no congestion control {wanted}: {error}"));
    }
}

/// Answers orders, one line each, until there are no more.
pub(crate) fn obey(mut answer: impl FnMut(&[&str]) -> String) {
    println!("ready");
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        println!("{}", answer(&words));
    }
}

/// A process of ours. It ends when it is dropped.
pub(crate) struct Child {
    process: std::process::Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

/// What a process has used, and has.
pub(crate) struct Usage {
    pub(crate) seconds: f64,
    pub(crate) resident: u64,
    pub(crate) descriptors: u64,
}

/// What came of work.
pub(crate) struct Done {
    pub(crate) figure: f64,
    /// How many pieces of work that took, or bytes.
    pub(crate) amount: f64,
}

impl Child {
    /// Starts this program again, with these arguments, and waits until it is ready.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut child = Self {
            process,
            orders,
            answers,
        };
        assert_eq!(child.answer(), "ready");
        child
    }

    /// Gives an order; the answer.
    pub(crate) fn ask(&mut self, order: &str) -> String {
        writeln!(self.orders, "{order}").unwrap();
        self.answer()
    }

    /// Has work done towards an address.
    pub(crate) fn work(&mut self, order: &str, address: SocketAddr) -> Done {
        let answer = self.ask(&format!("{order} {address}"));
        let (figure, amount) = answer.split_once(' ').unwrap();
        Done {
            figure: figure.parse().unwrap(),
            amount: amount.parse().unwrap(),
        }
    }

    /// What it has used so far.
    pub(crate) fn usage(&mut self) -> Usage {
        let answer = self.ask("usage");
        let mut words = answer.split(' ');
        let mut next = || words.next().unwrap();
        Usage {
            seconds: next().parse().unwrap(),
            resident: next().parse().unwrap(),
            descriptors: next().parse().unwrap(),
        }
    }

    /// How many descriptors more than before it still has, once it has had time to close what is to be closed.
    pub(crate) fn descriptors_left(&mut self, before: u64) -> f64 {
        let start = Instant::now();
        loop {
            let left = self.usage().descriptors.saturating_sub(before);
            if left == 0 || start.elapsed() > CLOSING {
                return left as f64;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn answer(&mut self) -> String {
        let line = self.answers.next();
        line.expect("a process of the benchmark has ended").unwrap()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
