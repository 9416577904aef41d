//! Very many connections, and too many. In processes of their own: limits and memory are a process's.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ferrovia_host::userspace::{Engine, Failure, Options, Protocol};

use crate::support::{
    ALONE, ANYWHERE, INSIDE, alone, ask, connect, descriptors, echo_server, in_namespace,
    named_server, service, wait_until,
};

fn set_descriptor_limit(limit: u64) {
    let limit = libc::rlimit {
        rlim_cur: limit,
        rlim_max: limit,
    };
    // SAFETY: the structure outlives the call.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    let error = std::io::Error::last_os_error();
    assert_eq!(
        set, 0,
        "cannot set the limit of descriptors ({error}): run as root"
    );
}

/// What of this process is in memory, in KiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// How much processor time this process has used.
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

/// Engine and peers are two processes, because systems often allow a process no more than twenty thousand descriptors.
#[test]
fn ten_thousand_idle_connections_take_little_and_leave_nothing() {
    alone(
        "limits::ten_thousand_idle_connections_take_little_and_leave_nothing",
        || {
            if let Ok(server) = std::env::var(SERVER) {
                return engine_on_demand(server.parse().unwrap());
            }
            let many = most_connections();
            let listener = TcpListener::bind(ANYWHERE).unwrap();
            let mut engine = OtherEngine::start(listener.local_addr().unwrap());
            let before = engine.ask();
            let mut pairs: Vec<(TcpStream, TcpStream)> = (0..many)
                .map(|_| (connect(engine.address), listener.accept().unwrap().0))
                .collect();
            // Each is used, and comes to rest.
            for (client, server) in &mut pairs {
                let mut heard = [0; 64];
                client.write_all(&[7; 64]).unwrap();
                server.read_exact(&mut heard).unwrap();
                server.write_all(&heard).unwrap();
                client.read_exact(&mut heard).unwrap();
            }
            let full = engine.ask();
            assert_eq!(full.open, many);
            assert_eq!(full.descriptors - before.descriptors, 2 * many);
            let took = full.resident - before.resident;
            assert!(took < many * 6, "{many} connections take {took} KiB");
            drop(pairs);
            let start = Instant::now();
            loop {
                let left = engine.ask();
                if left.open == 0 && left.descriptors == before.descriptors {
                    break;
                }
                let (open, descriptors) = (left.open, left.descriptors - before.descriptors);
                assert!(
                    start.elapsed() < Duration::from_secs(60),
                    "{open} connections and {descriptors} descriptors are left"
                );
            }
        },
    );
}

/// Where the engine of another process is to carry connections to.
const SERVER: &str = "FERROVIA_USERSPACE_SERVER";

/// Ten thousand, or a little fewer where a process may not have the descriptors for that.
fn most_connections() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the structure outlives the calls.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
    let many = 10_000.min((limit.rlim_max as usize).saturating_sub(200) / 2);
    let hard = limit.rlim_max;
    assert!(
        many >= 9_000,
        "a process may have {hard} descriptors only: raise the hard limit to 20,200"
    );
    many
}

/// An engine in a process of its own.
struct OtherEngine {
    process: Child,
    answers: std::io::Lines<BufReader<ChildStdout>>,
    address: SocketAddr,
}

/// What it says of itself.
struct Condition {
    open: usize,
    descriptors: usize,
    resident: usize,
}

impl OtherEngine {
    fn start(server: SocketAddr) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["limits::ten_thousand", "--nocapture"])
            .env(ALONE, INSIDE)
            .env(SERVER, server.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut engine = Self {
            process,
            answers,
            address: ANYWHERE,
        };
        engine.address = engine.answer().parse().unwrap();
        engine
    }

    fn ask(&mut self) -> Condition {
        writeln!(self.process.stdin.as_mut().unwrap()).unwrap();
        let answer = self.answer();
        let mut numbers = answer.split(' ').map(|word| word.parse().unwrap());
        let mut next = || numbers.next().unwrap();
        Condition {
            open: next(),
            descriptors: next(),
            resident: next(),
        }
    }

    /// The next line that is an answer: the test harness has its own to say.
    fn answer(&mut self) -> String {
        let mut lines = self.answers.by_ref().map(Result::unwrap);
        lines
            .find_map(|line| line.split_once(ANSWER).map(|(_, it)| it.to_owned()))
            .unwrap()
    }
}

