//! Notes the `nft` tool leaves on objects for itself, which the kernel keeps without looking at
//! them.
//!
//! They are triples of type, length (a byte each) and value. Sets need them so that the tool prints
//! elements in the right byte order, and so that keys without a type name of their own (slots) can
//! be listed and loaded again; elements and rules have their comments here. Numbers are in the
//! host's byte order, as the tool has them.

use ferrovia_core::dialect::nft::{DataType, FieldType, SetSpec};

/// What a set's notes are about.
const SET_KEY_BYTEORDER: u8 = 0;
const SET_DATA_BYTEORDER: u8 = 1;
const SET_KEY_TYPEOF: u8 = 3;
const SET_DATA_TYPEOF: u8 = 4;
const SET_DATA_INTERVAL: u8 = 6;

/// Comments of elements and rules.
const COMMENT: u8 = 0;
/// An element's flags, and the one for a range that ends with the last address there is.
const ELEMENT_FLAGS: u8 = 1;
const ELEMENT_OPEN_END: u32 = 1;

/// An example expression: which kind it is, and what the kind needs to know.
const EXAMPLE_KIND: u8 = 0;
const EXAMPLE_DATA: u8 = 1;
/// The tool's numbers of kinds of expressions.
const KIND_PAYLOAD: u32 = 7;
const KIND_META: u32 = 9;
const KIND_CONCAT: u32 = 13;
const KIND_NUMGEN: u32 = 23;

/// Longest comment the tool reads back.
const MAX_COMMENT: usize = 128;

/// The notes of a set.
pub(super) fn for_set(set: &SetSpec) -> Vec<u8> {
    let mut notes = Vec::with_capacity(160);
    number(&mut notes, SET_KEY_BYTEORDER, byteorder(set.key));
    if let Some(data) = set.data {
        number(&mut notes, SET_DATA_BYTEORDER, byteorder(fields_of(data)));
    }
    // A slot is just an integer to the tool, so the whole set is described by example, as the text
    // form does.
    let by_example = set.key.contains(&FieldType::Slot);
    describe(&mut notes, SET_KEY_TYPEOF, set.key, by_example);
    if let Some(data) = set.data {
        describe(&mut notes, SET_DATA_TYPEOF, fields_of(data), by_example);
        number(&mut notes, SET_DATA_INTERVAL, 0);
    }
    notes
}

/// The notes of an element; empty if there is nothing to note.
pub(super) fn for_element(comment: Option<&str>, open_end: bool) -> Vec<u8> {
    let mut notes = comment.map(for_comment).unwrap_or_default();
    if open_end {
        number(&mut notes, ELEMENT_FLAGS, ELEMENT_OPEN_END);
    }
    notes
}

/// The notes of something that has a comment only.
pub(super) fn for_comment(comment: &str) -> Vec<u8> {
    let mut end = comment.len().min(MAX_COMMENT);
    while !comment.is_char_boundary(end) {
        end -= 1;
    }
    let comment = comment.get(..end).unwrap_or_default();
    let mut notes = Vec::with_capacity(comment.len() + 3);
    nested(&mut notes, COMMENT, |notes| {
        notes.extend_from_slice(comment.as_bytes());
        notes.push(0);
    });
    notes
}

/// The comment among an element's or a rule's notes.
pub(super) fn comment(notes: &[u8]) -> Option<&str> {
    let mut rest = notes;
    while let [kind, len, behind @ ..] = rest {
        let (value, next) = behind.split_at_checked(usize::from(*len))?;
        if *kind == COMMENT {
            return std::str::from_utf8(value.strip_suffix(&[0]).unwrap_or(value)).ok();
        }
        rest = next;
    }
    None
}

fn fields_of(data: DataType) -> &'static [FieldType] {
    match data {
        DataType::Verdict => &[],
        DataType::Fields(fields) => fields,
    }
}

/// The tool's number for a byte order: none for concatenations, which have one per field, and for
/// single bytes.
fn byteorder(fields: &[FieldType]) -> u32 {
    match fields {
        [FieldType::ClassId | FieldType::Slot] => 1,
        [FieldType::Ipv4 | FieldType::Ipv6 | FieldType::Service] => 2,
        _ => 0,
    }
}

/// What a key or data are made of. The tool wants to know of every concatenation, but its fields
/// only where types do not say it.
fn describe(notes: &mut Vec<u8>, kind: u8, fields: &[FieldType], by_example: bool) {
    match fields {
        [] => {}
        [field] if by_example => nested(notes, kind, |notes| example(notes, *field)),
        [_] => {}
        fields => nested(notes, kind, |notes| {
            expression(notes, KIND_CONCAT, |notes| {
                for (position, field) in (0..).zip(fields).filter(|_| by_example) {
                    nested(notes, position, |notes| example(notes, *field));
                }
            });
        }),
    }
}

