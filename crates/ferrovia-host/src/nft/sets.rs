//! Definitions of sets and their elements as attributes.

use ferrovia_core::dialect::nft::{DataType, Element, ElementData, ElementKey, FieldType, SetSpec};
use ferrovia_netlink::Writer;
use ferrovia_netlink::uapi::nf_tables::{
    NFT_DATA_VERDICT, NFT_SET_CONCAT, NFT_SET_ELEM_INTERVAL_END, NFT_SET_EVAL, NFT_SET_INTERVAL,
    NFT_SET_MAP, NFT_SET_TIMEOUT, NFTA_COUNTER_BYTES, NFTA_COUNTER_PACKETS, NFTA_EXPR_DATA,
    NFTA_EXPR_NAME, NFTA_LIST_ELEM, NFTA_SET_DATA_LEN, NFTA_SET_DATA_TYPE, NFTA_SET_DESC,
    NFTA_SET_DESC_CONCAT, NFTA_SET_DESC_SIZE, NFTA_SET_ELEM_DATA, NFTA_SET_ELEM_FLAGS,
    NFTA_SET_ELEM_KEY, NFTA_SET_ELEM_KEY_END, NFTA_SET_ELEM_USERDATA, NFTA_SET_EXPR,
    NFTA_SET_FIELD_LEN, NFTA_SET_FLAGS, NFTA_SET_KEY_LEN, NFTA_SET_KEY_TYPE, NFTA_SET_USERDATA,
};

use super::{COUNTER, userdata, value};

/// What a set's definition says beside its name.
pub(super) fn write_definition(w: &mut Writer, spec: &SetSpec) {
    w.be32(NFTA_SET_FLAGS, set_flags(spec));
    w.be32(NFTA_SET_KEY_TYPE, type_number(spec.key));
    w.be32(NFTA_SET_KEY_LEN, kernel_len(spec.key) as u32);
    match spec.data {
        Some(DataType::Verdict) => w.be32(NFTA_SET_DATA_TYPE, NFT_DATA_VERDICT),
        Some(DataType::Fields(fields)) => {
            w.be32(NFTA_SET_DATA_TYPE, type_number(fields));
            w.be32(NFTA_SET_DATA_LEN, kernel_len(fields) as u32);
        }
        None => {}
    }
    w.nested(NFTA_SET_DESC, |w| {
        if let Some(size) = spec.dynamic {
            w.be32(NFTA_SET_DESC_SIZE, size);
        }
        if is_concat_interval(spec) {
            w.nested(NFTA_SET_DESC_CONCAT, |w| {
                for field in spec.key {
                    w.nested(NFTA_LIST_ELEM, |w| {
                        w.be32(NFTA_SET_FIELD_LEN, field.width() as u32);
                    });
                }
            });
        }
    });
    w.bytes(NFTA_SET_USERDATA, &userdata::for_set(spec));
    if spec.counter {
        // The kernel gives every element a copy of this.
        w.nested(NFTA_SET_EXPR, |w| {
            w.text(NFTA_EXPR_NAME, COUNTER);
            w.nested(NFTA_EXPR_DATA, |w| {
                w.be64(NFTA_COUNTER_BYTES, 0);
                w.be64(NFTA_COUNTER_PACKETS, 0);
            });
        });
    }
}

fn set_flags(spec: &SetSpec) -> u32 {
    [
        (spec.data.is_some(), NFT_SET_MAP),
        (spec.interval, NFT_SET_INTERVAL),
        (spec.dynamic.is_some(), NFT_SET_TIMEOUT | NFT_SET_EVAL),
        // Only for intervals: on other sets the kernel takes a description of fields for an error.
        (is_concat_interval(spec), NFT_SET_CONCAT),
    ]
    .iter()
    .filter(|(holds, _)| *holds)
    .fold(0, |flags, (_, flag)| flags | flag)
}

/// The tool's number of a type: six bits a field.
fn type_number(fields: &[FieldType]) -> u32 {
    fields.iter().fold(0, |number, field| {
        number << 6
            | match field {
                FieldType::Slot => 4,
                FieldType::Ipv4 => 7,
                FieldType::Ipv6 => 8,
                FieldType::Proto => 12,
                FieldType::Service => 13,
                FieldType::ClassId => 23,
            }
    })
}

/// Fields of a concatenation are padded, a single field is not.
fn kernel_len(fields: &[FieldType]) -> usize {
    match fields {
        [field] => field.width(),
        fields => fields.iter().map(|field| field.padded_width()).sum(),
    }
}

/// Ranges over several fields are one element with two keys; over one field they are two elements.
fn is_concat_interval(spec: &SetSpec) -> bool {
    spec.interval && spec.key.len() > 1
}

/// One element, whole when it is added, only what identifies it when it goes.
pub(super) fn write_element(w: &mut Writer, spec: &SetSpec, element: &Element, whole: bool) {
    let last = element.key_end.as_ref().unwrap_or(&element.key);
    let end = if spec.interval && !is_concat_interval(spec) {
        successor(last)
    } else {
        None
    };
    w.nested(NFTA_LIST_ELEM, |w| {
        write_value(w, NFTA_SET_ELEM_KEY, &element.key, spec.key);
        if is_concat_interval(spec) {
            write_value(w, NFTA_SET_ELEM_KEY_END, last, spec.key);
        }
        if whole {
            let open_end = spec.interval && !is_concat_interval(spec) && end.is_none();
            write_contents(w, spec, element, open_end);
        }
    });
    if let Some(end) = end {
        w.nested(NFTA_LIST_ELEM, |w| {
            write_value(w, NFTA_SET_ELEM_KEY, &end, spec.key);
            w.be32(NFTA_SET_ELEM_FLAGS, NFT_SET_ELEM_INTERVAL_END);
        });
    }
}

fn write_contents(w: &mut Writer, spec: &SetSpec, element: &Element, open_end: bool) {
    match (&element.data, spec.data) {
        (Some(ElementData::Verdict(verdict)), _) => {
            w.nested(NFTA_SET_ELEM_DATA, |w| value::write_verdict(w, verdict));
        }
        (Some(ElementData::Value(value)), Some(DataType::Fields(fields))) => {
            write_value(w, NFTA_SET_ELEM_DATA, value, fields);
        }
        // Data without a type cannot be written; the kernel refuses an element of a map without
        // data.
        (Some(ElementData::Value(_)) | None, _) => {}
    }
    let notes = userdata::for_element(element.comment.as_deref(), open_end);
    if !notes.is_empty() {
        w.bytes(NFTA_SET_ELEM_USERDATA, &notes);
    }
}

fn write_value(w: &mut Writer, kind: u16, value: &ElementKey, fields: &[FieldType]) {
    let bytes = value.as_bytes();
    let bytes = bytes.get(..kernel_len(fields)).unwrap_or(bytes);
    value::write_bytes(w, kind, bytes);
}

/// The address after this one, where a range that ends with it ends for the kernel; none after the
/// last there is.
fn successor(key: &ElementKey) -> Option<ElementKey> {
    let mut bytes = key.as_bytes().to_vec();
    for byte in bytes.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            return Some(ElementKey::from_bytes(&bytes));
        }
    }
    None
}
