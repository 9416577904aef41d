//! Named counters in the kernel, which rules count into by `-m nfacct`.
//!
//! One set for a network namespace, so both families count into the same.

use ferrovia_core::plan::iptables::{INVALID_COUNTER, LOCALHOST_COUNTER};

use crate::netlink::{Attrs, Error, Protocol, Socket, Writer, flags};

/// The counters' number among netfilter's subsystems, as the upper half of a message's kind.
const SUBSYSTEM: u16 = 7 << 8;
const NEW: u16 = SUBSYSTEM;
const GET: u16 = SUBSYSTEM | 1;
/// Attributes.
const NAME: u16 = 1;
const PACKETS: u16 = 2;
/// The fixed header of netfilter's messages: family, version, number. The same for all counters.
const HEADER: [u8; 4] = [0; 4];

/// A counter we use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Packets dropped because conntrack could not place them.
    Invalid,
    /// Connections to node ports on loopback.
    Localhost,
}

impl Counter {
    fn name(self) -> &'static str {
        match self {
            Self::Invalid => INVALID_COUNTER,
            Self::Localhost => LOCALHOST_COUNTER,
        }
    }
}

/// The way to the counters of the network namespace it was opened in.
#[derive(Debug)]
pub struct Counters {
    socket: Socket,
}

impl Counters {
    /// Opens it.
    ///
    /// # Errors
    /// If a system call fails.
    pub fn open() -> Result<Self, Error> {
        Ok(Self {
            socket: Socket::open(Protocol::Netfilter)?,
        })
    }

    /// Makes a counter unless it is there.
    ///
    /// # Errors
    /// If the kernel has no such counters, or refuses.
    pub fn ensure(&mut self, counter: Counter) -> Result<(), Error> {
        let made = self.socket.request(NEW, flags::CREATE, named(counter));
        match made {
            // There already. Busy is what the kernel calls it.
            Err(error) if matches!(error.errno(), Some(libc::EBUSY | libc::EEXIST)) => Ok(()),
            other => other,
        }
    }

    /// How many packets were counted.
    ///
    /// # Errors
    /// If there is no such counter, or the conversation breaks.
    pub fn packets(&mut self, counter: Counter) -> Result<u64, Error> {
        self.socket.ask(GET, named(counter), |answer| {
            Attrs::of(answer, HEADER.len()).get(PACKETS)?.be64()
        })
    }
}

/// What a message about one counter says.
fn named(counter: Counter) -> impl FnOnce(&mut Writer) {
    move |w| {
        w.raw(&HEADER);
        w.text(NAME, counter.name());
    }
}
