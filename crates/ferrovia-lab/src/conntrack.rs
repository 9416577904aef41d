//! Creates conntrack entries through netlink, as if packets had created them.

pub mod cleanup;

use std::net::{IpAddr, SocketAddr};

use ferrovia_host::netlink::{Error, Header, Protocol, Refusal, Socket, Writer, flags, messages};

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
            let ack = if batch.peek().is_none() {
                flags::ACK
            } else {
                0
            };
            let header = Header {
                kind: 1 << 8,
                flags: flags::REQUEST | flags::CREATE | ack,
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
    const ORIGINAL: u16 = 1;
    const REPLY: u16 = 2;
    const STATUS: u16 = 3;
    const PROTOCOL_INFO: u16 = 4;
    const TIMEOUT: u16 = 7;
    const ZONE: u16 = 18;
    const SEEN_REPLY_ASSURED_CONFIRMED_NAT_DONE: u32 = 0x2 | 0x4 | 0x8 | 0x80 | 0x100;
    const TCP_STATE_ESTABLISHED: u8 = 3;
    let family = if entry.client.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    w.raw(&[family as u8, 0, 0, 0]);
    w.nested(ORIGINAL, |w| {
        write_tuple(w, entry.protocol, entry.client, entry.sent_to);
    });
    w.nested(REPLY, |w| {
        write_tuple(w, entry.protocol, entry.answered_by, entry.client);
    });
    w.be32(STATUS, SEEN_REPLY_ASSURED_CONFIRMED_NAT_DONE);
    w.be32(TIMEOUT, 3600);
    if entry.zone != 0 {
        w.bytes(ZONE, &entry.zone.to_be_bytes());
    }
    match entry.protocol {
        TCP => w.nested(PROTOCOL_INFO, |w| {
            w.nested(1, |w| w.bytes(1, &[TCP_STATE_ESTABLISHED]));
        }),
        SCTP => w.nested(PROTOCOL_INFO, |w| {
            w.nested(3, |w| {
                w.bytes(1, &[TCP_STATE_ESTABLISHED + 1]);
                w.be32(2, 1);
                w.be32(3, 1);
            });
        }),
        _ => {}
    }
}

/// Writes the tuple of one direction of a flow (`CTA_TUPLE_*`).
pub fn write_tuple(w: &mut Writer, protocol: u8, from: SocketAddr, to: SocketAddr) {
    let address = |w: &mut Writer, at: u16, ip: IpAddr| match ip {
        IpAddr::V4(ip) => w.bytes(at, &ip.octets()),
        IpAddr::V6(ip) => w.bytes(at + 2, &ip.octets()),
    };
    w.nested(1, |w| {
        address(w, 1, from.ip());
        address(w, 2, to.ip());
    });
    w.nested(2, |w| {
        w.bytes(1, &[protocol]);
        w.bytes(2, &from.port().to_be_bytes());
        w.bytes(3, &to.port().to_be_bytes());
    });
}
