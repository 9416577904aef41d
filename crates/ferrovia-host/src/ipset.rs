//! ipset over netlink: no program is started to change a set.
//!
//! What is to be changed is decided by planners in the core, whose [`IpsetOp`]s print as lines of `ipset restore`. A batch of them is sent in one
//! go; it is not a transaction, and after a failure the sets are what the accepted changes made of them.

mod decode;
mod encode;
mod error;

use std::collections::BTreeMap;

use ferrovia_core::dialect::ipset::{IpsetName, IpsetOp, IpsetType, ObservedIpset};
use ferrovia_netlink::uapi::ip_set::{
    IPSET_ATTR_FAMILY, IPSET_ATTR_FLAGS, IPSET_ATTR_PROTOCOL, IPSET_ATTR_PROTOCOL_MIN,
    IPSET_ATTR_REVISION, IPSET_ATTR_TYPENAME, IPSET_CMD_LIST, IPSET_CMD_PROTOCOL, IPSET_CMD_TYPE,
    IPSET_ERR_EXIST, IPSET_FLAG_LIST_HEADER,
};
use ferrovia_netlink::uapi::netlink::NLA_F_NET_BYTEORDER;
use ferrovia_netlink::uapi::nfnetlink::NFNL_SUBSYS_IPSET;
use ferrovia_netlink::{self as netlink, Attr, Attrs, Protocol, Socket, nfnetlink};

use self::encode::SetRequest;

pub use error::Error;

/// The version of the protocol that we speak. Kernels since 2.6.39 do; newer ones understand a range.
const PROTOCOL_VERSION: u8 = 6;

pub type Sets = BTreeMap<IpsetName, ObservedIpset>;

/// A connection to ipset in the network namespace it was opened in.
#[derive(Debug)]
pub struct Ipset {
    socket: Socket,
    /// Which revision sets of a kind get, asked once for each.
    revisions: BTreeMap<IpsetType, u8>,
}

impl Ipset {
    /// Opens a connection and sees whether the kernel can be talked to.
    ///
    /// # Errors
    /// If this kernel has no ipset, or one that speaks otherwise.
    pub fn open() -> Result<Self, Error> {
        let mut socket = Socket::open(Protocol::Netfilter).map_err(Error::NoIpset)?;
        let (lowest, highest) = socket
            .query(message_type(IPSET_CMD_PROTOCOL), encode::head, |message| {
                range(
                    Attrs::of(message, nfnetlink::HEADER_LEN),
                    IPSET_ATTR_PROTOCOL,
                )
            })
            .map_err(Error::NoIpset)?;
        if !(lowest..=highest).contains(&PROTOCOL_VERSION) {
            return Err(Error::Version {
                lowest,
                highest,
                ours: PROTOCOL_VERSION,
            });
        }
        Ok(Self {
            socket,
            revisions: BTreeMap::new(),
        })
    }

    /// Makes changes in their order. That an entry to be added is there already, or one to be deleted is not, is no failure. Returns
    /// the changes, by position, that had nothing to do.
    ///
    /// # Errors
    /// [`Error::Refused`] names the first change that was refused. The kernel went on with the others.
    pub fn apply(&mut self, ops: &[IpsetOp]) -> Result<Vec<usize>, Error> {
        let mut requests = Vec::with_capacity(ops.len());
        for op in ops {
            let revision = match op {
                IpsetOp::Create { kind, .. } => self.revision(*kind)?,
                _ => 0,
            };
            requests.push(SetRequest { op, revision });
        }
        let refused = self.socket.pipeline(&requests);
        let mut refused = refused.map_err(failed("change sets"))?;
        let mut idle = Vec::new();
        refused.retain(|(at, refusal)| {
            let is_idle = refusal.errno == IPSET_ERR_EXIST;
            idle.extend(is_idle.then_some(*at));
            !is_idle
        });
        let others = refused.len().saturating_sub(1);
        match refused.into_iter().next() {
            None => Ok(idle),
            Some((at, refusal)) => match ops.get(at) {
                Some(op) => Err(Error::Refused {
                    op: op.clone(),
                    refusal,
                    others,
                }),
                None => Err(failed("change sets")(netlink::Error::UnexpectedReply)),
            },
        }
    }

