//! The kernel's table of flows: reading it piece by piece, deleting entries by name.

use std::net::{Ipv4Addr, SocketAddrV4};

use ferrovia_core::family::Family;
use ferrovia_core::model::Protocol;
use ferrovia_netlink::uapi::nfnetlink_conntrack::{
    CTA_FILTER, CTA_FILTER_ORIG_FLAGS, CTA_FILTER_REPLY_FLAGS, CTA_PROTO_NUM,
    CTA_STATS_GLOBAL_ENTRIES, CTA_TUPLE_IP, CTA_TUPLE_ORIG, CTA_TUPLE_PROTO, CTA_TUPLE_REPLY,
    IPCTNL_MSG_CT_DELETE, IPCTNL_MSG_CT_GET, IPCTNL_MSG_CT_GET_STATS,
};
use ferrovia_netlink::{self as netlink, Attrs, Request, Socket, Writer, nfnetlink};

use super::flow::{Flow, FlowKey, TupleEnd};
use super::{Error, failed, message_type};

// Which parts of a tuple `CTA_FILTER` compares. The kernel has these in `nf_internals.h`, which is not a UAPI header.
const CTA_FILTER_F_CTA_IP_SRC: u32 = 1;
const CTA_FILTER_F_CTA_IP_DST: u32 = 1 << 1;
const CTA_FILTER_F_CTA_PROTO_NUM: u32 = 1 << 3;
const CTA_FILTER_F_CTA_PROTO_SRC_PORT: u32 = 1 << 4;
const CTA_FILTER_F_CTA_PROTO_DST_PORT: u32 = 1 << 5;

/// Which flows the kernel is asked for.
///
/// Not by IPv6 address: the kernel (6.18 still) takes equal ones to be different and the other way round, so that a filter with one leaves
/// out matching flows, and a delete with one would delete all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SentTo {
    Anywhere,
    /// Those to a port, whatever the address.
    Port(u16),
    /// Those to an IPv4 address and port.
    V4(SocketAddrV4),
}

#[derive(Debug)]
pub struct FlowReader {
    socket: Socket,
}

impl FlowReader {
    /// Opens a connection in this thread's network namespace.
    ///
    /// # Errors
    /// If this kernel has no netfilter or a system call fails.
    pub fn open() -> Result<Self, Error> {
        let socket = open()?;
        Ok(Self { socket })
    }

    /// How many entries the network namespace has, of all protocols and families. The kernel keeps this number, so it costs nothing to ask.
    ///
    /// # Errors
    /// If the kernel refuses or the netlink socket fails.
    pub fn entries(&mut self) -> Result<usize, Error> {
        let header = |w: &mut Writer| w.raw(&[0; nfnetlink::HEADER_LEN]);
        let count = self
            .socket
            .query(message_type(IPCTNL_MSG_CT_GET_STATS), header, |answer| {
                let attrs = Attrs::of(answer, nfnetlink::HEADER_LEN);
                usize::try_from(attrs.get(CTA_STATS_GLOBAL_ENTRIES)?.be32()?).ok()
            });
        count.map_err(failed("count the tracked flows"))
    }

    /// Shows every UDP flow of a family to `each`, one at a time as the kernel sends them, so that the size of the table costs no memory.
    /// The kernel leaves out flows that are not sent to where `sent_to` says; kernels before 5.8 send all, so `each` still has to check.
    ///
    /// Flows come and go meanwhile. A flow that exists all the time is visited at least once, and twice if the dump is repeated.
    ///
    /// # Errors
    /// If the netlink socket fails.
    pub fn each(
        &mut self,
        family: Family,
        sent_to: SentTo,
        each: impl FnMut(&Flow<'_>),
    ) -> Result<(), Error> {
        self.each_of(Protocol::Udp, family, sent_to, each)
            .map_err(failed("read the UDP flows"))
    }

    /// The same for flows of any protocol, for people who look.
    ///
    /// # Errors
    /// If the netlink socket fails.
    pub fn each_of_protocol(
        &mut self,
        protocol: Protocol,
        family: Family,
        sent_to: SentTo,
        each: impl FnMut(&Flow<'_>),
    ) -> Result<(), Error> {
        self.each_of(protocol, family, sent_to, each)
            .map_err(failed("read the connection tracking table"))
    }

    fn each_of(
        &mut self,
        protocol: Protocol,
        family: Family,
        sent_to: SentTo,
        mut each: impl FnMut(&Flow<'_>),
    ) -> Result<(), netlink::Error> {
        self.socket.dump(
            message_type(IPCTNL_MSG_CT_GET),
            |w| write_filter(w, family, Half::to(sent_to, protocol), None),
            |(): &mut (), message| {
                if let Some(flow) = Flow::read(message, family, protocol) {
                    each(&flow);
                }
            },
        )
    }
}

#[derive(Debug)]
pub struct FlowDeleter {
    socket: Socket,
}

impl FlowDeleter {
    /// Opens a connection in this thread's network namespace.
    ///
    /// # Errors
    /// If this kernel has no netfilter or a system call fails.
    pub fn open() -> Result<Self, Error> {
        let socket = open()?;
        Ok(Self { socket })
    }

    /// Deletes flows, all in one go. Returns how many there were: some may have ended meanwhile.
    ///
    /// # Errors
    /// If the kernel refuses for another reason than that a flow is gone, or the netlink socket fails.
    pub fn delete<'k>(
        &mut self,
        family: Family,
        keys: impl Iterator<Item = &'k FlowKey>,
    ) -> Result<usize, Error> {
        let requests: Vec<_> = keys.map(|key| Delete { family, key }).collect();
        let failed = failed("delete UDP flows");
        let mut refused = self.socket.pipeline(&requests).map_err(&failed)?;
        let deleted = requests.len().saturating_sub(refused.len());
        refused.retain(|(_, refusal)| refusal.errno != libc::ENOENT);
        match refused.into_iter().next() {
            Some((_, refusal)) => Err(failed(netlink::Error::Refused(refusal))),
            None => Ok(deleted),
        }
    }

    /// Lets the kernel find the UDP flows that were sent to one address and are answered by another, and delete them. Returns false if it
    /// cannot, as older kernels.
    ///
    /// There is no such thing for IPv6, for the reason given at [`SentTo`].
    ///
    /// # Errors
    /// If the kernel refuses for another reason, or the netlink socket fails.
    pub fn delete_between(
        &mut self,
        sent_to: SocketAddrV4,
        answered_by: SocketAddrV4,
    ) -> Result<bool, Error> {
        // Kernels that do not know filters want whole directions, and refuse these.
        let asked = self
            .socket
            .request(message_type(IPCTNL_MSG_CT_DELETE), 0, |w| {
                let to = Half::new(TupleEnd::Destination, sent_to);
                let from = Half::new(TupleEnd::Source, answered_by);
                write_filter(w, Family::V4, to, Some(from));
            });
        let Err(error) = asked else { return Ok(true) };
        match error.errno() {
            // That there are none is as good as that they are gone.
            Some(libc::ENOENT) => Ok(true),
            Some(libc::EINVAL | libc::EOPNOTSUPP) => Ok(false),
            _ => Err(failed("delete UDP flows to an endpoint")(error)),
        }
    }
}

/// One flow that is to go.
struct Delete<'k> {
    family: Family,
    key: &'k FlowKey,
}

impl Request for Delete<'_> {
    fn kind(&self) -> u16 {
        message_type(IPCTNL_MSG_CT_DELETE)
    }

