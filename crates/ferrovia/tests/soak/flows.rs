//! Flows of nobody, which take the room in the connection tracking table that others need. How many there may be is the machine's setting, but
//! each network namespace may have that many.

use std::net::Ipv4Addr;

use anyhow::Context;
use ferrovia_host::netlink::{Error, Header, Protocol, Refusal, Socket, Writer, flags, messages};
use ferrovia_lab::{Role, World};

/// How many come at once: while there is room, and when there may be some.
const MANY: u32 = 500;
const FEW: u32 = 20;
/// The mark that distinguishes them from others.
const MARK: u32 = 0x736f_616b;
/// An unused address.
const SERVER: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 127, 255, 1), 9);
/// The subsystem of connection tracking, and what it is asked to do.
const NEW: u16 = 1 << 8;
const DELETE: u16 = NEW | 2;
const MARK_ATTRIBUTE: u16 = 8;

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
                flags: flags::REQUEST | flags::CREATE | flags::ACK,
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
        const MARK_MASK: u16 = 21;
        let header = Header {
            kind: DELETE,
            flags: flags::REQUEST | flags::ACK,
            seq: self.socket.next_seq(),
        };
        self.socket.skip_seqs(1);
        let mut writer = Writer::with_capacity(64);
        writer.message(header, |w| {
            w.raw(&[0; 4]);
            w.be32(MARK_ATTRIBUTE, MARK);
            w.be32(MARK_MASK, u32::MAX);
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
    const ORIGINAL: u16 = 1;
    const REPLY: u16 = 2;
    const STATUS: u16 = 3;
    const PROTOCOL_INFO: u16 = 4;
    const TIMEOUT: u16 = 7;
    const SEEN_REPLY_ASSURED_CONFIRMED: u32 = 0x2 | 0x4 | 0x8;
    const TCP_STATE_ESTABLISHED: u8 = 3;
    let ports = 50_000;
    let client = (
        Ipv4Addr::from(0x0a7f_0000 + number / ports),
        1000 + (number % ports) as u16,
    );
    w.raw(&[libc::AF_INET as u8, 0, 0, 0]);
    w.nested(ORIGINAL, |w| direction(w, client, SERVER));
    w.nested(REPLY, |w| direction(w, SERVER, client));
    w.be32(STATUS, SEEN_REPLY_ASSURED_CONFIRMED);
    w.be32(TIMEOUT, 3600);
    w.be32(MARK_ATTRIBUTE, MARK);
    w.nested(PROTOCOL_INFO, |w| {
        w.nested(1, |w| w.bytes(1, &[TCP_STATE_ESTABLISHED]));
    });
}

fn direction(w: &mut Writer, from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) {
    const TCP: u8 = 6;
    w.nested(1, |w| {
        w.bytes(1, &from.0.octets());
        w.bytes(2, &to.0.octets());
    });
    w.nested(2, |w| {
        w.bytes(1, &[TCP]);
        w.bytes(2, &from.1.to_be_bytes());
        w.bytes(3, &to.1.to_be_bytes());
    });
}
