//! The tool's text: what `nft -f` reads and what people know from `nft list`.

mod rule;

use std::fmt::{self, Display, Formatter};

use ipnet::IpNet;

use self::rule::RuleText;
use super::set::ip_from_bytes;
use super::{
    DataType, Element, ElementData, ElementKey, FieldType, Hook, NftChain, NftOp, NftVerdict,
    SetSpec, Transaction,
};
use crate::family::Family;
use crate::model::Protocol;

impl Display for Transaction {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for note in &self.notes {
            writeln!(f, "# {note}")?;
        }
        let family = keyword(self.family);
        for op in &self.ops {
            self.op(f, op, family)?;
        }
        Ok(())
    }
}

impl Transaction {
    fn op(&self, f: &mut Formatter<'_>, op: &NftOp, family: &str) -> fmt::Result {
        let table = &self.table;
        match op {
            NftOp::AddTable => writeln!(f, "add table {family} {table}"),
            NftOp::DeleteTable => writeln!(f, "delete table {family} {table}"),
            NftOp::DeleteOtherTable(other) => writeln!(f, "delete table {family} {other}"),
            NftOp::AddSet(set) => {
                writeln!(
                    f,
                    "add {} {family} {table} {} {{ {} }}",
                    set_keyword(set),
                    set.name,
                    SetBody(set)
                )
            }
            NftOp::AddChain(chain) => writeln!(f, "add chain {family} {table} {chain}"),
            NftOp::FlushChain(chain) => writeln!(f, "flush chain {family} {table} {chain}"),
            NftOp::DeleteChain(chain) => writeln!(f, "delete chain {family} {table} {chain}"),
            NftOp::AddRule(chain, rule) => {
                writeln!(
                    f,
                    "add rule {family} {table} {chain} {}",
                    RuleText(rule, self.family)
                )
            }
            NftOp::AddElements(set, elements) => {
                elements_op(f, "add", family, table, set, elements)
            }
            NftOp::DeleteElements(set, elements) => {
                elements_op(f, "delete", family, table, set, elements)
            }
        }
    }
}

fn elements_op(
    f: &mut Formatter<'_>,
    verb: &str,
    family: &str,
    table: &str,
    set: &SetSpec,
    elements: &[Element],
) -> fmt::Result {
    write!(f, "{verb} element {family} {table} {} {{", set.name)?;
    if let [element] = elements {
        return writeln!(f, " {} }}", ElementText(set, element));
    }
    writeln!(f)?;
    for element in elements {
        writeln!(f, "\t{},", ElementText(set, element))?;
    }
    writeln!(f, "}}")
}

/// `ip` or `ip6`.
pub(crate) fn keyword(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    }
}

fn set_keyword(set: &SetSpec) -> &'static str {
    if set.data.is_some() { "map" } else { "set" }
}

impl Display for NftChain {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        match self.hook {
            Some(Hook {
                kind,
                point,
                priority,
            }) => {
                write!(
                    f,
                    " {{ type {} hook {} priority {priority}; policy accept; }}",
                    kind.name(),
                    point.name()
                )
            }
            None => Ok(()),
        }
    }
}

/// What stands between the braces of a set's definition.
struct SetBody<'a>(&'a SetSpec);

impl Display for SetBody<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let set = self.0;
        // A slot has no type name of its own, so such sets are defined by example.
        let by_example = set.key.contains(&FieldType::Slot);
        f.write_str(if by_example { "typeof " } else { "type " })?;
        join(f, set.key, |kind| type_name(kind, by_example))?;
        match set.data {
            Some(DataType::Verdict) => f.write_str(" : verdict")?,
            Some(DataType::Fields(fields)) => {
                f.write_str(" : ")?;
                join(f, fields, |kind| type_name(kind, by_example))?;
            }
            None => {}
        }
        f.write_str(";")?;
        if let Some(size) = set.dynamic {
            write!(f, " size {size}; flags dynamic,timeout;")?;
        }
        if set.interval {
            f.write_str(" flags interval;")?;
        }
        if set.counter {
            f.write_str(" counter;")?;
        }
        Ok(())
    }
}

fn join<'a>(
    f: &mut Formatter<'_>,
    kinds: &'a [FieldType],
    name: impl Fn(&'a FieldType) -> &'static str,
) -> fmt::Result {
    for (i, kind) in kinds.iter().enumerate() {
        write!(f, "{}{}", if i == 0 { "" } else { " . " }, name(kind))?;
    }
    Ok(())
}

