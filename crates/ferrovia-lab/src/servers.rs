//! The servers of the pods: TCP, UDP and SCTP, on every port of a world, in one thread.
//!
//! A socket stays in the namespace in which it was opened. So a thread inside opens the sockets
//! (see [`crate::World::start`]), and one loop outside serves all of them.
//!
//! Every answer is one line, `<pod> <local ip>:<port> <peer ip>`: the pod, the destination after
//! translation, and the source address that the server saw. A TCP connection stays open and
//! echoes every further byte. On HTTP ports the line is the body of the response to any request.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use crate::layout::Pod;
use crate::sctp::{Chunk, Packet};
use crate::sys::{self, Poller, SocketKind};

/// The running loop. Dropping it ends the loop and closes all sockets.
#[derive(Debug)]
pub(crate) struct Servers {
    orders: Sender<ServerCommand>,
    doorbell: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Servers {
    /// Starts the loop, with nothing to serve yet.
    pub(crate) fn new() -> io::Result<Self> {
        let (doorbell, bell) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        let (orders, incoming) = mpsc::channel();
        let poller = Poller::new()?;
        poller.add(bell.as_raw_fd())?;
        let server = Server {
            poller,
            bell,
            incoming,
            sockets: HashMap::new(),
        };
        let thread = std::thread::Builder::new()
            .name("lab-servers".into())
            .spawn(|| server.run())?;
        Ok(Self {
            orders,
            doorbell,
            thread: Some(thread),
        })
    }

    /// Serves a pod on sockets opened for it; whatever served it before is closed.
    pub(crate) fn serve(&self, pod: Pod, sockets: Vec<Socket>) -> io::Result<()> {
        self.order(pod, sockets)
    }

    /// Closes all sockets of a pod.
    pub(crate) fn stop(&self, pod: Pod) -> io::Result<()> {
        self.order(pod, vec![])
    }

    /// Sends a command and waits until it is done.
    fn order(&self, pod: Pod, sockets: Vec<Socket>) -> io::Result<()> {
        let gone = || io::Error::other("the thread of the lab's servers has exited");
        let (done, finished) = mpsc::channel();
        self.orders
            .send(ServerCommand::Replace { pod, sockets, done })
            .map_err(|_| gone())?;
        (&self.doorbell).write_all(b"!")?;
        finished.recv().map_err(|_| gone())?
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        // Both fail only when the thread has already ended.
        let _ = self.orders.send(ServerCommand::Quit);
        let _ = (&self.doorbell).write_all(b"!");
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Opens a pod's sockets: every port, protocol and family. The thread must be in its namespace.
pub(crate) fn listen(pod: Pod, ports: &[u16], http_ports: &[u16]) -> io::Result<Vec<Socket>> {
    let mut sockets = vec![];
    for address in [IpAddr::V4(pod.v4()), IpAddr::V6(pod.v6())] {
        for port in http_ports {
            sockets.push(Socket {
                pod,
                kind: ServerKind::HttpListener(listener(SocketAddr::new(address, *port))?),
            });
        }
        for port in ports {
            let local = SocketAddr::new(address, *port);
            sockets.push(Socket {
                pod,
                kind: ServerKind::Listener(listener(local)?),
            });
            let datagrams = UdpSocket::bind(local)?;
            datagrams.set_nonblocking(true)?;
            sockets.push(Socket {
                pod,
                kind: ServerKind::Udp(datagrams),
            });
        }
        // A raw socket would receive packets to the node itself, which its kernel would then not reject.
        if Pod::HOST_NETWORK.contains(&pod) {
            continue;
        }
        // One raw socket receives packets to all ports of its address.
        let raw = sys::bound_socket(SocketKind::RawSctp, SocketAddr::new(address, 0))?;
        let kind = ServerKind::Sctp {
            socket: raw.into(),
            address,
            ports: ports.to_vec(),
        };
        sockets.push(Socket { pod, kind });
    }
    Ok(sockets)
}

fn listener(local: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(local)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// A socket that belongs to a pod.
#[derive(Debug)]
pub(crate) struct Socket {
    pod: Pod,
    kind: ServerKind,
}

#[derive(Debug)]
enum ServerKind {
    Listener(TcpListener),
    Stream(TcpStream),
    HttpListener(TcpListener),
    /// A connection whose request has not arrived yet.
    HttpStream(TcpStream),
    Udp(UdpSocket),
    /// A raw socket, in the standard library's type for datagram sockets.
    Sctp {
        socket: UdpSocket,
        address: IpAddr,
        ports: Vec<u16>,
    },
}

impl ServerKind {
    fn descriptor(&self) -> RawFd {
        match self {
            Self::Listener(socket) | Self::HttpListener(socket) => socket.as_raw_fd(),
            Self::Stream(socket) | Self::HttpStream(socket) => socket.as_raw_fd(),
            Self::Udp(socket) | Self::Sctp { socket, .. } => socket.as_raw_fd(),
        }
    }
}

#[derive(Debug)]
enum ServerCommand {
    /// Replace the sockets of a pod.
    Replace {
        pod: Pod,
        sockets: Vec<Socket>,
        done: Sender<io::Result<()>>,
    },
    Quit,
}

/// The loop's side.
struct Server {
    poller: Poller,
    bell: UnixStream,
    incoming: Receiver<ServerCommand>,
    sockets: HashMap<RawFd, Socket>,
}

/// What is to be done after a socket was served.
enum Next {
    Keep,
    Close,
    Adopt(ServerKind),
}

impl Server {
    fn run(mut self) {
        // The wait fails only if the poller itself is broken; clients then time out.
        while let Ok(ready) = self.poller.wait() {
            for descriptor in ready {
                if descriptor == self.bell.as_raw_fd() {
                    if self.take_orders().is_break() {
                        return;
                    }
                } else {
                    self.serve(descriptor);
                }
            }
        }
    }

    fn take_orders(&mut self) -> std::ops::ControlFlow<()> {
        let mut rings = [0; 64];
        // Only clears the wake-up; the commands are in the channel.
        let _ = self.bell.read(&mut rings);
        while let Ok(order) = self.incoming.try_recv() {
            match order {
                ServerCommand::Quit => return std::ops::ControlFlow::Break(()),
                ServerCommand::Replace { pod, sockets, done } => {
                    self.sockets.retain(|_, socket| socket.pod != pod);
                    let result = sockets
                        .into_iter()
                        .try_for_each(|socket| self.adopt(socket));
                    // The sender does not wait if the world is being dropped.
                    let _ = done.send(result);
                }
            }
        }
        std::ops::ControlFlow::Continue(())
    }

    fn adopt(&mut self, socket: Socket) -> io::Result<()> {
        let descriptor = socket.kind.descriptor();
        self.poller.add(descriptor)?;
        self.sockets.insert(descriptor, socket);
        Ok(())
    }

    /// Serves one readable socket. Errors of a single peer (a reset, an ICMP message) close at most
    /// its connection.
    fn serve(&mut self, descriptor: RawFd) {
        // Missing if a command closed it after the wait returned.
        let Some(Socket { pod, kind }) = self.sockets.get(&descriptor) else {
            return;
        };
        let pod = *pod;
        let next = match kind {
            ServerKind::Listener(listener) => greet(pod, listener),
            ServerKind::Stream(stream) => echo(stream),
            ServerKind::HttpListener(listener) => admit(listener),
            ServerKind::HttpStream(stream) => respond(pod, stream),
            ServerKind::Udp(socket) => answer_datagram(pod, socket).map(|()| Next::Keep),
            ServerKind::Sctp {
                socket,
                address,
                ports,
            } => answer_init(pod, socket, *address, ports).map(|()| Next::Keep),
        };
        match next {
            Ok(Next::Close) => drop(self.sockets.remove(&descriptor)),
            // A stream that cannot be polled is closed, which its client notices.
            Ok(Next::Adopt(kind)) => {
                let _ = self.adopt(Socket { pod, kind });
            }
            Ok(Next::Keep) | Err(_) => {}
        }
    }
}

/// The line of an answer.
fn introduction(pod: Pod, local: SocketAddr, peer: IpAddr) -> String {
    format!("{} {local} {peer}\n", pod.name())
}

fn greet(pod: Pod, listener: &TcpListener) -> io::Result<Next> {
    let (mut stream, peer) = listener.accept()?;
    stream.set_nonblocking(true)?;
    stream.write_all(introduction(pod, stream.local_addr()?, peer.ip()).as_bytes())?;
    Ok(Next::Adopt(ServerKind::Stream(stream)))
}

fn admit(listener: &TcpListener) -> io::Result<Next> {
    let (stream, _) = listener.accept()?;
    stream.set_nonblocking(true)?;
    Ok(Next::Adopt(ServerKind::HttpStream(stream)))
}

/// Responds to any request. Requests of the lab and of curl fit into the first packet, which is taken
/// for the whole request.
fn respond(pod: Pod, mut stream: &TcpStream) -> io::Result<Next> {
    match stream.read(&mut [0; 4096]) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Next::Keep),
        Ok(0) | Err(_) => return Ok(Next::Close),
        Ok(_) => {}
    }
    // The peer may have reset the connection meanwhile; it is closed either way.
    if let (Ok(local), Ok(peer)) = (stream.local_addr(), stream.peer_addr()) {
        let line = introduction(pod, local, peer.ip());
        let length = line.len();
        let response = format!(
            "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{line}"
        );
        let _ = stream.write_all(response.as_bytes());
    }
    Ok(Next::Close)
}

fn echo(mut stream: &TcpStream) -> io::Result<Next> {
    let mut buffer = [0; 4096];
    match stream.read(&mut buffer) {
        Ok(0) => Ok(Next::Close),
        // A client that does not read its echoes loses them; the lab's clients always read.
        Ok(length) => match stream.write_all(buffer.get(..length).unwrap_or_default()) {
            Ok(()) => Ok(Next::Keep),
            Err(_) => Ok(Next::Close),
        },
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Next::Keep),
        Err(_) => Ok(Next::Close),
    }
}

fn answer_datagram(pod: Pod, socket: &UdpSocket) -> io::Result<()> {
    let (_, peer) = socket.recv_from(&mut [0; 1500])?;
    let line = introduction(pod, socket.local_addr()?, peer.ip());
    socket.send_to(line.as_bytes(), peer).map(drop)
}

fn answer_init(pod: Pod, socket: &UdpSocket, address: IpAddr, ports: &[u16]) -> io::Result<()> {
    let mut buffer = [0; 1500];
    let (length, peer) = socket.recv_from(&mut buffer)?;
    let received = buffer.get(..length).unwrap_or_default();
    let Some(Packet {
        source_port,
        destination_port,
        chunk: Chunk::Init { tag },
    }) = Packet::decode(sctp_payload(received, address))
    else {
        return Ok(());
    };
    if !ports.contains(&destination_port) {
        return Ok(());
    }
    let local = SocketAddr::new(address, destination_port);
    let text = introduction(pod, local, peer.ip()).into_bytes();
    let answer = Packet {
        source_port: destination_port,
        destination_port: source_port,
        chunk: Chunk::InitAck { tag, text },
    };
    // A raw IPv6 socket interprets a port as a protocol number and accepts only its own and zero.
    socket
        .send_to(&answer.encode(), SocketAddr::new(peer.ip(), 0))
        .map(drop)
}

/// A received packet, beginning with the SCTP header. Raw IPv4 sockets deliver the IP header
/// too, raw IPv6 sockets do not.
pub(crate) fn sctp_payload(received: &[u8], address: IpAddr) -> &[u8] {
    let header = match (address, received.first()) {
        (IpAddr::V4(_), Some(first)) => usize::from(first & 0x0f) * 4,
        _ => 0,
    };
    received.get(header..).unwrap_or_default()
}