impl Drop for OtherEngine {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// What an answer starts with.
const ANSWER: &str = "engine: ";

/// The other process: says how it is for every line it is given, until there are no more.
fn engine_on_demand(server: SocketAddr) {
    let engine = Engine::start(&Options {
        most_connections: Some(10_000),
        ..Options::default()
    });
    let engine = engine.unwrap();
    let (_service, address) = service(&engine, Protocol::Tcp, &[server]);
    println!("{ANSWER}{address}");
    for _ in std::io::stdin().lines() {
        let (open, descriptors) = (engine.open_connections(), descriptors());
        println!("{ANSWER}{open} {descriptors} {}", resident());
    }
}

#[test]
fn no_descriptor_is_left_behind() {
    alone("limits::no_descriptor_is_left_behind", || {
        let server = echo_server();
        let before = descriptors();
        let engine = Engine::start(&Options::default()).unwrap();
        let (service, address) = service(&engine, Protocol::Tcp, &[server]);
        let mut streams: Vec<TcpStream> = (0..50).map(|_| connect(address)).collect();
        let data = vec![7; 1 << 20];
        for stream in &mut streams {
            let mut back = stream.try_clone().unwrap();
            let reader = thread::spawn(move || back.read_exact(&mut vec![0; 1 << 20]).unwrap());
            stream.write_all(&data).unwrap();
            reader.join().unwrap();
        }
        // Half of them end before the engine, half with it.
        streams.truncate(25);
        wait_until("half are left", || service.figures().open == 25);
        drop(engine);
        drop(service);
        drop(streams);
        wait_until("no descriptor is left behind", || descriptors() == before);
    });
}

#[test]
fn out_of_descriptors_connections_wait_and_nothing_spins() {
    alone(
        "limits::out_of_descriptors_connections_wait_and_nothing_spins",
        || {
            set_descriptor_limit(100);
            let server = echo_server();
            let engine = Engine::start(&Options::default()).unwrap();
            let (service, address) = service(&engine, Protocol::Tcp, &[server]);
            let mut taken: Vec<File> =
                std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
            // One is left, for the client.
            taken.pop();
            let mut stream = connect(address);
            wait_until("the limit is met", || {
                service.figures().failures(Failure::Limit) > 0
            });
            let (start, used) = (Instant::now(), processor_time());
            while start.elapsed() < Duration::from_secs(1) {
                thread::sleep(Duration::from_millis(50));
            }
            let (used, waited) = (processor_time() - used, start.elapsed());
            assert!(used < waited / 2, "{used:?} in {waited:?} of waiting");
            // Room is made, and the client that waited is served.
            drop(taken);
            stream.write_all(b"hello").unwrap();
            stream.read_exact(&mut [0; 5]).unwrap();
            assert_eq!(service.figures().connections, 1);
        },
    );
}

/// The last descriptors are for health checks and the API server: without them a node with too many node ports would look dead.
#[test]
fn listeners_leave_descriptors_for_the_rest_of_the_process() {
    alone(
        "limits::listeners_leave_descriptors_for_the_rest_of_the_process",
        || {
            set_descriptor_limit(100);
            let engine = Engine::start(&Options::default()).unwrap();
            for protocol in [Protocol::Tcp, Protocol::Udp] {
                let service = engine.service("shop/web:http", protocol);
                let refusal = std::iter::from_fn(|| Some(service.listen(ANYWHERE.into())))
                    .take(100)
                    .find_map(Result::err);
                let refusal = refusal.expect("there are not 100 descriptors").to_string();
                assert!(refusal.contains("Too many open files"), "{refusal}");
                let free: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
                assert!(free.len() >= 25, "{} are free", free.len());
            }
        },
    );
}

#[test]
fn at_the_limit_of_connections_the_next_waits_for_one_to_end() {
    in_namespace(|| {
        let engine = Engine::start(&Options {
            most_connections: Some(5),
            ..Options::default()
        })
        .unwrap();
        let echo = echo_server();
        let (first, address) = service(&engine, Protocol::Tcp, &[echo]);
        let mut streams: Vec<TcpStream> = (0..5).map(|_| connect(address)).collect();
        wait_until("five are open", || engine.open_connections() == 5);
        // The limit is the engine's.
        let (second, other): (_, SocketAddr) = service(&engine, Protocol::Tcp, &[named_server()]);
        let waiting = thread::spawn(move || ask(other).unwrap());
        wait_until("it has to wait", || {
            second.figures().failures(Failure::Limit) > 0
        });
        assert_eq!(second.figures().connections, 0);
        streams.pop();
        waiting.join().unwrap();
        assert_eq!(first.figures().connections, 5);
    });
}
