//! A small network of its own: a node and one pod, in network namespaces that no other process has and that are gone with their threads.
//!
//! Nothing outside is touched. The namespaces have no names, so there is nothing to tidy up, whatever happens.
#![allow(
    unsafe_code,
    reason = "the standard library does not make namespaces; see the SAFETY comment"
)]

use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd as _;
use std::sync::mpsc;
use std::thread;

use ferrovia_netlink::rtnetlink::{address_header, link_header};
use ferrovia_netlink::uapi::if_addr::{IFA_ADDRESS, IFA_F_NODAD, IFA_LOCAL};
use ferrovia_netlink::uapi::if_link::{
    IFLA_IFNAME, IFLA_INFO_DATA, IFLA_INFO_KIND, IFLA_LINKINFO, IFLA_NET_NS_FD,
};
use ferrovia_netlink::uapi::netlink::NLM_F_CREATE;
use ferrovia_netlink::uapi::rtnetlink::{
    RT_SCOPE_LINK, RT_SCOPE_UNIVERSE, RT_TABLE_MAIN, RTA_GATEWAY, RTA_OIF, RTM_NEWADDR,
    RTM_NEWLINK, RTM_NEWROUTE, RTN_UNICAST, RTPROT_BOOT,
};
use ferrovia_netlink::uapi::veth::VETH_INFO_PEER;
use ferrovia_netlink::{self as netlink, Protocol, Socket, Writer};

/// The loopback device is always the first.
const LOOPBACK: u32 = 1;

/// What the two ends of the link are called.
const NODE_LINK: &str = "pod";
const POD_LINK: &str = "eth0";

/// The addresses of one family: the node's end of the link, the pod's, and the length of the range both are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    pub node: IpAddr,
    pub pod: IpAddr,
    /// How many bits they have in common.
    pub prefix: u8,
}

/// Why there is no such network.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {action}: {cause}")]
    System {
        action: &'static str,
        cause: io::Error,
    },
    /// The kernel refused a part of the network.
    #[error("cannot {action}: {cause}")]
    Netlink {
        action: &'static str,
        cause: netlink::Error,
    },
    /// A thread ended before its time.
    #[error("cannot build a scratch network: the thread of the {0} exited early")]
    Thread(&'static str),
}

impl Error {
    /// It is only that we lack the right.
    pub fn is_denied(&self) -> bool {
        let errno = match self {
            Self::System { cause, .. } => cause.raw_os_error(),
            Self::Netlink { cause, .. } => cause.errno(),
            Self::Thread(_) => None,
        };
        matches!(errno, Some(libc::EPERM | libc::EACCES))
    }
}

/// Builds the network, then runs one function on the node and one in the pod, at the same time and each on a thread of its own. Sockets they
/// open are of the namespace they run in. Returns what both said.
///
/// # Errors
/// If the network cannot be built. Without CAP_SYS_ADMIN it cannot.
pub fn node_and_pod<N: Send, P: Send>(
    addresses: &[Addresses],
    on_node: impl FnOnce() -> N + Send,
    in_pod: impl FnOnce() -> P + Send,
) -> Result<(N, P), Error> {
    let (to_node, from_pod) = mpsc::channel();
    let (to_pod, from_node) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let pod = scope.spawn(move || {
            let namespace = enter_new()?;
            // The receiver is gone if the node has failed, and then the node's error is returned.
            let _ = to_node.send(namespace);
            from_node.recv().map_err(|_| Error::Thread("node"))?;
            set_up_pod(addresses)?;
            Ok(in_pod())
        });
        let node = scope.spawn(move || {
            enter_new()?;
            let pod = from_pod.recv().map_err(|_| Error::Thread("pod"))?;
            set_up_node(&pod, addresses)?;
            let _ = to_pod.send(());
            Ok(on_node())
        });
        let node = node.join().unwrap_or(Err(Error::Thread("node")));
        let pod = pod.join().unwrap_or(Err(Error::Thread("pod")));
        match (node, pod) {
            (Ok(node), Ok(pod)) => Ok((node, pod)),
            // One that only says that the other ended says nothing.
            (Err(Error::Thread(_)), Err(error)) | (Err(error), _) | (_, Err(error)) => Err(error),
        }
    })
}

/// Moves this thread, and no other, into a new network namespace.
fn enter_new() -> Result<File, Error> {
    // SAFETY: takes a flag, no pointers. A network namespace is of the thread, so no other thread is affected.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(system("create a network namespace")(
            io::Error::last_os_error(),
        ));
    }
    File::open("/proc/thread-self/ns/net").map_err(system("open a network namespace"))
}

fn set_up_node(pod: &File, addresses: &[Addresses]) -> Result<(), Error> {
    let mut wiring = Wiring::open()?;
    wiring.link_up(LOOPBACK)?;
    wiring.add_link(pod)?;
    let link = index(NODE_LINK)?;
    wiring.link_up(link)?;
    for one in addresses {
        wiring.add_address(link, one.node, one.prefix)?;
        // A packet needs some way out to be sent at all, even if rules then send it elsewhere.
        wiring.add_default_route(link, family(one.node), None)?;
    }
    // These are the namespace's own; a new one may have them off.
    for setting in [
        "/proc/sys/net/ipv4/ip_forward",
        "/proc/sys/net/ipv6/conf/all/forwarding",
    ] {
        match fs::write(setting, "1") {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                return Err(system("enable forwarding in a network namespace")(cause));
            }
            _ => {}
        }
    }
    Ok(())
}