fn type_name(kind: &FieldType, by_example: bool) -> &'static str {
    match (kind, by_example) {
        (FieldType::Ipv4, false) => "ipv4_addr",
        (FieldType::Ipv6, false) => "ipv6_addr",
        (FieldType::Proto, false) => "inet_proto",
        (FieldType::Service, false) => "inet_service",
        (FieldType::ClassId, false) => "classid",
        (FieldType::Ipv4, true) => "ip daddr",
        (FieldType::Ipv6, true) => "ip6 daddr",
        (FieldType::Proto, true) => "meta l4proto",
        (FieldType::Service, true) => "th dport",
        (FieldType::ClassId, true) => "meta priority",
        (FieldType::Slot, _) => "numgen random mod 65536",
    }
}

/// An element as the tool writes it.
struct ElementText<'a>(&'a SetSpec, &'a Element);

impl Display for ElementText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(set, element) = self;
        key_text(f, &element.key, element.key_end.as_ref(), set.key)?;
        if let Some(comment) = &element.comment {
            write!(f, " comment \"{comment}\"")?;
        }
        match (&element.data, set.data) {
            (Some(ElementData::Verdict(verdict)), _) => write!(f, " : {verdict}"),
            (Some(ElementData::Value(value)), Some(DataType::Fields(fields))) => {
                f.write_str(" : ")?;
                key_text(f, value, None, fields)
            }
            _ => Ok(()),
        }
    }
}

fn key_text(
    f: &mut Formatter<'_>,
    key: &ElementKey,
    end: Option<&ElementKey>,
    kinds: &[FieldType],
) -> fmt::Result {
    let mut ends = end.map(|end| end.fields(kinds));
    for (i, (kind, first)) in key.fields(kinds).enumerate() {
        if i > 0 {
            f.write_str(" . ")?;
        }
        let last = ends
            .as_mut()
            .and_then(Iterator::next)
            .map_or(first, |(_, last)| last);
        field_text(f, kind, first, last)?;
    }
    Ok(())
}

fn field_text(f: &mut Formatter<'_>, kind: FieldType, first: &[u8], last: &[u8]) -> fmt::Result {
    match kind {
        FieldType::Ipv4 | FieldType::Ipv6 => match (ip_from_bytes(first), ip_from_bytes(last)) {
            (Some(a), Some(b)) if a == b => write!(f, "{a}"),
            (Some(a), Some(b)) => {
                match prefix_of(first, last).and_then(|len| IpNet::new(a, len).ok()) {
                    Some(net) => write!(f, "{net}"),
                    None => write!(f, "{a}-{b}"),
                }
            }
            _ => f.write_str("?"),
        },
        FieldType::Proto => match first.first().and_then(|&n| Protocol::from_number(n)) {
            Some(protocol) => write!(f, "{protocol}"),
            None => write!(f, "{}", first.first().copied().unwrap_or_default()),
        },
        FieldType::Service => {
            write!(
                f,
                "{}",
                first.try_into().map(u16::from_be_bytes).unwrap_or_default()
            )
        }
        FieldType::ClassId => write!(f, "{}", ClassId(native(first))),
        FieldType::Slot => write!(f, "{}", native(first)),
    }
}

/// The length of the prefix that a range of addresses is.
fn prefix_of(first: &[u8], last: &[u8]) -> Option<u8> {
    let same = first.iter().zip(last).take_while(|(a, b)| a == b).count();
    let bits = first
        .iter()
        .zip(last)
        .nth(same)
        .map_or(0, |(a, b)| (a ^ b).leading_zeros() as usize);
    u8::try_from(same * 8 + bits).ok()
}

fn native(bytes: &[u8]) -> u32 {
    bytes.try_into().map(u32::from_ne_bytes).unwrap_or_default()
}

/// A number as the tool writes `meta priority`: two halves of hexadecimal digits.
pub(super) struct ClassId(pub(super) u32);

impl Display for ClassId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("none"),
            id => write!(f, "{:x}:{:x}", id >> 16, id & 0xffff),
        }
    }
}

impl Display for NftVerdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accept => f.write_str("accept"),
            Self::Drop => f.write_str("drop"),
            Self::Return => f.write_str("return"),
            Self::Jump(chain) => write!(f, "jump {chain}"),
            Self::Goto(chain) => write!(f, "goto {chain}"),
        }
    }
}
