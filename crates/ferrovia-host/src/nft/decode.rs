//! Messages of a dump as values.
//!
//! What a message does not say, or says in a way we do not know, is left at its default; the
//! planner then sees a difference and repairs it.

use std::collections::{BTreeSet, HashMap};

use ferrovia_core::dialect::nft::bytecode::Expr;
use ferrovia_core::dialect::nft::{
    ChainKind, ElementData, ElementKey, Hook, HookPoint, ObservedChain, ObservedElement,
    ObservedSet,
};
use ferrovia_core::family::Family;
use ferrovia_core::plan::nft::sweep::DynamicEntry;
use ferrovia_netlink::uapi::nf_tables::{
    NFT_DATA_VERDICT, NFT_SET_ELEM_INTERVAL_END, NFT_SET_EVAL, NFT_SET_INTERVAL, NFT_SET_MAP,
    NFTA_CHAIN_HOOK, NFTA_CHAIN_NAME, NFTA_CHAIN_TYPE, NFTA_COUNTER_PACKETS, NFTA_EXPR_DATA,
    NFTA_EXPR_NAME, NFTA_GEN_ID, NFTA_HOOK_HOOKNUM, NFTA_HOOK_PRIORITY, NFTA_OBJ_TABLE,
    NFTA_RULE_CHAIN, NFTA_RULE_EXPRESSIONS, NFTA_SET_DATA_LEN, NFTA_SET_DATA_TYPE,
    NFTA_SET_ELEM_DATA, NFTA_SET_ELEM_EXPIRATION, NFTA_SET_ELEM_EXPR, NFTA_SET_ELEM_EXPRESSIONS,
    NFTA_SET_ELEM_FLAGS, NFTA_SET_ELEM_KEY, NFTA_SET_ELEM_KEY_END, NFTA_SET_ELEM_LIST_ELEMENTS,
    NFTA_SET_ELEM_USERDATA, NFTA_SET_EXPR, NFTA_SET_EXPRESSIONS, NFTA_SET_FLAGS, NFTA_SET_KEY_LEN,
    NFTA_SET_NAME, NFTA_TABLE_NAME,
};
use ferrovia_netlink::{Attr, Attrs, Message, nfnetlink};

use super::{COUNTER, expr, userdata, value};

/// The attributes of an nf_tables message.
pub(super) fn attrs<'a>(message: &Message<'a>) -> Attrs<'a> {
    Attrs::of(message, nfnetlink::HEADER_LEN)
}

/// The table an object belongs to, or a table's own name.
pub(super) fn table_of<'a>(message: &Message<'a>) -> Option<&'a str> {
    attrs(message).get(NFTA_OBJ_TABLE)?.text()
}

pub(super) fn table_name(message: &Message<'_>) -> Option<String> {
    owned(attrs(message).get(NFTA_TABLE_NAME)?)
}

/// The number of the last commit.
pub(super) fn generation(message: &Message<'_>) -> Option<u32> {
    attrs(message).get(NFTA_GEN_ID)?.be32()
}

/// A chain, without its rules.
pub(super) fn chain(message: &Message<'_>) -> Option<(String, ObservedChain)> {
    let attrs = attrs(message);
    let name = owned(attrs.get(NFTA_CHAIN_NAME)?)?;
    Some((
        name,
        ObservedChain {
            hook: hook(attrs),
            rules: Vec::new(),
        },
    ))
}

fn hook(attrs: Attrs<'_>) -> Option<Hook> {
    let hook = attrs.get(NFTA_CHAIN_HOOK)?.nested();
    let kind = attrs.get(NFTA_CHAIN_TYPE)?.text()?;
    Some(Hook {
        kind: [ChainKind::Filter, ChainKind::Nat]
            .into_iter()
            .find(|known| known.name() == kind)?,
        point: HookPoint::from_number(hook.get(NFTA_HOOK_HOOKNUM)?.be32()?)?,
        priority: hook.get(NFTA_HOOK_PRIORITY)?.be32()?.cast_signed(),
    })
}

/// A rule: its chain and its instructions.
pub(super) fn rule(message: &Message<'_>, family: Family) -> Option<(String, Vec<Expr>)> {
    let attrs = attrs(message);
    let chain = owned(attrs.get(NFTA_RULE_CHAIN)?)?;
    let list = attrs
        .get(NFTA_RULE_EXPRESSIONS)
        .map_or(Attrs::new(&[]), Attr::nested);
    Some((
        chain,
        list.map(|item| expr::read(family, item.nested())).collect(),
    ))
}

