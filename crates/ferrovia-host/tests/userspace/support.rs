//! A namespace with loopback, servers that say who they are, and their clients.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::Duration;

use ferrovia_host::userspace::{Endpoint, Engine, Options, Protocol, Service};
use ferrovia_lab::namespace;
pub(crate) use ferrovia_lab::namespace::run;
use ferrovia_lab::waiting::SOON;
pub(crate) use ferrovia_lab::waiting::wait_until;

/// Any port of the loopback address.
pub(crate) const ANYWHERE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Runs a closure in a fresh network namespace. Only the loopback device is there.
pub(crate) fn in_namespace(test: impl FnOnce() + Send + 'static) {
    namespace::in_namespace(|| {
        run("ip link set lo up");
        test();
    });
}

/// Says to a process that it is the one in which a test is to be done.
pub(crate) const ALONE: &str = "FERROVIA_USERSPACE_ALONE";
/// The same, and that it is in the right namespace already.
pub(crate) const INSIDE: &str = "inside";

/// Runs a test, by its full name, in a process of its own, in which no other test runs and no program is started.
pub(crate) fn alone(name: &str, test: impl FnOnce() + Send + 'static) {
    match std::env::var(ALONE).as_deref() {
        // A process that such a test started: it has its namespace already.
        Ok(INSIDE) => return test(),
        Ok(_) => return in_namespace(test),
        Err(_) => {}
    }
    let itself = std::env::current_exe().unwrap();
    let mut command = Command::new(itself);
    command.args([name, "--exact", "--nocapture"]);
    let output = command.env(ALONE, "yes").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.contains("1 passed"), "the test was not found: {text}");
}

pub(crate) fn engine() -> Engine {
    Engine::start(&Options {
        threads: Some(2),
        ..Options::default()
    })
    .unwrap()
}

/// A service port with these endpoints, and where it listens.
pub(crate) fn service(
    engine: &Engine,
    protocol: Protocol,
    endpoints: &[SocketAddr],
) -> (Service, SocketAddr) {
    let service = engine.service("test", protocol);
    set_endpoints(&service, endpoints);
    let address = service.listen(ANYWHERE.into()).unwrap();
    (service, address)
}

pub(crate) fn set_endpoints(service: &Service, endpoints: &[SocketAddr]) {
    let endpoints: Vec<Endpoint> = endpoints.iter().map(|it| Endpoint::from(*it)).collect();
    service.set_endpoints(&endpoints, None);
}

/// A TCP server that gives each connection to a function, in a thread of its own. It ends with the test's process.
pub(crate) fn serve(each: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> SocketAddr {
    let listener = TcpListener::bind(ANYWHERE).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // Accepting takes a descriptor before it waits for a client. Where a test has left none it fails at once, and a loop
                // around it would be the one that spins.
                thread::sleep(Duration::from_millis(20));
                continue;
            };
            let each = each.clone();
            thread::spawn(move || each(stream));
        }
    });
    address
}

/// A server that says its port and hangs up.
pub(crate) fn named_server() -> SocketAddr {
    serve(|mut stream| {
        let port = stream.local_addr().unwrap().port();
        stream.write_all(&port.to_be_bytes()).ok();
    })
}

/// A server that sends back what it gets.
pub(crate) fn echo_server() -> SocketAddr {
    serve(|stream| {
        std::io::copy(&mut &stream, &mut &stream).ok();
    })
}

/// Connects, with a limit to every wait.
pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    try_connect(address).unwrap()
}

/// Which named server answers. A proxy without an endpoint resets at once, so a slow client may see that from
/// connecting already.
pub(crate) fn ask(address: SocketAddr) -> std::io::Result<u16> {
    let mut port = [0; 2];
    try_connect(address)?.read_exact(&mut port)?;
    Ok(u16::from_be_bytes(port))
}

fn try_connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(SOON))?;
    stream.set_write_timeout(Some(SOON))?;
    Ok(stream)
}

/// A UDP server that answers each datagram with its own port, a colon, and the datagram.
pub(crate) fn udp_server() -> SocketAddr {
    let socket = UdpSocket::bind(ANYWHERE).unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut buffer = vec![0; 65536];
        while let Ok((len, peer)) = socket.recv_from(&mut buffer) {
            let mut answer = format!("{}:", address.port()).into_bytes();
            answer.extend_from_slice(&buffer[..len]);
            socket.send_to(&answer, peer).ok();
        }
    });
    address
}

/// A UDP client that waits for answers for so long.
pub(crate) fn udp_client(to: SocketAddr, patience: Duration) -> UdpSocket {
    let any = SocketAddr::new(to.ip(), 0);
    let socket = UdpSocket::bind(any).unwrap();
    socket.connect(to).unwrap();
    socket.set_read_timeout(Some(patience)).unwrap();
    socket
}

/// The port of the server that answers a datagram.
pub(crate) fn udp_ask(socket: &UdpSocket) -> std::io::Result<u16> {
    socket.send(b"who")?;
    let mut buffer = [0; 64];
    let len = socket.recv(&mut buffer)?;
    let text = String::from_utf8_lossy(&buffer[..len]).into_owned();
    Ok(text.split(':').next().unwrap().parse().unwrap())
}

/// How many descriptors this process has.
pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Numbers that look random and are the same in every run.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
