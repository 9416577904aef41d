//! Flows of nobody, which take the room in the connection tracking table that others need. How many there may be is the machine's setting, but
//! each network namespace may have that many.

use std::net::Ipv4Addr;

use anyhow::Context;
use ferrovia_lab::{Role, World};
use ferrovia_netlink::uapi::netlink::{NLM_F_ACK, NLM_F_CREATE, NLM_F_REQUEST};
use ferrovia_netlink::uapi::nf_conntrack_common::{IPS_ASSURED, IPS_CONFIRMED, IPS_SEEN_REPLY};
use ferrovia_netlink::uapi::nf_conntrack_tcp::TCP_CONNTRACK_ESTABLISHED;
use ferrovia_netlink::uapi::nfnetlink::NFNL_SUBSYS_CTNETLINK;
use ferrovia_netlink::uapi::nfnetlink_conntrack::{
    CTA_IP_V4_DST, CTA_IP_V4_SRC, CTA_MARK, CTA_MARK_MASK, CTA_PROTO_DST_PORT, CTA_PROTO_NUM,
    CTA_PROTO_SRC_PORT, CTA_PROTOINFO, CTA_PROTOINFO_TCP, CTA_PROTOINFO_TCP_STATE, CTA_STATUS,
    CTA_TIMEOUT, CTA_TUPLE_IP, CTA_TUPLE_ORIG, CTA_TUPLE_PROTO, CTA_TUPLE_REPLY,
    IPCTNL_MSG_CT_DELETE, IPCTNL_MSG_CT_NEW,
};
use ferrovia_netlink::{Error, Header, Protocol, Refusal, Socket, Writer, messages, nfnetlink};

/// How many come at once: while there is room, and when there may be some.
const MANY: u32 = 500;
const FEW: u32 = 20;
/// The mark that distinguishes them from others.
const MARK: u32 = 0x736f_616b;
/// An unused address.
const SERVER: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 127, 255, 1), 9);
const NEW: u16 = nfnetlink::message_type(NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_NEW);
const DELETE: u16 = nfnetlink::message_type(NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_DELETE);

/// All filler flows in a world's node.
pub(crate) struct Crowd {
    socket: Socket,
    /// The number of the next one.
    next: u32,
    /// How many have come so far.
    count: u32,
}

impl Crowd {
    pub(crate) fn new(world: &World) -> anyhow::Result<Self> {
        let _inside = world.enter(Role::Node)?;
        let socket = Socket::open(Protocol::Netfilter).context("cannot talk to conntrack")?;
        Ok(Self {
            socket,
            next: 0,
            count: 0,
        })
    }

    /// Lets them come until there is no room.
    pub(crate) fn fill(&mut self) -> anyhow::Result<()> {
        while self.add(MANY)? {}
        Ok(())
    }

    /// Takes the room that others left, if they left any.
    pub(crate) fn keep_full(&mut self) -> anyhow::Result<()> {
        while self.add(FEW)? {}
        Ok(())
    }

    /// Whether there was room for so many.
    fn add(&mut self, count: u32) -> anyhow::Result<bool> {
        let mut writer = Writer::with_capacity(count as usize * 256);
        let first = self.socket.next_seq();
        for number in 0..count {
            let header = Header {
                kind: NEW,
                flags: NLM_F_REQUEST | NLM_F_CREATE | NLM_F_ACK,
                seq: first.wrapping_add(number),
            };
            writer.message(header, |w| write(w, self.next + number));
        }
        self.next += count;
        self.socket.skip_seqs(count);
        self.socket.send(&writer.finish()?)?;
        let mut refused = 0;
        for _ in 0..count {
            let had_room = answer(&mut self.socket).context("cannot fill the table")?;
            refused += u32::from(!had_room);
        }
        self.count += count - refused;
        Ok(refused == 0)
    }

    /// Takes all of them out. Answers with how many there were.
    pub(crate) fn leave(mut self) -> anyhow::Result<u32> {
        let header = Header {
            kind: DELETE,
            flags: NLM_F_REQUEST | NLM_F_ACK,
            seq: self.socket.next_seq(),
        };
        self.socket.skip_seqs(1);
        let mut writer = Writer::with_capacity(64);
        writer.message(header, |w| {
            w.raw(&nfnetlink::header(libc::AF_UNSPEC as u8));
            w.be32(CTA_MARK, MARK);
            w.be32(CTA_MARK_MASK, u32::MAX);
        });
        self.socket.send(&writer.finish()?)?;
        answer(&mut self.socket)?;
        Ok(self.count)
    }
}

/// The answer to one request: whether there was room.
fn answer(socket: &mut Socket) -> Result<bool, Error> {
    loop {
        match messages(socket.receive()?).find_map(|message| Refusal::read(&message)) {
            Some(Ok(())) => return Ok(true),
            Some(Err(refusal)) if refusal.errno == libc::ENOMEM => return Ok(false),
            Some(Err(refusal)) => return Err(Error::Refused(refusal)),
            None => {}
        }
    }
}

/// The flow with a number: a connection that stands, so that the kernel does not throw it out for others.
fn write(w: &mut Writer, number: u32) {
    let ports = 50_000;
    let client = (
        Ipv4Addr::from(0x0a7f_0000 + number / ports),
        1000 + (number % ports) as u16,
    );
    w.raw(&nfnetlink::header(libc::AF_INET as u8));
    w.nested(CTA_TUPLE_ORIG, |w| direction(w, client, SERVER));
    w.nested(CTA_TUPLE_REPLY, |w| direction(w, SERVER, client));
    w.be32(CTA_STATUS, IPS_SEEN_REPLY | IPS_ASSURED | IPS_CONFIRMED);
    w.be32(CTA_TIMEOUT, 3600);
    w.be32(CTA_MARK, MARK);
    w.nested(CTA_PROTOINFO, |w| {
        w.nested(CTA_PROTOINFO_TCP, |w| {
            w.bytes(CTA_PROTOINFO_TCP_STATE, &[TCP_CONNTRACK_ESTABLISHED]);
        });
    });
}

fn direction(w: &mut Writer, from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) {
    const TCP: u8 = 6;
    w.nested(CTA_TUPLE_IP, |w| {
        w.bytes(CTA_IP_V4_SRC, &from.0.octets());
        w.bytes(CTA_IP_V4_DST, &to.0.octets());
    });
    w.nested(CTA_TUPLE_PROTO, |w| {
        w.bytes(CTA_PROTO_NUM, &[TCP]);
        w.bytes(CTA_PROTO_SRC_PORT, &from.1.to_be_bytes());
        w.bytes(CTA_PROTO_DST_PORT, &to.1.to_be_bytes());
    });
}