/// A set, without its elements.
pub(super) fn set(message: &Message<'_>) -> Option<(String, ObservedSet)> {
    let attrs = attrs(message);
    let number = |kind| attrs.get(kind).and_then(Attr::be32).unwrap_or(0);
    let flags = number(NFTA_SET_FLAGS);
    let is_verdict_map = number(NFTA_SET_DATA_TYPE) == NFT_DATA_VERDICT;
    let data_len = if is_verdict_map {
        0
    } else {
        number(NFTA_SET_DATA_LEN)
    };
    let observed = ObservedSet {
        key_len: padded_len(number(NFTA_SET_KEY_LEN)),
        data_len: padded_len(data_len),
        is_map: flags & NFT_SET_MAP != 0,
        is_verdict_map,
        interval: flags & NFT_SET_INTERVAL != 0,
        dynamic: flags & NFT_SET_EVAL != 0,
        counter: counter_of(attrs, NFTA_SET_EXPR, NFTA_SET_EXPRESSIONS).is_some(),
        elements: HashMap::new(),
    };
    Some((owned(attrs.get(NFTA_SET_NAME)?)?, observed))
}

/// What a set holds.
#[derive(Debug, Default)]
pub(super) struct RawElements {
    /// The elements that have a key.
    pub(super) list: Vec<RawElement>,
    /// What no element of ours has, to be read after "has".
    pub(super) oddities: BTreeSet<String>,
}

/// The elements in one message of a dump, added to those of earlier ones.
pub(super) fn elements(into: &mut RawElements, message: &Message<'_>) {
    let list = attrs(message)
        .get(NFTA_SET_ELEM_LIST_ELEMENTS)
        .map_or(Attrs::new(&[]), Attr::nested);
    for item in list.map(Attr::nested) {
        if item.get(NFTA_SET_ELEM_KEY).is_none() {
            into.oddities.insert("a catch-all element".to_owned());
        }
        let foreign = foreign_instructions(item, NFTA_SET_ELEM_EXPR, NFTA_SET_ELEM_EXPRESSIONS);
        into.oddities
            .extend(foreign.map(|instruction| format!("an element with a {instruction}")));
        into.list.extend(raw_element(item));
    }
}

/// The entries of a set that packets fill, added to those of earlier messages.
pub(super) fn entries(into: &mut Vec<DynamicEntry>, message: &Message<'_>) {
    let list = attrs(message)
        .get(NFTA_SET_ELEM_LIST_ELEMENTS)
        .map_or(Attrs::new(&[]), Attr::nested);
    into.extend(list.map(Attr::nested).filter_map(|item| {
        let expires = item.get(NFTA_SET_ELEM_EXPIRATION).and_then(Attr::be64);
        Some(DynamicEntry {
            key: key(item.get(NFTA_SET_ELEM_KEY)?)?,
            expires: expires.unwrap_or(0),
        })
    }));
}

/// A rule's chain and the packets its counter has counted; none for a rule without one.
pub(super) fn rule_counter(message: &Message<'_>) -> Option<(String, u64)> {
    let attrs = attrs(message);
    let mut instructions = attrs.get(NFTA_RULE_EXPRESSIONS)?.nested().map(Attr::nested);
    let counter = instructions.find(|instruction| {
        let name = instruction.get(NFTA_EXPR_NAME).and_then(Attr::text);
        name == Some(COUNTER)
    })?;
    let packets = counter.get(NFTA_EXPR_DATA)?.nested();
    let packets = packets.get(NFTA_COUNTER_PACKETS)?.be64()?;
    Some((owned(attrs.get(NFTA_RULE_CHAIN)?)?, packets))
}

/// An element as the kernel has it: a range over one field is two of them.
#[derive(Debug)]
pub(super) struct RawElement {
    pub(super) key: ElementKey,
    pub(super) ends_range: bool,
    /// Packets that matched it, if it counts.
    pub(super) packets: u64,
    pub(super) rest: ObservedElement,
}

