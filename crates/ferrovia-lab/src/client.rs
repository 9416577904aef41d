//! One call from one host, and its outcome.
//!
//! A [`Caller`] keeps the calling thread in a namespace, so that a call costs only its packets.
//! Calls are started and finished separately, so that several can time out concurrently.

mod outcome;

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use crate::layout::{Protocol, Role};
use crate::sctp::{Chunk, Packet};
use crate::servers::sctp_payload;
use crate::sys::{self, Readiness, SocketKind};
use crate::world::{Error, Inside, World};

pub(crate) use self::outcome::outcome_of;
use self::outcome::parse_answer;
pub use self::outcome::{Answer, Outcome};

/// How long to wait for an expected answer. Answers in the lab take microseconds, but on a busy
/// machine a server may not run for seconds.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// How often a pending call is polled.
const LOOK: Duration = Duration::from_millis(20);

/// How long to wait for an answer that must not arrive. Answers in the lab take microseconds.
pub const DROP_WAIT: Duration = Duration::from_millis(150);

/// Makes calls from a namespace. The thread stays in it until this is dropped.
#[derive(Debug)]
pub struct Caller<'w> {
    world: &'w World,
    _inside: Inside,
}

impl<'w> Caller<'w> {
    /// Moves the calling thread into a namespace.
    pub fn enter(world: &'w World, role: Role) -> Result<Self, Error> {
        Ok(Self {
            world,
            _inside: world.enter(role)?,
        })
    }

    /// Calls an address and waits for the outcome. Without `from` the routes choose the
    /// source address. Every call uses another source port.
    pub fn connect(
        &self,
        protocol: Protocol,
        from: Option<IpAddr>,
        to: SocketAddr,
        timeout: Duration,
    ) -> Outcome {
        match self.start(protocol, from, to) {
            Ok(mut call) => call.finish(Instant::now() + timeout),
            Err(error) => outcome_of(&error),
        }
    }

    /// Sends an HTTP GET request to a port that leads to one of the world's HTTP ports.
    pub fn get(&self, from: Option<IpAddr>, to: SocketAddr, timeout: Duration) -> Outcome {
        match self.start(Protocol::Tcp, from, to) {
            Ok(mut call) => call.get(Instant::now() + timeout),
            Err(error) => outcome_of(&error),
        }
    }

    /// Sends the first packet of a call.
    pub fn start(
        &self,
        protocol: Protocol,
        from: Option<IpAddr>,
        to: SocketAddr,
    ) -> io::Result<Call> {
        // A program in the namespace may use a port; then the next one is tried.
        for _ in 0..16 {
            let local = SocketAddr::new(from.unwrap_or(any(to)), self.world.fresh_source_port());
            match Call::start(protocol, local, to) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                other => return other,
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }
}

/// A pending call, or an open connection.
#[derive(Debug)]
pub struct Call {
    transport: Transport,
    own_source: IpAddr,
}

#[derive(Debug)]
enum Transport {
    Tcp(TcpStream),
    Udp(UdpSocket),
    Sctp { socket: UdpSocket, source_port: u16 },
}

impl Call {
    fn start(protocol: Protocol, local: SocketAddr, to: SocketAddr) -> io::Result<Self> {
        let (transport, own) = match protocol {
            Protocol::Tcp => {
                let socket = sys::bound_socket(SocketKind::Tcp, local)?;
                sys::connect(&socket, to)?;
                let stream = TcpStream::from(socket);
                let own = stream.local_addr()?;
                (Transport::Tcp(stream), own)
            }
            Protocol::Udp => {
                let socket = UdpSocket::bind(local)?;
                socket.set_nonblocking(true)?;
                socket.connect(to)?;
                ask(&socket, b"who?\n")?;
                let own = socket.local_addr()?;
                (Transport::Udp(socket), own)
            }
            Protocol::Sctp => start_sctp(local, to)?,
        };
        Ok(Self {
            transport,
            own_source: own.ip(),
        })
    }

