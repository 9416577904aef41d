//! What answers in the pods: TCP, UDP and SCTP, on every port of a world, from one thread.
//!
//! A socket stays in the namespace it was opened in, whoever reads it. So the sockets are opened
//! by a thread that is inside (see [`crate::World::start`]) and all served by one loop outside.
//!
//! Every answer is one line, `<pod> <local ip>:<port> <peer ip>`: who answered, where the packet
//! went in the end, and which source address the server saw. A TCP connection stays open and
//! echoes every further byte. On HTTP ports the line is the body of the answer to any request.

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
    orders: Sender<Order>,
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

    /// Gives an order and waits until it is carried out.
    fn order(&self, pod: Pod, sockets: Vec<Socket>) -> io::Result<()> {
        let gone = || io::Error::other("the thread of the lab's servers is gone");
        let (done, finished) = mpsc::channel();
        self.orders
            .send(Order::Replace { pod, sockets, done })
            .map_err(|_| gone())?;
        (&self.doorbell).write_all(b"!")?;
        finished.recv().map_err(|_| gone())?
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        // Both fail only when the thread has already ended.
        let _ = self.orders.send(Order::Quit);
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
                kind: Kind::HttpListener(listener(SocketAddr::new(address, *port))?),
            });
        }
        for port in ports {
            let local = SocketAddr::new(address, *port);
            sockets.push(Socket {
                pod,
                kind: Kind::Listener(listener(local)?),
            });
            let datagrams = UdpSocket::bind(local)?;
            datagrams.set_nonblocking(true)?;
            sockets.push(Socket {
                pod,
                kind: Kind::Udp(datagrams),
            });
        }
        // A raw socket would hear what is sent to the node itself, and keep its kernel from refusing it.
        if Pod::HOST_NETWORK.contains(&pod) {
            continue;
        }
        // One raw socket hears all ports of its address.
        let raw = sys::bound_socket(SocketKind::RawSctp, SocketAddr::new(address, 0))?;
        let kind = Kind::Sctp {
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
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Listener(TcpListener),
    Stream(TcpStream),
    HttpListener(TcpListener),
    /// A connection whose request has not come yet.
    HttpStream(TcpStream),
    Udp(UdpSocket),
    /// A raw socket; for the standard library anything that sends and receives datagrams is UDP.
    Sctp {
        socket: UdpSocket,
        address: IpAddr,
        ports: Vec<u16>,
    },
}

impl Kind {
    fn descriptor(&self) -> RawFd {
        match self {
            Self::Listener(socket) | Self::HttpListener(socket) => socket.as_raw_fd(),
            Self::Stream(socket) | Self::HttpStream(socket) => socket.as_raw_fd(),
            Self::Udp(socket) | Self::Sctp { socket, .. } => socket.as_raw_fd(),
        }
    }
}

#[derive(Debug)]
enum Order {
    /// Close what a pod has and serve these instead.
    Replace {
        pod: Pod,
        sockets: Vec<Socket>,
        done: Sender<io::Result<()>>,
    },
    /// End the loop.
    Quit,
}

/// The loop's side.
struct Server {
    poller: Poller,
    bell: UnixStream,
    incoming: Receiver<Order>,
    sockets: HashMap<RawFd, Socket>,
}

/// What is to be done after a socket was served.
enum Next {
    Keep,
    Close,
    Adopt(Kind),
}

impl Server {
    fn run(mut self) {
        // The wait fails only if the poller itself is broken; clients then time out and say so.
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
        // Only empties the bell; which orders there are, the channel knows.
        let _ = self.bell.read(&mut rings);
        while let Ok(order) = self.incoming.try_recv() {
            match order {
                Order::Quit => return std::ops::ControlFlow::Break(()),
                Order::Replace { pod, sockets, done } => {
                    self.sockets.retain(|_, socket| socket.pod != pod);
                    let result = sockets
                        .into_iter()
                        .try_for_each(|socket| self.adopt(socket));
                    // Nobody waits any more if the world is being dropped.
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

    /// Serves one readable socket. Errors of a single peer (a reset, an ICMP message) end at most
    /// its connection: a server of the lab outlives its clients.
    fn serve(&mut self, descriptor: RawFd) {
        // Not there if an order closed it after the wait returned.
        let Some(Socket { pod, kind }) = self.sockets.get(&descriptor) else {
            return;
        };
        let pod = *pod;
        let next = match kind {
            Kind::Listener(listener) => greet(pod, listener),
            Kind::Stream(stream) => echo(stream),
            Kind::HttpListener(listener) => admit(listener),
            Kind::HttpStream(stream) => respond(pod, stream),
            Kind::Udp(socket) => answer_datagram(pod, socket).map(|()| Next::Keep),
            Kind::Sctp {
                socket,
                address,
                ports,
            } => answer_init(pod, socket, *address, ports).map(|()| Next::Keep),
        };
        match next {
            Ok(Next::Close) => drop(self.sockets.remove(&descriptor)),
            // A stream that cannot be watched is closed, which its client will notice.
            Ok(Next::Adopt(kind)) => {
                let _ = self.adopt(Socket { pod, kind });
            }
            Ok(Next::Keep) | Err(_) => {}
        }
    }
}

/// The line every answer consists of.
fn introduction(pod: Pod, local: SocketAddr, peer: IpAddr) -> String {
    format!("{} {local} {peer}\n", pod.name())
}

fn greet(pod: Pod, listener: &TcpListener) -> io::Result<Next> {
    let (mut stream, peer) = listener.accept()?;
    stream.set_nonblocking(true)?;
    stream.write_all(introduction(pod, stream.local_addr()?, peer.ip()).as_bytes())?;
    Ok(Next::Adopt(Kind::Stream(stream)))
}

fn admit(listener: &TcpListener) -> io::Result<Next> {
    let (stream, _) = listener.accept()?;
    stream.set_nonblocking(true)?;
    Ok(Next::Adopt(Kind::HttpStream(stream)))
}

/// Answers whatever was asked. Requests of the lab and of curl fit into the first packet, so its
/// arrival is taken for the whole request.
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
        // A client that does not read its echoes loses them: the lab's own clients always do.
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
    // A raw IPv6 socket takes a port for a protocol number and refuses all but its own and zero.
    socket
        .send_to(&answer.encode(), SocketAddr::new(peer.ip(), 0))
        .map(drop)
}

/// What a raw socket received, from the SCTP header on. Raw IPv4 sockets deliver the IP header
/// too, raw IPv6 sockets do not.
pub(crate) fn sctp_payload(received: &[u8], address: IpAddr) -> &[u8] {
    let header = match (address, received.first()) {
        (IpAddr::V4(_), Some(first)) => usize::from(first & 0x0f) * 4,
        _ => 0,
    };
    received.get(header..).unwrap_or_default()
}