fn set_up_pod(addresses: &[Addresses]) -> Result<(), Error> {
    let mut wiring = Wiring::open()?;
    wiring.link_up(LOOPBACK)?;
    let link = index(POD_LINK)?;
    wiring.link_up(link)?;
    for one in addresses {
        wiring.add_address(link, one.pod, one.prefix)?;
        wiring.add_default_route(link, family(one.node), Some(one.node))?;
    }
    Ok(())
}

/// The number of an interface of this thread's namespace. Not from `/sys`, which shows the namespace it was mounted in.
fn index(name: &str) -> Result<u32, Error> {
    let name = std::ffi::CString::new(name).unwrap_or_default();
    // SAFETY: the pointer is to a string that ends with a zero and lives until the call is over.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(system("find an interface")(io::Error::last_os_error())),
        index => Ok(index),
    }
}

fn system(action: &'static str) -> impl Fn(io::Error) -> Error {
    move |cause| Error::System { action, cause }
}

/// Puts a namespace's network together.
struct Wiring(Socket);

impl Wiring {
    fn open() -> Result<Self, Error> {
        let action = "open a route netlink socket";
        let socket = Socket::open(Protocol::Route);
        socket
            .map(Self)
            .map_err(|cause| Error::Netlink { action, cause })
    }

    fn link_up(&mut self, number: u32) -> Result<(), Error> {
        self.ask("set an interface up", RTM_NEWLINK, 0, |w| {
            w.raw(&link_header(number, libc::IFF_UP as u32));
        })
    }

    /// A cable whose other end is in the pod.
    fn add_link(&mut self, pod: &File) -> Result<(), Error> {
        let create = NLM_F_CREATE;
        self.ask("connect two namespaces", RTM_NEWLINK, create, |w| {
            w.raw(&link_header(0, 0));
            w.text(IFLA_IFNAME, NODE_LINK);
            w.nested(IFLA_LINKINFO, |w| {
                w.text(IFLA_INFO_KIND, "veth");
                w.nested(IFLA_INFO_DATA, |w| {
                    w.nested(VETH_INFO_PEER, |w| {
                        w.raw(&link_header(0, 0));
                        w.text(IFLA_IFNAME, POD_LINK);
                        w.bytes(IFLA_NET_NS_FD, &pod.as_raw_fd().to_ne_bytes());
                    });
                });
            });
        })
    }

    fn add_address(&mut self, link: u32, ip: IpAddr, prefix: u8) -> Result<(), Error> {
        let octets = octets(ip);
        self.ask(
            "add an address to an interface",
            RTM_NEWADDR,
            NLM_F_CREATE,
            |w| {
                w.raw(&address_header(family(ip), prefix, IFA_F_NODAD, link));
                w.bytes(IFA_LOCAL, &octets);
                w.bytes(IFA_ADDRESS, &octets);
            },
        )
    }

    fn add_default_route(
        &mut self,
        link: u32,
        family: u8,
        gateway: Option<IpAddr>,
    ) -> Result<(), Error> {
        // Without a gateway, every destination counts as being on the link.
        let scope = gateway.map_or(RT_SCOPE_LINK, |_| RT_SCOPE_UNIVERSE);
        self.ask("add a route", RTM_NEWROUTE, NLM_F_CREATE, |w| {
            w.raw(&[
                family,
                0,
                0,
                0,
                RT_TABLE_MAIN,
                RTPROT_BOOT,
                scope,
                RTN_UNICAST,
            ]);
            w.raw(&[0; 4]);
            if let Some(gateway) = gateway {
                w.bytes(RTA_GATEWAY, &octets(gateway));
            }
            w.bytes(RTA_OIF, &link.to_ne_bytes());
        })
    }

    /// Asks for something and waits for the acknowledgement.
    fn ask(
        &mut self,
        action: &'static str,
        kind: u16,
        how: u16,
        body: impl FnOnce(&mut Writer),
    ) -> Result<(), Error> {
        let asked = self.0.request(kind, how, body);
        asked.map_err(|cause| Error::Netlink { action, cause })
    }
}

fn family(ip: IpAddr) -> u8 {
    match ip {
        IpAddr::V4(_) => libc::AF_INET as u8,
        IpAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn node_and_pod_reach_each_other_in_both_families_in_own_namespaces() {
        let before = fs::read_link("/proc/thread-self/ns/net").unwrap();
        let addresses = [
            Addresses {
                node: "198.18.0.1".parse().unwrap(),
                pod: "198.18.0.2".parse().unwrap(),
                prefix: 24,
            },
            Addresses {
                node: "fd00:18::1".parse().unwrap(),
                pod: "fd00:18::2".parse().unwrap(),
                prefix: 64,
            },
        ];
        let (listening, ready) = mpsc::channel();
        let on_node = move || {
            ready.recv().unwrap();
            addresses.map(|one| {
                let mut stream = TcpStream::connect((one.pod, 80)).unwrap();
                let mut said = String::new();
                stream.read_to_string(&mut said).unwrap();
                said
            })
        };
        let in_pod = move || {
            let sockets = addresses.map(|one| TcpListener::bind((one.pod, 80)).unwrap());
            // The link goes when the node ends, which happens after it has received everything.
            let links = crate::survey::links::links().unwrap().len();
            listening.send(()).unwrap();
            for socket in sockets {
                socket.accept().unwrap().0.write_all(b"hello").unwrap();
            }
            links
        };
        let (said, links) = node_and_pod(&addresses, on_node, in_pod).unwrap();
        assert_eq!(said, ["hello", "hello"]);
        // Some kernels put tunnel devices into every namespace.
        assert!(links >= 2);
        assert_eq!(fs::read_link("/proc/thread-self/ns/net").unwrap(), before);
    }
}
