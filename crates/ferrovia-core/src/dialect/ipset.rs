//! Sets of addresses and ports that rules of iptables look into.
//!
//! [`IpsetOp`] prints as a line of `ipset restore`, and [`IpsetEntry`] as `ipset save` prints it, so a network of one address has no prefix length.

mod entry;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

pub use self::entry::IpsetEntry;
use crate::family::Family;

/// As many entries as a hash may hold. The kernel takes memory for those there are, so the limit costs nothing; kube-proxy's sets end at
/// 65,536. The limit of an existing set cannot be changed: a new set is created under another name, filled, and [swapped](IpsetOp::Swap).
pub const MAX_ENTRIES: u32 = 1 << 24;

/// The name of a set: 1 to 31 letters, digits, `-`, `_` and `.`, the first of them a letter. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpsetName(Arc<str>);

impl IpsetName {
    /// A name; `None` if it cannot be one of ours. The kernel would take more characters.
    pub fn new(name: &str) -> Option<Self> {
        let is_part = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        let fits = name.len() <= 31
            && name.bytes().all(is_part)
            && name.starts_with(|c: char| c.is_ascii_alphabetic());
        fits.then(|| Self(name.into()))
    }

    /// A name that is written in our source.
    pub(crate) fn fixed(name: &str) -> Self {
        debug_assert!(Self::new(name).is_some(), "{name} cannot be a set's name");
        Self(name.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for IpsetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a set holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpsetType {
    Ip(Family),
    IpPort(Family),
    /// Addresses with ports and another address.
    IpPortIp(Family),
    /// Addresses with ports and a network.
    IpPortNet(Family),
    /// Ports alone, all there are.
    Port,
}

impl IpsetType {
    /// The kernel's name for it.
    pub fn type_name(self) -> &'static str {
        match self {
            Self::Ip(_) => "hash:ip",
            Self::IpPort(_) => "hash:ip,port",
            Self::IpPortIp(_) => "hash:ip,port,ip",
            Self::IpPortNet(_) => "hash:ip,port,net",
            Self::Port => "bitmap:port",
        }
    }

    /// The family of its addresses, if it has any.
    pub fn family(self) -> Option<Family> {
        match self {
            Self::Ip(family)
            | Self::IpPort(family)
            | Self::IpPortIp(family)
            | Self::IpPortNet(family) => Some(family),
            Self::Port => None,
        }
    }

    /// The kind with this name of the kernel's.
    pub fn from_type_name(name: &str, family: Family) -> Option<Self> {
        let all = [
            Self::Ip(family),
            Self::IpPort(family),
            Self::IpPortIp(family),
            Self::IpPortNet(family),
            Self::Port,
        ];
        all.into_iter().find(|kind| kind.type_name() == name)
    }
}

/// A set that is in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedIpset {
    /// What it holds; `None` if that is nothing we use, and then nothing is said of its entries.
    pub kind: Option<IpsetType>,
    /// How many entries it takes at most; of no meaning for [`IpsetType::Port`].
    pub max: u32,
    /// What is in it. Entries that we never write are left out: another process changed such a set.
    pub entries: BTreeSet<IpsetEntry>,
    /// There are entries that were left out.
    pub has_others: bool,
}

/// One change of sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IpsetOp {
    /// Makes a set that is not there.
    Create {
        set: IpsetName,
        kind: IpsetType,
        /// How many of those at most; of no meaning for [`IpsetType::Port`].
        max: u32,
    },
    /// Puts an entry in that is not there.
    Add(IpsetName, IpsetEntry),
    /// Takes an entry out.
    Delete(IpsetName, IpsetEntry),
    /// Gives each of two sets of one kind the other's contents and limit, at once. Rules keep to the name.
    Swap(IpsetName, IpsetName),
    /// Removes a set that no rule looks into.
    Destroy(IpsetName),
}

impl fmt::Display for IpsetOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { set, kind, max } => {
                write!(f, "create {set} {}", kind.type_name())?;
                match kind.family() {
                    None => f.write_str(" range 0-65535"),
                    Some(Family::V4) => write!(f, " family inet hashsize 1024 maxelem {max}"),
                    Some(Family::V6) => write!(f, " family inet6 hashsize 1024 maxelem {max}"),
                }
            }
            Self::Add(set, entry) => write!(f, "add {set} {entry}"),
            Self::Delete(set, entry) => write!(f, "del {set} {entry}"),
            Self::Swap(one, other) => write!(f, "swap {one} {other}"),
            Self::Destroy(set) => write!(f, "destroy {set}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> IpsetName {
        IpsetName::new(text).unwrap()
    }

    #[test]
    fn changes_are_the_tools_lines() {
        let create = |kind| IpsetOp::Create {
            set: name("KUBE-CLUSTER-IP"),
            kind,
            max: 100,
        };
        let ops = [
            (
                create(IpsetType::IpPort(Family::V6)),
                "create KUBE-CLUSTER-IP hash:ip,port family inet6 hashsize 1024 maxelem 100",
            ),
            (
                create(IpsetType::Port),
                "create KUBE-CLUSTER-IP bitmap:port range 0-65535",
            ),
            (IpsetOp::Add(name("A"), IpsetEntry::Port(80)), "add A 80"),
            (IpsetOp::Delete(name("A"), IpsetEntry::Port(80)), "del A 80"),
            (IpsetOp::Swap(name("A"), name("B")), "swap A B"),
            (IpsetOp::Destroy(name("A")), "destroy A"),
        ];
        for (op, line) in ops {
            assert_eq!(op.to_string(), line);
        }
    }

    #[test]
    fn a_name_is_one_word() {
        assert!(IpsetName::new("KUBE-6-LOAD-BALANCER-SOURCE-CID").is_some());
        for bad in [
            "",
            "-A",
            "9",
            "a b",
            "a\nb",
            "KUBE-6-LOAD-BALANCER-SOURCE-CIDR",
        ] {
            assert_eq!(IpsetName::new(bad), None, "{bad:?}");
        }
    }
}
