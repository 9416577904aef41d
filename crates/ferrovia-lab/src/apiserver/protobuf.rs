//! Objects in protobuf, converted from JSON: the fields that a proxy reads, and managed fields, which it skips.

use ferrovia_core::wire::protobuf::{
    EndpointSliceMessage, EnvelopeMessage, ListMetadataMessage, MAGIC, NodeMessage, ObjectMessage,
    RawMessage, ServiceCidrMessage, ServiceMessage, StatusMessage, TypeMessage, WatchEventMessage,
};
use prost::Message;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::kind::Kind;
use super::status::Status;

/// Keys of fields with a length: the first and the second of a message.
const FIRST: u8 = 0x0a;
const SECOND: u8 = 0x12;

/// A second field of type varint, where every object has a message.
const WRONG_TYPE: &[u8] = b"\x10\x01";

/// An object without its envelope. If its JSON has fields of the wrong type, the protobuf has one, too, besides a readable name.
pub(super) fn object(kind: Kind, json: &[u8]) -> Vec<u8> {
    let mut value: Value = serde_json::from_slice(json).unwrap_or_default();
    without_nulls(&mut value);
    let metadata = ManagedObjectMessage::of(&value);
    let whole = match kind {
        Kind::Node => encoded::<NodeMessage>(&value),
        Kind::Service => encoded::<ServiceMessage>(&value),
        Kind::EndpointSlice => encoded::<EndpointSliceMessage>(&value),
        Kind::ServiceCidr => encoded::<ServiceCidrMessage>(&value),
    };
    let mut bytes = whole.unwrap_or_else(|| {
        let named = encoded::<ObjectMessage>(&value).unwrap_or_default();
        [&named[..], WRONG_TYPE].concat()
    });
    // Messages of the same number are merged.
    bytes.extend(metadata.encode_to_vec());
    bytes
}

/// An object in its envelope.
pub(super) fn enveloped(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let envelope = EnvelopeMessage {
        type_meta: Some(TypeMessage {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        }),
        raw: object.to_vec(),
    };
    [&MAGIC[..], &envelope.encode_to_vec()].concat()
}

/// A frame of a watch.
pub(super) fn event(event: &str, object: Vec<u8>) -> Vec<u8> {
    let message = WatchEventMessage {
        kind: event.to_owned(),
        object: Some(RawMessage { raw: object }),
    };
    let length = u32::try_from(message.encoded_len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], &message.encode_to_vec()].concat()
}

/// A `Status` in its envelope.
pub(super) fn status(status: &Status) -> Vec<u8> {
    let object = encoded::<StatusMessage>(&status.object()).unwrap_or_default();
    enveloped("v1", "Status", &object)
}

/// What a list begins with; items of this many bytes in all follow.
pub(super) fn list_head(kind: Kind, metadata: &Value, items: usize) -> Vec<u8> {
    let metadata = encoded::<ListMetadataMessage>(metadata).unwrap_or_default();
    let type_meta = TypeMessage {
        api_version: kind.api_version().to_owned(),
        kind: format!("{}List", kind.name()),
    };
    let mut list = Vec::new();
    append_delimited(&mut list, FIRST, &metadata);
    let mut head = MAGIC.to_vec();
    append_delimited(&mut head, FIRST, &type_meta.encode_to_vec());
    append_length(&mut head, SECOND, list.len() + items);
    head.extend(list);
    head
}

/// An object as an item of a list.
pub(super) fn item(object: &[u8]) -> Vec<u8> {
    let mut item = Vec::with_capacity(object.len() + 4);
    append_delimited(&mut item, SECOND, object);
    item
}

/// The length of [`item`].
pub(super) fn item_length(object: &[u8]) -> usize {
    1 + prost::length_delimiter_len(object.len()) + object.len()
}

fn append_delimited(out: &mut Vec<u8>, key: u8, content: &[u8]) {
    append_length(out, key, content.len());
    out.extend_from_slice(content);
}

fn append_length(out: &mut Vec<u8>, key: u8, length: usize) {
    out.push(key);
    // A vector has room for anything.
    let _ = prost::encode_length_delimiter(length, out);
}

fn encoded<M: Message + DeserializeOwned>(value: &Value) -> Option<Vec<u8>> {
    let message: M = serde_json::from_value(value.clone()).ok()?;
    Some(message.encode_to_vec())
}

/// `null` counts as missing.
fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

/// The part of an object that a proxy receives but does not read.
#[derive(Clone, PartialEq, Message)]
struct ManagedObjectMessage {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ManagedMetadataMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct ManagedMetadataMessage {
    #[prost(string, tag = "5")]
    uid: String,
    #[prost(message, repeated, tag = "17")]
    managed_fields: Vec<ManagedFieldsMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct ManagedFieldsMessage {
    #[prost(string, tag = "1")]
    manager: String,
    #[prost(message, optional, tag = "7")]
    fields: Option<RawMessage>,
}

impl ManagedObjectMessage {
    fn of(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        let managed_fields = metadata["managedFields"].as_array().into_iter().flatten();
        let managed_fields = managed_fields.map(|entry| ManagedFieldsMessage {
            manager: text(&entry["manager"]),
            fields: Some(RawMessage {
                raw: entry["fieldsV1"].to_string().into_bytes(),
            }),
        });
        Self {
            metadata: Some(ManagedMetadataMessage {
                uid: text(&metadata["uid"]),
                managed_fields: managed_fields.collect(),
            }),
        }
    }
}
