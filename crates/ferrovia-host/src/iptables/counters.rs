//! Named counters in the kernel, which rules count into by `-m nfacct`.
//!
//! One set for a network namespace, so both families count into the same.

use ferrovia_core::plan::iptables::{INVALID_COUNTER, LOCALHOST_COUNTER};
use ferrovia_netlink::uapi::netlink::NLM_F_CREATE;
use ferrovia_netlink::uapi::nfnetlink::NFNL_SUBSYS_ACCT;
use ferrovia_netlink::uapi::nfnetlink_acct::{
    NFACCT_NAME, NFACCT_PKTS, NFNL_MSG_ACCT_GET, NFNL_MSG_ACCT_NEW,
};
use ferrovia_netlink::{Attrs, Error, Protocol, Socket, Writer, nfnetlink};

const NEW: u16 = nfnetlink::message_type(NFNL_SUBSYS_ACCT, NFNL_MSG_ACCT_NEW);
const GET: u16 = nfnetlink::message_type(NFNL_SUBSYS_ACCT, NFNL_MSG_ACCT_GET);

/// A counter we use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcctCounter {
    /// Packets dropped because conntrack could not place them.
    Invalid,
    /// Connections to node ports on loopback.
    Localhost,
}

impl AcctCounter {
    fn name(self) -> &'static str {
        match self {
            Self::Invalid => INVALID_COUNTER,
            Self::Localhost => LOCALHOST_COUNTER,
        }
    }
}

/// The way to the counters of the network namespace it was opened in.
#[derive(Debug)]
pub struct AcctCounters {
    socket: Socket,
}

impl AcctCounters {
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
    pub fn ensure(&mut self, counter: AcctCounter) -> Result<(), Error> {
        let made = self.socket.request(NEW, NLM_F_CREATE, named(counter));
        match made {
            // There already. Busy is what the kernel calls it.
            Err(error) if matches!(error.errno(), Some(libc::EBUSY | libc::EEXIST)) => Ok(()),
            other => other,
        }
    }

    /// How many packets were counted.
    ///
    /// # Errors
    /// If there is no such counter, or the netlink socket fails.
    pub fn packets(&mut self, counter: AcctCounter) -> Result<u64, Error> {
        self.socket.query(GET, named(counter), |answer| {
            Attrs::of(answer, nfnetlink::HEADER_LEN)
                .get(NFACCT_PKTS)?
                .be64()
        })
    }
}

/// What a message about one counter says.
fn named(counter: AcctCounter) -> impl FnOnce(&mut Writer) {
    move |w| {
        w.raw(&nfnetlink::header(libc::AF_UNSPEC as u8));
        w.text(NFACCT_NAME, counter.name());
    }
}