/// An expression that has the field's type; the same as the text form names.
fn example(notes: &mut Vec<u8>, field: FieldType) {
    /// The tool's numbers of headers, and of the fields in them.
    const TRANSPORT: [u32; 2] = [11, 2];
    const IPV4_DADDR: [u32; 2] = [12, 12];
    const IPV6_DADDR: [u32; 2] = [13, 9];
    const META_PRIORITY: [u32; 1] = [2];
    const META_L4PROTO: [u32; 1] = [16];
    /// Random, modulus, offset.
    const NUMGEN: [u32; 3] = [1, 65536, 0];
    let (kind, data): (u32, &[u32]) = match field {
        FieldType::Ipv4 => (KIND_PAYLOAD, &IPV4_DADDR),
        FieldType::Ipv6 => (KIND_PAYLOAD, &IPV6_DADDR),
        FieldType::Service => (KIND_PAYLOAD, &TRANSPORT),
        FieldType::Proto => (KIND_META, &META_L4PROTO),
        FieldType::ClassId => (KIND_META, &META_PRIORITY),
        FieldType::Slot => (KIND_NUMGEN, &NUMGEN),
    };
    expression(notes, kind, |notes| {
        for (position, value) in (0..).zip(data) {
            number(notes, position, *value);
        }
    });
}

fn expression(notes: &mut Vec<u8>, kind: u32, data: impl FnOnce(&mut Vec<u8>)) {
    number(notes, EXAMPLE_KIND, kind);
    nested(notes, EXAMPLE_DATA, data);
}

fn number(notes: &mut Vec<u8>, kind: u8, value: u32) {
    nested(notes, kind, |notes| {
        notes.extend_from_slice(&value.to_ne_bytes());
    });
}

fn nested(notes: &mut Vec<u8>, kind: u8, value: impl FnOnce(&mut Vec<u8>)) {
    let start = notes.len();
    notes.extend_from_slice(&[kind, 0]);
    value(notes);
    // A key has at most five fields of 30 bytes and a comment at most 129 bytes, so a byte is
    // enough.
    let len = u8::try_from(notes.len() - start - 2).unwrap_or(u8::MAX);
    if let Some(place) = notes.get_mut(start + 1) {
        *place = len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As nft 1.0.6 writes it for the same definitions.
    #[test]
    #[cfg(target_endian = "little")]
    fn golden_notes_of_sets() {
        use FieldType::{ClassId, Ipv4, Proto, Service, Slot};
        let spec = SetSpec {
            name: "x",
            key: &[],
            data: None,
            interval: false,
            dynamic: None,
            counter: false,
        };
        let data = |fields| Some(DataType::Fields(fields));
        let hex = |set| {
            for_set(&set)
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        };
        assert_eq!(
            hex(SetSpec {
                key: &[Ipv4],
                ..spec
            }),
            "000402000000"
        );
        assert_eq!(
            hex(SetSpec {
                key: &[Ipv4, Proto, Service],
                data: data(&[ClassId]),
                ..spec
            }),
            "000400000000010401000000030800040d0000000100060400000000"
        );
        assert_eq!(
            hex(SetSpec {
                key: &[ClassId],
                data: Some(DataType::Verdict),
                ..spec
            }),
            "000401000000010400000000060400000000"
        );
        assert_eq!(
            hex(SetSpec {
                key: &[ClassId, Slot],
                data: data(&[ClassId]),
                ..spec
            }),
            "000400000000010401000000033400040d000000012c000e00040900000001060004020000\
             00011a000417000000011200040100000001040000010002040000000004\
             0e0004090000000106000402000000060400000000"
        );
    }

    #[test]
    fn comments_are_found_among_other_notes() {
        let notes = for_element(Some("shop/web:http"), true);
        assert_eq!(comment(&notes), Some("shop/web:http"));
        assert_eq!(comment(&for_element(None, true)), None);
        assert_eq!(comment(&[1, 1, 9, 0, 3, b'a', b'b', 0]), Some("ab"));
        assert_eq!(comment(&[0, 200, b'a']), None);
        assert_eq!(for_element(None, false), [0_u8; 0]);
    }

    #[test]
    fn long_comments_are_cut_between_characters() {
        let long = "ä".repeat(100);
        assert_eq!(comment(&for_comment(&long)), Some("ä".repeat(64).as_str()));
        let odd = format!("a{long}");
        assert_eq!(comment(&for_comment(&odd)).unwrap().len(), 127);
    }
}