fn raw_element(attrs: Attrs<'_>) -> Option<RawElement> {
    let flags = attrs
        .get(NFTA_SET_ELEM_FLAGS)
        .and_then(Attr::be32)
        .unwrap_or(0);
    let notes = attrs
        .get(NFTA_SET_ELEM_USERDATA)
        .map_or(&[][..], |notes| notes.value);
    Some(RawElement {
        key: key(attrs.get(NFTA_SET_ELEM_KEY)?)?,
        ends_range: flags & NFT_SET_ELEM_INTERVAL_END != 0,
        packets: counter_of(attrs, NFTA_SET_ELEM_EXPR, NFTA_SET_ELEM_EXPRESSIONS).unwrap_or(0),
        rest: ObservedElement {
            key_end: attrs.get(NFTA_SET_ELEM_KEY_END).and_then(key),
            data: attrs.get(NFTA_SET_ELEM_DATA).and_then(element_data),
            comment: userdata::comment(notes).map(Into::into),
        },
    })
}

fn element_data(attr: Attr<'_>) -> Option<ElementData> {
    match value::read_verdict(attr.nested()) {
        Some(verdict) => Some(ElementData::Verdict(verdict)),
        None => key(attr).map(ElementData::Value),
    }
}

/// Joins the two halves of ranges over one field: `[first, behind the last)` becomes first and
/// last.
pub(super) fn join_ranges(mut raw: Vec<RawElement>) -> HashMap<ElementKey, ObservedElement> {
    // Where one range ends the next may begin, with the same key: the end comes first.
    raw.sort_by(|a, b| (&a.key, !a.ends_range).cmp(&(&b.key, !b.ends_range)));
    let mut joined = HashMap::with_capacity(raw.len() / 2 + 1);
    let mut open: Option<(ElementKey, ObservedElement)> = None;
    for part in raw {
        if let Some((key, mut rest)) = open.take() {
            rest.key_end = predecessor(&part.key);
            joined.insert(key, rest);
        }
        // An end without a beginning says that what lies before the first range is not in the set;
        // the tool writes one.
        if !part.ends_range {
            open = Some((part.key, part.rest));
        }
    }
    if let Some((key, mut rest)) = open {
        // No end: the range goes up to the last address there is.
        rest.key_end = Some(ElementKey::from_bytes(&vec![u8::MAX; key.as_bytes().len()]));
        joined.insert(key, rest);
    }
    joined
}

/// The address before this one.
fn predecessor(key: &ElementKey) -> Option<ElementKey> {
    let mut bytes = key.as_bytes().to_vec();
    for byte in bytes.iter_mut().rev() {
        *byte = byte.wrapping_sub(1);
        if *byte != u8::MAX {
            return Some(ElementKey::from_bytes(&bytes));
        }
    }
    None
}

/// The packets counted by a counter among an object's instructions.
fn counter_of(attrs: Attrs<'_>, single: u16, list: u16) -> Option<u64> {
    instructions(attrs, single, list)
        .find(|(name, _)| *name == COUNTER)
        .and_then(|(_, fields)| fields.get(NFTA_COUNTER_PACKETS)?.be64())
}

/// The names of an object's instructions other than counters, which are all that we give to one.
pub(super) fn foreign_instructions(
    attrs: Attrs<'_>,
    single: u16,
    list: u16,
) -> impl Iterator<Item = &str> {
    instructions(attrs, single, list)
        .map(|(name, _)| name)
        .filter(|name| *name != COUNTER)
}

/// Name and fields of the instructions that run when a set's element matches: there is one alone in one attribute, or a list of them in
/// the other.
fn instructions(
    attrs: Attrs<'_>,
    single: u16,
    list: u16,
) -> impl Iterator<Item = (&str, Attrs<'_>)> {
    let alone = attrs.get(single).map(Attr::nested);
    let listed = attrs
        .get(list)
        .map_or(Attrs::new(&[]), Attr::nested)
        .map(Attr::nested);
    alone.into_iter().chain(listed).filter_map(|instruction| {
        let name = instruction.get(NFTA_EXPR_NAME)?.text()?;
        Some((name, instruction.get(NFTA_EXPR_DATA)?.nested()))
    })
}

/// A value, padded as our keys are: the kernel does not pad those of a single field.
fn key(attr: Attr<'_>) -> Option<ElementKey> {
    let bytes = value::read_bytes(attr)?;
    if bytes.len().is_multiple_of(4) {
        return Some(ElementKey::from_bytes(bytes));
    }
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().next_multiple_of(4), 0);
    Some(ElementKey::from_bytes(&padded))
}

fn padded_len(len: u32) -> usize {
    (len as usize).next_multiple_of(4)
}

fn owned(attr: Attr<'_>) -> Option<String> {
    attr.text().map(str::to_owned)
}