    /// Waits for the answer. `None` means that TCP retransmitted its SYN: a retransmission must not
    /// hide a packet that a wrong rule dropped.
    pub(crate) fn finish_without_retransmission(&mut self, deadline: Instant) -> Option<Outcome> {
        if let Transport::Tcp(stream) = &self.transport {
            match established_without_retransmission(stream, deadline) {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(outcome_of(&error)),
            }
        }
        Some(self.finish(deadline))
    }

    /// Waits for the answer.
    pub fn finish(&mut self, deadline: Instant) -> Outcome {
        let line = match &mut self.transport {
            Transport::Tcp(stream) => established(stream, deadline)
                .and_then(|()| read_line(stream, deadline))
                .and_then(|line| {
                    line.ok_or_else(|| io::Error::other("connection closed without an answer"))
                }),
            Transport::Udp(socket) => read_datagram(socket, deadline),
            Transport::Sctp {
                socket,
                source_port,
            } => read_init_ack(socket, *source_port, self.own_source, deadline),
        };
        self.outcome(line)
    }

    /// Sends an HTTP request once the connection is established, and waits for the response.
    pub fn get(&mut self, deadline: Instant) -> Outcome {
        let line = match &mut self.transport {
            Transport::Tcp(stream) => established(stream, deadline)
                .and_then(|()| stream.write_all(b"GET / HTTP/1.0\r\n\r\n"))
                .and_then(|()| read_body(stream, deadline)),
            Transport::Udp(_) | Transport::Sctp { .. } => Err(io::Error::other("HTTP needs TCP")),
        };
        self.outcome(line)
    }

    fn outcome(&self, line: io::Result<String>) -> Outcome {
        match line {
            Ok(line) => parse_answer(&line, self.own_source).map_or_else(
                || Outcome::Other(format!("unexpected answer {line:?}")),
                Outcome::Answer,
            ),
            Err(error) => outcome_of(&error),
        }
    }

    /// Sends again on the same socket: UDP for a new answer, TCP for an echo. `Ok(None)` is a TCP
    /// echo, `Ok(Some)` the answer of the current endpoint of a UDP flow.
    pub fn repeat(&mut self, timeout: Duration) -> io::Result<Option<Answer>> {
        let deadline = Instant::now() + timeout;
        match &mut self.transport {
            Transport::Tcp(stream) => {
                const WORD: &str = "echo request\n";
                stream.write_all(WORD.as_bytes())?;
                match read_line(stream, deadline)? {
                    Some(line) if line == WORD => Ok(None),
                    Some(line) => Err(io::Error::other(format!("wrong echo {line:?}"))),
                    None => Err(io::ErrorKind::UnexpectedEof.into()),
                }
            }
            Transport::Udp(socket) => {
                ask(socket, b"who?\n")?;
                let line = read_datagram(socket, deadline)?;
                parse_answer(&line, self.own_source)
                    .map(Some)
                    .ok_or_else(|| io::Error::other(format!("unexpected answer {line:?}")))
            }
            Transport::Sctp { .. } => Err(io::Error::other("an SCTP call cannot be repeated")),
        }
    }
}

fn start_sctp(local: SocketAddr, to: SocketAddr) -> io::Result<(Transport, SocketAddr)> {
    // For a raw socket the kernel interprets a port as a protocol number.
    let raw = sys::bound_socket(SocketKind::RawSctp, SocketAddr::new(local.ip(), 0))?;
    sys::connect(&raw, SocketAddr::new(to.ip(), 0))?;
    let socket = UdpSocket::from(raw);
    let own = socket.local_addr()?;
    let init = Packet {
        source_port: local.port(),
        destination_port: to.port(),
        chunk: Chunk::Init {
            tag: u32::from(local.port()),
        },
    };
    ask(&socket, &init.encode())?;
    Ok((
        Transport::Sctp {
            socket,
            source_port: local.port(),
        },
        own,
    ))
}

/// Sends a datagram. A local rule that drops or rejects it makes the send fail with EPERM in both
/// cases; only a reject is followed by an ICMP message.
fn ask(socket: &UdpSocket, bytes: &[u8]) -> io::Result<()> {
    match socket.send(bytes) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => Ok(()),
        other => other.map(drop),
    }
}

