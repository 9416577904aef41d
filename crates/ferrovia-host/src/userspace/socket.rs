//! Sockets, made ready for the event loops: listeners, and connections to endpoints.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::ops::RangeInclusive;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};

use super::{Error, Gate, Protocol, sys};
use crate::privileges;

/// How many connections may wait to be accepted; the system's `somaxconn` may allow fewer.
const BACKLOG: i32 = 4096;
/// Room for datagrams that arrive while we are busy. Taken only by what waits.
const RECEIVE_ROOM: i32 = 4 << 20;
/// A peer that vanished without a word is asked for after so long, and given up some ten minutes later, so that its connection is not kept
/// for ever.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new().with_time(Duration::from_secs(120));
/// How fast to send where no network is on the way: as fast as the receiver reads. What the node is set to may be made for long ways; one that
/// paces what it sends by timers (bbr) costs a fifth of a big stream. This one paces nothing, is in every kernel, and anyone may use it.
const WITHOUT_NETWORK: &[u8] = b"reno";

/// File descriptors that listeners leave free, at most a quarter of the process's limit. Thousands of service ports would otherwise take the
/// last ones, and health checks, the API server's connections and the kernel's sockets could not be opened any more.
const RESERVED_DESCRIPTORS: u64 = 32;

/// Where to listen.
#[derive(Debug)]
pub enum Address {
    /// At this address; port 0 leaves the port to the system.
    At(SocketAddr),
    /// At any free port of a range, tried from a random one on.
    Range(IpAddr, RangeInclusive<u16>),
}

/// Whether the address must be there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Presence {
    /// On this machine, now.
    #[default]
    Here,
    /// It may come later: it is bound as if it were there. Needs no right.
    Later,
}

/// A listener to be opened.
#[derive(Debug)]
pub struct Listen {
    /// Where.
    pub address: Address,
    /// Whether the address must be there.
    pub presence: Presence,
    /// What holds for its clients; without one, all are let in.
    pub gate: Option<Gate>,
}

impl From<SocketAddr> for Listen {
    fn from(address: SocketAddr) -> Self {
        Self {
            address: Address::At(address),
            presence: Presence::Here,
            gate: None,
        }
    }
}

/// What an opened listener consists of.
#[derive(Debug)]
pub(super) enum Opened {
    /// One socket that all threads share.
    Tcp(TcpListener),
    /// One for each thread; the kernel spreads clients over them.
    Udp(Vec<UdpSocket>),
}

/// Opens a listener; the address it has.
pub(super) fn open(
    service: &str,
    protocol: Protocol,
    listen: Listen,
    threads: usize,
) -> Result<(Opened, SocketAddr), Error> {
    let presence = listen.presence;
    let bind = |address| {
        let opened = match protocol {
            Protocol::Tcp => listen_tcp(address, presence),
            Protocol::Udp => listen_udp(address, presence, threads),
        };
        opened.map_err(|failed| failed.at(service, address))
    };
    match listen.address {
        Address::At(address) => bind(address),
        Address::Range(ip, ports) => {
            for port in from_a_random_one(&ports) {
                match bind(SocketAddr::new(ip, port)) {
                    Err(Error::Taken { .. }) => {}
                    result => return result,
                }
            }
            Err(Error::NoFreePort {
                service: service.to_owned(),
                ip,
                ports,
            })
        }
    }
}

/// Starts to connect, without waiting. When the endpoint has answered, the last packet of the handshake waits for the first bytes: one packet
/// less, and the endpoint is woken once for both. If there are none yet, [`complete_handshake`] must be called.
pub(super) fn connect_tcp(address: SocketAddr, is_local: bool) -> io::Result<TcpStream> {
    let kind = Type::STREAM.nonblocking();
    let socket = Socket::new(Domain::for_address(address), kind, None)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&KEEPALIVE)?;
    sys::set_option(&socket, libc::IPPROTO_TCP, libc::TCP_QUICKACK, 0)?;
    if is_local {
        hurry(&socket);
    }
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(socket.into()),
    }
}

/// Has a socket send as fast as its peer on this machine reads. To be done before it is connected: pacing that has begun is not taken back.
fn hurry(socket: &Socket) {
    // Refused, it is as fast as the node's setting lets it be.
    let _ = socket.set_tcp_congestion(WITHOUT_NETWORK);
}