    /// All sets whose names can be ours, with their entries.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn list(&mut self) -> Result<Sets, Error> {
        self.socket
            .dump(message_type(IPSET_CMD_LIST), encode::head, decode::collect)
            .map_err(failed("read sets"))
    }

    /// How many entries each set has, without reading them.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn sizes(&mut self) -> Result<BTreeMap<IpsetName, usize>, Error> {
        self.socket
            .dump(
                message_type(IPSET_CMD_LIST),
                |w| {
                    encode::head(w);
                    w.be32(
                        IPSET_ATTR_FLAGS | NLA_F_NET_BYTEORDER,
                        IPSET_FLAG_LIST_HEADER,
                    );
                },
                |sizes: &mut BTreeMap<_, _>, message| {
                    sizes.extend(decode::head(message).map(|head| (head.name, head.count)));
                },
            )
            .map_err(failed("read the sizes of sets"))
    }

    /// Which revision of a kind is used: the oldest that can do what we need, because tools on the node may be older than the kernel and
    /// could not print a newer one.
    fn revision(&mut self, kind: IpsetType) -> Result<u8, Error> {
        if let Some(revision) = self.revisions.get(&kind) {
            return Ok(*revision);
        }
        // The first with SCTP.
        let wanted = match kind {
            IpsetType::Ip(_) | IpsetType::Port => 0,
            IpsetType::IpPort(_) | IpsetType::IpPortIp(_) | IpsetType::IpPortNet(_) => 1,
        };
        let asked = self.socket.query(
            message_type(IPSET_CMD_TYPE),
            |w| {
                encode::head(w);
                w.text(IPSET_ATTR_TYPENAME, kind.type_name());
                w.bytes(IPSET_ATTR_FAMILY, &[encode::family_number(kind)]);
            },
            |message| {
                range(
                    Attrs::of(message, nfnetlink::HEADER_LEN),
                    IPSET_ATTR_REVISION,
                )
            },
        );
        let (lowest, highest) = asked.map_err(|cause| Error::NoKind {
            kind: kind.type_name(),
            cause,
        })?;
        let revision = wanted.clamp(lowest, highest.max(lowest));
        self.revisions.insert(kind, revision);
        Ok(revision)
    }
}

/// The lowest and highest protocol version or revision that the kernel understands. `IPSET_ATTR_PROTOCOL_MIN` and `IPSET_ATTR_REVISION_MIN`
/// are the same number.
fn range(attrs: Attrs<'_>, highest: u16) -> Option<(u8, u8)> {
    let highest = attrs.get(highest)?.u8()?;
    let lowest = attrs.get(IPSET_ATTR_PROTOCOL_MIN).and_then(Attr::u8);
    Some((lowest.unwrap_or(highest), highest))
}

/// The message type of an `IPSET_CMD_*`.
const fn message_type(command: u8) -> u16 {
    nfnetlink::message_type(NFNL_SUBSYS_IPSET, command)
}

fn failed(action: &'static str) -> impl FnOnce(netlink::Error) -> Error {
    move |cause| Error::Netlink { action, cause }
}

/// Reads messages as listings of sets.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_hostile(messages: netlink::Messages<'_>) -> usize {
    let mut sets = Sets::new();
    let mut heads = 0;
    for message in messages {
        heads += usize::from(decode::head(&message).is_some());
        decode::collect(&mut sets, &message);
        range(
            Attrs::of(&message, nfnetlink::HEADER_LEN),
            IPSET_ATTR_REVISION,
        );
    }
    heads + sets.values().map(|set| set.entries.len()).sum::<usize>()
}
