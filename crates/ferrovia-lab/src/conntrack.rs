//! Creates conntrack entries through netlink, as if packets had created them.

pub mod cleanup;

use std::net::{IpAddr, SocketAddr};

use ferrovia_netlink::uapi::netlink::{NLM_F_ACK, NLM_F_CREATE, NLM_F_REQUEST};
use ferrovia_netlink::uapi::nf_conntrack_common::{
    IPS_ASSURED, IPS_CONFIRMED, IPS_DST_NAT_DONE, IPS_SEEN_REPLY, IPS_SRC_NAT_DONE,
};
use ferrovia_netlink::uapi::nf_conntrack_sctp::SCTP_CONNTRACK_ESTABLISHED;
use ferrovia_netlink::uapi::nf_conntrack_tcp::TCP_CONNTRACK_ESTABLISHED;
use ferrovia_netlink::uapi::nfnetlink::NFNL_SUBSYS_CTNETLINK;
use ferrovia_netlink::uapi::nfnetlink_conntrack::{
    CTA_IP_V4_DST, CTA_IP_V4_SRC, CTA_IP_V6_DST, CTA_IP_V6_SRC, CTA_PROTO_DST_PORT, CTA_PROTO_NUM,
    CTA_PROTO_SRC_PORT, CTA_PROTOINFO, CTA_PROTOINFO_SCTP, CTA_PROTOINFO_SCTP_STATE,
    CTA_PROTOINFO_SCTP_VTAG_ORIGINAL, CTA_PROTOINFO_SCTP_VTAG_REPLY, CTA_PROTOINFO_TCP,
    CTA_PROTOINFO_TCP_STATE, CTA_STATUS, CTA_TIMEOUT, CTA_TUPLE_IP, CTA_TUPLE_ORIG,
    CTA_TUPLE_PROTO, CTA_TUPLE_REPLY, CTA_ZONE, IPCTNL_MSG_CT_NEW,
};
use ferrovia_netlink::{Error, Header, Protocol, Refusal, Socket, Writer, messages, nfnetlink};

/// `IPPROTO_TCP`
pub const TCP: u8 = 6;
/// `IPPROTO_UDP`
pub const UDP: u8 = 17;
/// `IPPROTO_SCTP`
pub const SCTP: u8 = 132;

/// A flow to create in the kernel's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConntrackEntry {
    /// The IP protocol number.
    pub protocol: u8,
    /// The source of the original direction.
    pub client: SocketAddr,
    /// The destination of the original direction.
    pub sent_to: SocketAddr,
    /// The source of the reply direction.
    pub answered_by: SocketAddr,
    /// The conntrack zone (`CTA_ZONE`); flows of different zones may be equal.
    pub zone: u16,
}

impl ConntrackEntry {
    /// A UDP flow in the default zone.
    pub fn udp(client: SocketAddr, sent_to: SocketAddr, answered_by: SocketAddr) -> Self {
        Self {
            protocol: UDP,
            client,
            sent_to,
            answered_by,
            zone: 0,
        }
    }
}

/// How many entries are sent in one message.
const BATCH: usize = 500;

/// Creates entries in the network namespace of this thread.
pub fn create(entries: impl Iterator<Item = ConntrackEntry>) -> Result<(), Error> {
    let mut socket = Socket::open(Protocol::Netfilter)?;
    let mut entries = entries.peekable();
    while entries.peek().is_some() {
        let mut writer = Writer::with_capacity(BATCH * 256);
        let mut seq = socket.next_seq();
        let mut batch = entries.by_ref().take(BATCH).peekable();
        while let Some(entry) = batch.next() {
            let ack = if batch.peek().is_none() { NLM_F_ACK } else { 0 };
            let header = Header {
                kind: nfnetlink::message_type(NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_NEW),
                flags: NLM_F_REQUEST | NLM_F_CREATE | ack,
                seq,
            };
            writer.message(header, |w| write(w, &entry));
            seq = seq.wrapping_add(1);
        }
        socket.skip_seqs(seq.wrapping_sub(socket.next_seq()));
        socket.send(&writer.finish()?)?;
        wait_for_ack(&mut socket, seq.wrapping_sub(1))?;
    }
    Ok(())
}

fn wait_for_ack(socket: &mut Socket, last: u32) -> Result<(), Error> {
    loop {
        for message in messages(socket.receive()?) {
            if let Some(Err(refusal)) = Refusal::read(&message) {
                return Err(Error::Refused(refusal));
            }
            if message.seq == last {
                return Ok(());
            }
        }
    }
}

fn write(w: &mut Writer, entry: &ConntrackEntry) {
    // Answered and confirmed, with all translation decided.
    const STATUS: u32 =
        IPS_SEEN_REPLY | IPS_ASSURED | IPS_CONFIRMED | IPS_SRC_NAT_DONE | IPS_DST_NAT_DONE;
    let family = if entry.client.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    w.raw(&nfnetlink::header(family as u8));
    w.nested(CTA_TUPLE_ORIG, |w| {
        write_tuple(w, entry.protocol, entry.client, entry.sent_to);
    });
    w.nested(CTA_TUPLE_REPLY, |w| {
        write_tuple(w, entry.protocol, entry.answered_by, entry.client);
    });
    w.be32(CTA_STATUS, STATUS);
    w.be32(CTA_TIMEOUT, 3600);
    if entry.zone != 0 {
        w.bytes(CTA_ZONE, &entry.zone.to_be_bytes());
    }
    match entry.protocol {
        TCP => w.nested(CTA_PROTOINFO, |w| {
            w.nested(CTA_PROTOINFO_TCP, |w| {
                w.bytes(CTA_PROTOINFO_TCP_STATE, &[TCP_CONNTRACK_ESTABLISHED]);
            });
        }),
        SCTP => w.nested(CTA_PROTOINFO, |w| {
            w.nested(CTA_PROTOINFO_SCTP, |w| {
                w.bytes(CTA_PROTOINFO_SCTP_STATE, &[SCTP_CONNTRACK_ESTABLISHED]);
                w.be32(CTA_PROTOINFO_SCTP_VTAG_ORIGINAL, 1);
                w.be32(CTA_PROTOINFO_SCTP_VTAG_REPLY, 1);
            });
        }),
        _ => {}
    }
}

/// Writes one direction of a flow.
pub fn write_tuple(w: &mut Writer, protocol: u8, from: SocketAddr, to: SocketAddr) {
    let address = |w: &mut Writer, v4: u16, v6: u16, ip: IpAddr| match ip {
        IpAddr::V4(ip) => w.bytes(v4, &ip.octets()),
        IpAddr::V6(ip) => w.bytes(v6, &ip.octets()),
    };
    w.nested(CTA_TUPLE_IP, |w| {
        address(w, CTA_IP_V4_SRC, CTA_IP_V6_SRC, from.ip());
        address(w, CTA_IP_V4_DST, CTA_IP_V6_DST, to.ip());
    });
    w.nested(CTA_TUPLE_PROTO, |w| {
        w.bytes(CTA_PROTO_NUM, &[protocol]);
        w.bytes(CTA_PROTO_SRC_PORT, &from.port().to_be_bytes());
        w.bytes(CTA_PROTO_DST_PORT, &to.port().to_be_bytes());
    });
}