/// Sends the last packet of the handshake, if it has not gone with the first bytes. A server that speaks first would else have to wait for
/// a fifth of a second.
pub(super) fn complete_handshake(stream: &TcpStream) {
    // That it fails, the connection being gone already, is found out otherwise.
    let _ = sys::set_option(stream, libc::IPPROTO_TCP, libc::TCP_QUICKACK, 1);
}

/// A socket that sends to, and hears from, this endpoint only.
pub(super) fn connect_udp(address: SocketAddr) -> io::Result<UdpSocket> {
    let kind = Type::DGRAM.nonblocking();
    let socket = Socket::new(Domain::for_address(address), kind, None)?;
    socket.connect(&address.into())?;
    Ok(socket.into())
}

/// Has a listener hear nobody from now on, by making itself its only peer: what others send to its port is refused. To be done before it is closed,
/// because a program that is just being started has a copy of every descriptor, and would keep the socket hearing for that long.
pub(super) fn deafen(listener: &UdpSocket) {
    // That it fails, its address being gone already, changes little: it hears nobody without one.
    let _ = listener.local_addr().and_then(|own| listener.connect(own));
}

/// Makes closing a connection a reset, which also throws away what was not sent.
pub(super) fn reset_on_close(stream: &TcpStream) {
    // That it fails, the connection being gone already, changes nothing.
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

/// What of opening failed, and why.
struct Failed(&'static str, io::Error);

impl Failed {
    fn at(self, service: &str, address: SocketAddr) -> Error {
        let service = service.to_owned();
        let Self(action, source) = self;
        match source.raw_os_error() {
            Some(libc::EADDRINUSE) => Error::Taken { service, address },
            Some(libc::EADDRNOTAVAIL) => Error::NotHere { service, address },
            _ => Error::Listen {
                service,
                address,
                action,
                source,
            },
        }
    }
}

fn listen_tcp(address: SocketAddr, presence: Presence) -> Result<(Opened, SocketAddr), Failed> {
    let socket = unbound(address, Type::STREAM, presence)?;
    // Connections of an earlier process that linger must not keep us from listening. A listener still does.
    socket
        .set_reuse_address(true)
        .map_err(|error| Failed("let the address be used again", error))?;
    socket
        .bind(&address.into())
        .map_err(|error| Failed("bind it", error))?;
    if address.ip().is_loopback() {
        // Accepted connections inherit this, too. Their clients can only be on this machine.
        hurry(&socket);
    }
    start_listening(socket)
}

fn start_listening(socket: Socket) -> Result<(Opened, SocketAddr), Failed> {
    // Accepted connections inherit these, which saves calls for each of them.
    socket
        .set_tcp_nodelay(true)
        .and_then(|()| socket.set_tcp_keepalive(&KEEPALIVE))
        .map_err(|error| Failed("set its options", error))?;
    socket
        .listen(BACKLOG)
        .map_err(|error| Failed("listen", error))?;
    let listener = TcpListener::from(socket);
    let address = listener
        .local_addr()
        .map_err(|error| Failed("read its address", error))?;
    Ok((Opened::Tcp(listener), address))
}

fn listen_udp(
    address: SocketAddr,
    presence: Presence,
    threads: usize,
) -> Result<(Opened, SocketAddr), Failed> {
    let share = |socket: &Socket| {
        socket
            .set_reuse_port(true)
            .map_err(|error| Failed("share its port between threads", error))
    };
    // The first is bound without sharing, so that a port someone else would share with us counts as taken.
    let first = bind_udp(address, presence, |_| Ok(()))?;
    let address = local_address(&first)?;
    share(&first)?;
    let mut sockets = vec![first.into()];
    for _ in 1..threads {
        sockets.push(bind_udp(address, presence, share)?.into());
    }
    Ok((Opened::Udp(sockets), address))
}

fn bind_udp(
    address: SocketAddr,
    presence: Presence,
    prepare: impl FnOnce(&Socket) -> Result<(), Failed>,
) -> Result<Socket, Failed> {
    let socket = unbound(address, Type::DGRAM, presence)?;
    prepare(&socket)?;
    sys::set_receive_room(&socket, RECEIVE_ROOM)
        .map_err(|error| Failed("give it room for datagrams", error))?;
    if address.ip().is_unspecified() {
        // Answers must come from the address that was asked.
        let (level, name) = match address {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_PKTINFO),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
        };
        sys::set_option(&socket, level, name, 1)
            .map_err(|error| Failed("have it tell where datagrams were sent to", error))?;
    }
    socket
        .bind(&address.into())
        .map_err(|error| Failed("bind it", error))?;
    Ok(socket)
}

fn unbound(address: SocketAddr, kind: Type, presence: Presence) -> Result<Socket, Failed> {
    let socket = Socket::new(Domain::for_address(address), kind.nonblocking(), None)
        .and_then(refuse_reserved_descriptor)
        .map_err(|error| Failed("open a socket", error))?;
    if address.is_ipv6() {
        // The other family's service may have the same port.
        socket
            .set_only_v6(true)
            .map_err(|error| Failed("keep it to its family", error))?;
    }
    if presence == Presence::Here {
        return Ok(socket);
    }
    let (level, option) = match address {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_FREEBIND),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_FREEBIND),
    };
    let set = sys::set_option(&socket, level, option, 1);
    set.map_err(|error| Failed("allow an address that is not on this machine", error))?;
    Ok(socket)
}

