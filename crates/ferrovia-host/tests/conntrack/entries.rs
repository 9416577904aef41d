//! Writes flows into the kernel's table as if packets had made them.

use std::net::{IpAddr, SocketAddr};

use ferrovia_host::netlink::{Error, Header, Protocol, Refusal, Socket, Writer, flags, messages};

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const SCTP: u8 = 132;

/// A flow as the kernel shall have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The IP protocol.
    pub(crate) protocol: u8,
    /// Who sends.
    pub(crate) client: SocketAddr,
    /// Where to.
    pub(crate) sent_to: SocketAddr,
    /// Who answers.
    pub(crate) answered_by: SocketAddr,
    /// The zone it is tracked in: several may track the same packets apart.
    pub(crate) zone: u16,
}

impl Entry {
    /// A UDP flow in the zone everybody uses.
    pub(crate) fn udp(client: SocketAddr, sent_to: SocketAddr, answered_by: SocketAddr) -> Self {
        Self {
            protocol: UDP,
            client,
            sent_to,
            answered_by,
            zone: 0,
        }
    }
}

/// How many are sent at once.
const BATCH: usize = 500;

/// Puts flows into the table of this thread's namespace.
pub(crate) fn create(entries: impl Iterator<Item = Entry>) -> Result<(), Error> {
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
        acknowledged(&mut socket, seq.wrapping_sub(1))?;
    }
    Ok(())
}

fn acknowledged(socket: &mut Socket, last: u32) -> Result<(), Error> {
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

fn write(w: &mut Writer, entry: &Entry) {
    const ORIGINAL: u16 = 1;
    const REPLY: u16 = 2;
    const STATUS: u16 = 3;
    const PROTOCOL_INFO: u16 = 4;
    const TIMEOUT: u16 = 7;
    const ZONE: u16 = 18;
    // Answered and confirmed, with all translation decided.
    const SEEN_REPLY_ASSURED_CONFIRMED_NAT_DONE: u32 = 0x2 | 0x4 | 0x8 | 0x80 | 0x100;
    const TCP_STATE_ESTABLISHED: u8 = 3;
    let family = if entry.client.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    w.raw(&[family as u8, 0, 0, 0]);
    w.nested(ORIGINAL, |w| {
        direction(w, entry.protocol, entry.client, entry.sent_to);
    });
    w.nested(REPLY, |w| {
        direction(w, entry.protocol, entry.answered_by, entry.client);
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

/// Writes one direction of a flow.
pub(crate) fn direction(w: &mut Writer, protocol: u8, from: SocketAddr, to: SocketAddr) {
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
