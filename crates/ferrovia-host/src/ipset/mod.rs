//! ipset over netlink: no program is started to change a set.
//!
//! What is to be changed is decided by planners in the core, whose [`IpsetOp`]s print as lines of `ipset restore`. A batch of them is sent in one
//! go; it is not a transaction, and after a failure the sets are what the accepted changes made of them.

mod decode;
mod encode;
mod error;
mod uapi;

use std::collections::BTreeMap;

use ferrovia_core::dialect::ipset::{IpsetName, IpsetOp, IpsetType, ObservedIpset};

use self::encode::Change;
use self::uapi::{HEADER, VERSION, attr, error as errno, msg};
use crate::netlink::{self, Attr, Attrs, Protocol, Socket};

pub use error::Error;

/// Sets by name.
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
            .ask(msg::PROTOCOL, encode::head, |message| {
                range(Attrs::of(message, HEADER.len()), attr::PROTOCOL)
            })
            .map_err(Error::NoIpset)?;
        if !(lowest..=highest).contains(&VERSION) {
            return Err(Error::Version {
                lowest,
                highest,
                ours: VERSION,
            });
        }
        Ok(Self {
            socket,
            revisions: BTreeMap::new(),
        })
    }

    /// Makes changes in their order. That an entry to be added is there already, or one to be deleted is not, is no failure. Answers with
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
            requests.push(Change { op, revision });
        }
        let refused = self.socket.pipeline(&requests);
        let mut refused = refused.map_err(failed("change sets"))?;
        let mut idle = Vec::new();
        refused.retain(|(at, refusal)| {
            let is_idle = refusal.errno == errno::NOTHING_TO_DO;
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
                None => Err(failed("change sets")(netlink::Error::Senseless)),
            },
        }
    }

    /// All sets whose names can be ours, with their entries.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn list(&mut self) -> Result<Sets, Error> {
        self.socket
            .dump(msg::LIST, encode::head, decode::collect)
            .map_err(failed("read sets"))
    }

    /// How many entries each set has, without reading them.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn sizes(&mut self) -> Result<BTreeMap<IpsetName, usize>, Error> {
        self.socket
            .dump(
                msg::LIST,
                |w| {
                    encode::head(w);
                    w.be32(attr::FLAGS | uapi::NET_ORDER, uapi::HEADERS_ONLY);
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
        let asked = self.socket.ask(
            msg::TYPE,
            |w| {
                encode::head(w);
                w.text(attr::TYPE, kind.type_name());
                w.bytes(attr::FAMILY, &[encode::family_number(kind)]);
            },
            |message| range(Attrs::of(message, HEADER.len()), attr::REVISION),
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

/// The lowest and highest of something that the kernel understands.
fn range(attrs: Attrs<'_>, highest: u16) -> Option<(u8, u8)> {
    let highest = attrs.get(highest)?.u8()?;
    let lowest = attrs.get(attr::LOWEST).and_then(Attr::u8);
    Some((lowest.unwrap_or(highest), highest))
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
        range(Attrs::of(&message, HEADER.len()), attr::REVISION);
    }
    heads + sets.values().map(|set| set.entries.len()).sum::<usize>()
}