/// Fails as if the process had no descriptor left when the socket would use a reserved one. The kernel gives out the lowest free number, so
/// the number of a new descriptor is at least the count of those in use.
fn refuse_reserved_descriptor(socket: Socket) -> io::Result<Socket> {
    let limit = privileges::most_open_files()?;
    let usable = limit - RESERVED_DESCRIPTORS.min(limit / 4);
    match u64::try_from(socket.as_raw_fd()) {
        Ok(number) if number < usable => Ok(socket),
        _ => Err(io::Error::from_raw_os_error(libc::EMFILE)),
    }
}

fn local_address(socket: &Socket) -> Result<SocketAddr, Failed> {
    let unknown = || io::Error::from_raw_os_error(libc::EAFNOSUPPORT);
    socket
        .local_addr()
        .and_then(|address| address.as_socket().ok_or_else(unknown))
        .map_err(|error| Failed("read its address", error))
}

/// The ports of a range, all of them, starting anywhere: so that several of us do not all try the same ones first.
fn from_a_random_one(ports: &RangeInclusive<u16>) -> impl Iterator<Item = u16> + use<> {
    let (first, last) = (u64::from(*ports.start()), u64::from(*ports.end()));
    let count = (last + 1).saturating_sub(first);
    // The standard library's source of randomness is the seed of its hash tables.
    let start = RandomState::new().hash_one(0) % count.max(1);
    (0..count).map(move |step| (first + (start + step) % count) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deaf_listener_refuses_though_somebody_has_a_copy() {
        for loopback in ["127.0.0.1:0", "[::1]:0"] {
            let listener = UdpSocket::bind(loopback).unwrap();
            let address = listener.local_addr().unwrap();
            let _copy = listener.try_clone().unwrap();
            let client = UdpSocket::bind(loopback).unwrap();
            client.connect(address).unwrap();
            client
                .set_read_timeout(Some(Duration::from_secs(60)))
                .unwrap();
            client.send(b"heard").unwrap();
            assert_eq!(listener.recv(&mut [0; 8]).unwrap(), 5);
            deafen(&listener);
            drop(listener);
            client.send(b"unheard").unwrap();
            let refusal = client.recv(&mut [0; 8]).unwrap_err();
            assert_eq!(refusal.kind(), io::ErrorKind::ConnectionRefused);
        }
    }

    #[test]
    fn a_range_is_gone_through_once() {
        for range in [30000..=30000, 30000..=30007, 65530..=65535] {
            let mut ports: Vec<u16> = from_a_random_one(&range).collect();
            ports.sort_unstable();
            assert_eq!(ports, range.collect::<Vec<_>>());
        }
        #[expect(clippy::reversed_empty_ranges, reason = "that is the point")]
        let none = 5..=4;
        assert_eq!(from_a_random_one(&none).count(), 0);
    }
}