    fn flags(&self) -> u16 {
        0
    }

    fn write(&self, w: &mut Writer) {
        w.raw(&family_header(self.family));
        self.key.write(w);
    }
}

fn open() -> Result<Socket, Error> {
    Socket::open(netlink::Protocol::Netfilter)
        .map_err(failed("open a netlink socket for connection tracking"))
}

fn family_header(family: Family) -> [u8; nfnetlink::HEADER_LEN] {
    let family = match family {
        Family::V4 => libc::AF_INET,
        Family::V6 => libc::AF_INET6,
    };
    nfnetlink::header(family as u8)
}

/// Which flows are meant: those of a protocol whose original direction, and if given whose replies, look like this.
fn write_filter(w: &mut Writer, family: Family, original: Half, reply: Option<Half>) {
    w.raw(&family_header(family));
    w.nested(CTA_TUPLE_ORIG, |w| original.write(w));
    if let Some(reply) = reply {
        w.nested(CTA_TUPLE_REPLY, |w| reply.write(w));
    }
    w.nested(CTA_FILTER, |w| {
        w.bytes(CTA_FILTER_ORIG_FLAGS, &original.compared().to_ne_bytes());
        if let Some(reply) = reply {
            w.bytes(CTA_FILTER_REPLY_FLAGS, &reply.compared().to_ne_bytes());
        }
    });
}

/// One end of a direction, as far as it is known.
#[derive(Clone, Copy, Debug)]
struct Half {
    protocol: Protocol,
    end: TupleEnd,
    address: Option<Ipv4Addr>,
    port: Option<u16>,
}

impl Half {
    fn to(sent_to: SentTo, protocol: Protocol) -> Self {
        let (address, port) = match sent_to {
            SentTo::Anywhere => (None, None),
            SentTo::Port(port) => (None, Some(port)),
            SentTo::V4(place) => (Some(*place.ip()), Some(place.port())),
        };
        Self {
            protocol,
            end: TupleEnd::Destination,
            address,
            port,
        }
    }

    /// An end of a UDP direction.
    fn new(end: TupleEnd, place: SocketAddrV4) -> Self {
        Self {
            protocol: Protocol::Udp,
            end,
            address: Some(*place.ip()),
            port: Some(place.port()),
        }
    }

    /// What the kernel is to compare: the protocol always, so that a filter is never empty.
    fn compared(self) -> u32 {
        let (address, port) = match self.end {
            TupleEnd::Source => (CTA_FILTER_F_CTA_IP_SRC, CTA_FILTER_F_CTA_PROTO_SRC_PORT),
            TupleEnd::Destination => (CTA_FILTER_F_CTA_IP_DST, CTA_FILTER_F_CTA_PROTO_DST_PORT),
        };
        CTA_FILTER_F_CTA_PROTO_NUM
            | self.address.map_or(0, |_| address)
            | self.port.map_or(0, |_| port)
    }

    fn write(self, w: &mut Writer) {
        w.nested(CTA_TUPLE_IP, |w| {
            if let Some(address) = self.address {
                w.bytes(self.end.address(Family::V4), &address.octets());
            }
        });
        w.nested(CTA_TUPLE_PROTO, |w| {
            w.bytes(CTA_PROTO_NUM, &[self.protocol.number()]);
            if let Some(port) = self.port {
                w.bytes(self.end.port(), &port.to_be_bytes());
            }
        });
    }
}