/// Waits until a TCP connection is established.
///
/// In the lab an ICMP error arrives so fast that the kernel is still in the call that sent
/// the SYN. It then only stores the error, and fails the connection a second later,
/// when the retransmitted SYN is rejected again. Reading `SO_ERROR` first finds the stored error.
fn established(stream: &TcpStream, deadline: Instant) -> io::Result<()> {
    stream.take_error()?.map_or(Ok(()), Err)?;
    await_ready(stream.as_raw_fd(), Readiness::Writable, deadline)?;
    stream.take_error()?.map_or(Ok(()), Err)
}

/// Waits until a TCP connection is established; false means that its SYN was retransmitted.
///
/// An ICMP error that arrives between two polls is only stored as well (see above), so `SO_ERROR` is
/// polled.
fn established_without_retransmission(stream: &TcpStream, deadline: Instant) -> io::Result<bool> {
    loop {
        let look = deadline.min(Instant::now() + LOOK);
        stream.take_error()?.map_or(Ok(()), Err)?;
        let is_ready = sys::wait(stream.as_raw_fd(), Readiness::Writable, look)?;
        if sys::is_resent(stream)? {
            return Ok(false);
        }
        if is_ready {
            return stream.take_error()?.map_or(Ok(true), Err);
        }
        if look == deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

/// Reads to the end of a line; `None` is the end of the stream.
fn read_line(stream: &mut TcpStream, deadline: Instant) -> io::Result<Option<String>> {
    let mut line = vec![];
    let mut buffer = [0; 256];
    while line.last() != Some(&b'\n') {
        await_ready(stream.as_raw_fd(), Readiness::Readable, deadline)?;
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(None),
            Ok(length) => line.extend_from_slice(buffer.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Some(String::from_utf8_lossy(&line).into_owned()))
}

/// Reads an HTTP response until the server closes the connection, and returns the body.
fn read_body(stream: &mut TcpStream, deadline: Instant) -> io::Result<String> {
    let mut response = String::new();
    while let Some(lines) = read_line(stream, deadline)? {
        response += &lines;
    }
    let (_, body) = response
        .split_once("\r\n\r\n")
        .ok_or_else(|| io::Error::other(format!("not an HTTP response: {response:?}")))?;
    Ok(body.to_owned())
}

fn read_datagram(socket: &UdpSocket, deadline: Instant) -> io::Result<String> {
    let mut buffer = [0; 1500];
    loop {
        await_ready(socket.as_raw_fd(), Readiness::Readable, deadline)?;
        match socket.recv(&mut buffer) {
            Ok(length) => {
                let bytes = buffer.get(..length).unwrap_or_default();
                return Ok(String::from_utf8_lossy(bytes).into_owned());
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Waits for the answer to our INIT; a raw socket also receives those of other calls to the address.
fn read_init_ack(
    socket: &UdpSocket,
    own_port: u16,
    own_source: IpAddr,
    deadline: Instant,
) -> io::Result<String> {
    let mut buffer = [0; 1500];
    loop {
        await_ready(socket.as_raw_fd(), Readiness::Readable, deadline)?;
        let length = match socket.recv(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            other => other?,
        };
        let payload = sctp_payload(buffer.get(..length).unwrap_or_default(), own_source);
        if let Some(Packet {
            destination_port,
            chunk: Chunk::InitAck { text, .. },
            ..
        }) = Packet::decode(payload)
            && destination_port == own_port
        {
            return Ok(String::from_utf8_lossy(&text).into_owned());
        }
    }
}

fn await_ready(fd: RawFd, readiness: Readiness, deadline: Instant) -> io::Result<()> {
    if sys::wait(fd, readiness, deadline)? {
        Ok(())
    } else {
        Err(io::ErrorKind::TimedOut.into())
    }
}

fn any(like: SocketAddr) -> IpAddr {
    if like.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    }
}
