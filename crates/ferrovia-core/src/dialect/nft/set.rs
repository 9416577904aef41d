//! Sets, maps and their elements.
//!
//! Keys and data are kept as the kernel holds them: every field in its own byte order, padded to four bytes. That is compact, compares and
//! hashes at once with what is read back, and can still be printed because the set's [`SetSpec`] knows the fields.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use smallvec::SmallVec;

use super::NftName;
use crate::family::Family;
use crate::model::Protocol;

/// The definition of a set, or of a map if it has data. Cheap to clone: all of it is static.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetSpec {
    pub name: &'static str,
    /// The fields of a key.
    pub key: &'static [FieldType],
    /// What a key maps to; none for a plain set.
    pub data: Option<DataType>,
    pub interval: bool,
    /// Packets add elements, each with a time-out of its own; holds at most so many.
    pub dynamic: Option<u32>,
    /// Every element counts the packets that matched it. That is expensive: a counter costs the kernel as much as its element
    /// (2.5 µs, kernel 6.18), so only sets that packets fill should have it.
    pub counter: bool,
}

impl SetSpec {
    /// The length of a key in bytes.
    pub fn key_len(&self) -> usize {
        self.key.iter().map(|field| field.padded_width()).sum()
    }

    /// The length of the data in bytes; 0 for verdicts and plain sets.
    pub fn data_len(&self) -> usize {
        match self.data {
            Some(DataType::Fields(fields)) => fields.iter().map(|field| field.padded_width()).sum(),
            Some(DataType::Verdict) | None => 0,
        }
    }
}

/// The type of one field of a key or of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldType {
    Ipv4,
    Ipv6,
    /// A transport protocol number.
    Proto,
    Service,
    /// A number as `meta priority` holds it, printed as two hexadecimal halves.
    ClassId,
    /// The outcome of `numgen` or `jhash`.
    Slot,
}

impl FieldType {
    /// The address type of a family.
    pub const fn addr(family: Family) -> Self {
        match family {
            Family::V4 => Self::Ipv4,
            Family::V6 => Self::Ipv6,
        }
    }

    /// The length in bytes without padding.
    pub fn width(self) -> usize {
        match self {
            Self::Ipv6 => 16,
            Self::Ipv4 | Self::ClassId | Self::Slot => 4,
            Self::Service => 2,
            Self::Proto => 1,
        }
    }

    /// The length in a concatenation.
    pub fn padded_width(self) -> usize {
        self.width().next_multiple_of(4)
    }
}

/// What a map's data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataType {
    /// What to do with the packet.
    Verdict,
    Fields(&'static [FieldType]),
}

/// A key, or the data of a map that holds values: fields in kernel byte order, each padded to four bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ElementKey(SmallVec<[u8; 24]>);

impl ElementKey {
    /// Takes bytes as the kernel gave them.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(SmallVec::from_slice(bytes))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Cuts the key into its fields. Short input gives fewer fields.
    pub fn fields<'a>(
        &'a self,
        types: &'a [FieldType],
    ) -> impl Iterator<Item = (FieldType, &'a [u8])> {
        let mut rest = self.as_bytes();
        types.iter().map_while(move |&kind| {
            let field = rest.get(..kind.width())?;
            rest = rest.get(kind.padded_width()..).unwrap_or_default();
            Some((kind, field))
        })
    }
}

/// Puts a [`ElementKey`] together field by field.
#[derive(Clone, Debug, Default)]
pub struct KeyBuilder(SmallVec<[u8; 24]>);

impl KeyBuilder {
    pub fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn ip(self, ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(v4) => self.bytes(&v4.octets()),
            IpAddr::V6(v6) => self.bytes(&v6.octets()),
        }
    }

    #[must_use]
    pub fn proto(self, protocol: Protocol) -> Self {
        self.bytes(&[protocol.number()])
    }

    #[must_use]
    pub fn port(self, port: u16) -> Self {
        self.bytes(&port.to_be_bytes())
    }

    /// A number in the host's byte order: a class id or a slot.
    #[must_use]
    pub fn number(self, number: u32) -> Self {
        self.bytes(&number.to_ne_bytes())
    }

    pub fn build(self) -> ElementKey {
        ElementKey(self.0)
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        let padded = self.0.len().next_multiple_of(4);
        self.0.resize(padded, 0);
        self
    }
}

/// What a map's key leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElementData {
    /// What to do with the packet.
    Verdict(NftVerdict),
    Value(ElementKey),
}

/// What to do with a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NftVerdict {
    /// Let it pass this table.
    Accept,
    Drop,
    /// Go back to the calling chain.
    Return,
    /// Go on in another chain and come back.
    Jump(NftName),
    /// Go on in another chain and do not come back.
    Goto(NftName),
}

/// One element of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// The key; in an interval set, the first of the range.
    pub key: ElementKey,
    /// In an interval set, the last key of the range.
    pub key_end: Option<ElementKey>,
    /// In a map, what the key leads to.
    pub data: Option<ElementData>,
    /// A note for people who list the set.
    pub comment: Option<Box<str>>,
}

impl Element {
    /// An element of a plain set.
    pub fn member(key: ElementKey) -> Self {
        Self {
            key,
            key_end: None,
            data: None,
            comment: None,
        }
    }

    /// An element of a map.
    pub fn value(key: ElementKey, value: ElementKey) -> Self {
        Self {
            data: Some(ElementData::Value(value)),
            ..Self::member(key)
        }
    }

    /// An element of a verdict map.
    pub fn verdict(key: ElementKey, verdict: NftVerdict) -> Self {
        Self {
            data: Some(ElementData::Verdict(verdict)),
            ..Self::member(key)
        }
    }

    /// A range in an interval set: `prefix` is the fields before the network.
    pub fn range(prefix: KeyBuilder, net: IpNet) -> Self {
        let key = prefix.clone().ip(net.network()).build();
        Self {
            key_end: Some(prefix.ip(net.broadcast()).build()),
            ..Self::member(key)
        }
    }

    /// The same with a comment, cut to what the tool accepts.
    #[must_use]
    pub fn with_comment(mut self, comment: &str) -> Self {
        // The tool refuses more than 128 bytes, and then the whole transaction with it. Names are ASCII by then, but do not rely on it.
        let mut end = comment.len().min(128);
        while !comment.is_char_boundary(end) {
            end -= 1;
        }
        self.comment = comment.get(..end).map(Into::into);
        self
    }
}

/// Reads an address field back.
pub(super) fn ip_from_bytes(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
        16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()),
        _ => None,
    }
}
