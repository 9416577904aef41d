//! Bytes of an answer in protobuf to objects. Never panics whatever the bytes.
//!
//! ```text
//! a list:  envelope ─ List ─▶ item ─▶ object
//! a watch: Frames ─▶ event { type, object } ─▶ envelope ─▶ object
//! ```
//!
//! The messages are in [`wire::protobuf`](ferrovia_core::wire::protobuf).

mod fields;
mod frames;
mod list;

use ferrovia_core::wire::protobuf::{
    EndpointSliceMessage, ListMetadataMessage, MAGIC, MetadataMessage, NodeMessage, ObjectMessage,
    ServiceCidrMessage, ServiceMessage, StatusMessage,
};
use ferrovia_core::wire::{Kind, Object};
use prost::{DecodeError, Message};

pub(super) use frames::{Frame, FrameTooLarge, Frames};
pub(super) use list::List;

use super::decode::{
    self, Bookmark, Content, Fault, Identity, ListMetadata, News, Status, fault, quoted,
};
use fields::{beginning, field};

/// Numbers of fields: of an event, of what holds its object, of an envelope, and of every object.
const EVENT_TYPE: u64 = 1;
const EVENT_OBJECT: u64 = 2;
const EXTENSION_RAW: u64 = 1;
const ENVELOPE_RAW: u64 = 2;
const METADATA: u64 = 1;

/// One frame of a watch of this kind.
pub(super) fn news(kind: Kind, frame: &[u8]) -> Result<News, Fault> {
    let (event, object) = event(frame).ok_or_else(|| fault("not a watch event in protobuf"))?;
    decode::event(kind, event, &InProtobuf(object))
}

/// One object of this kind, without its envelope.
pub(super) fn object(kind: Kind, bytes: &[u8]) -> Result<Object, Fault> {
    let object = typed(kind, bytes).map_err(|error| Fault {
        object: named(bytes),
        what: quoted(&error.to_string()),
    })?;
    decode::with_name(object)
}

/// The `metadata` of a list.
pub(super) fn list_metadata(bytes: &[u8]) -> Result<ListMetadata, Fault> {
    let message = ListMetadataMessage::decode(bytes).map_err(|error| undecodable(&error))?;
    Ok(ListMetadata {
        resource_version: message.resource_version,
        next: message.next,
    })
}

/// Whether an answer is an object in protobuf.
pub(super) fn is_enveloped(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// A `Status` in its envelope.
pub(super) fn status(bytes: &[u8]) -> Option<Status> {
    InProtobuf(unwrapped(bytes)?).status().ok()
}

/// The fault of an item that is longer than allowed, of which this is the beginning. Objects begin with their metadata, and that with the
/// name.
pub(super) fn item_too_long(item: &[u8]) -> Fault {
    decode::too_long_object(named(item))
}

/// The fault of a frame that is longer than allowed, of which this is the beginning.
pub(super) fn frame_too_long(frame: &[u8]) -> Fault {
    let object = beginning(frame, EVENT_OBJECT)
        .and_then(|object| beginning(object, EXTENSION_RAW))
        .and_then(|raw| raw.strip_prefix(&MAGIC))
        .and_then(|envelope| beginning(envelope, ENVELOPE_RAW));
    decode::too_long_object(object.and_then(named))
}

/// The type and the object of an event.
fn event(frame: &[u8]) -> Option<(&str, &[u8])> {
    let event = std::str::from_utf8(field(frame, EVENT_TYPE).ok()??).ok()?;
    let object = field(frame, EVENT_OBJECT).ok()??;
    Some((event, unwrapped(field(object, EXTENSION_RAW).ok()??)?))
}

/// What an envelope holds; one without content holds an object without fields.
fn unwrapped(bytes: &[u8]) -> Option<&[u8]> {
    let envelope = bytes.strip_prefix(&MAGIC)?;
    Some(field(envelope, ENVELOPE_RAW).ok()?.unwrap_or_default())
}

/// The name of an object that cannot be read, or whose end is missing.
fn named(object: &[u8]) -> Option<Identity> {
    let mut metadata = MetadataMessage::default();
    // What was read before a fault is kept, and the name comes first.
    let _ = metadata.merge(beginning(object, METADATA)?);
    identity(metadata)
}

fn identity(metadata: MetadataMessage) -> Option<Identity> {
    (!metadata.name.is_empty()).then(|| Identity {
        key: format!("{}/{}", metadata.namespace, metadata.name),
        version: metadata.resource_version,
    })
}

fn typed(kind: Kind, bytes: &[u8]) -> Result<Object, Undecodable> {
    Ok(match kind {
        Kind::Service => Object::Service(ServiceMessage::decode(bytes)?.into()),
        Kind::EndpointSlice => Object::EndpointSlice(EndpointSliceMessage::decode(bytes)?.into()),
        Kind::Node => Object::Node(NodeMessage::decode(bytes)?.into()),
        Kind::ServiceCidr => Object::ServiceCidr(ServiceCidrMessage::decode(bytes)?.into()),
        Kind::Endpoints => return Err(Undecodable::Unexpected(kind)),
    })
}

/// Why an object cannot be decoded.
#[derive(Debug, thiserror::Error)]
enum Undecodable {
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    /// The API is never asked for this kind.
    #[error("unexpected kind {}", .0.name())]
    Unexpected(Kind),
}

fn undecodable(error: &DecodeError) -> Fault {
    fault(quoted(&error.to_string()))
}

/// The object of an event, without its envelope.
struct InProtobuf<'a>(&'a [u8]);

impl Content for InProtobuf<'_> {
    fn object(&self, kind: Kind) -> Result<Object, Fault> {
        object(kind, self.0)
    }

    fn identity(&self) -> Option<Identity> {
        identity(ObjectMessage::decode(self.0).ok()?.metadata?)
    }

    fn bookmark(&self) -> Result<Bookmark, Fault> {
        let message = ObjectMessage::decode(self.0).map_err(|error| undecodable(&error))?;
        let metadata = message.metadata.unwrap_or_default();
        Ok(Bookmark {
            version: metadata.resource_version,
            annotations: metadata.annotations,
        })
    }

    fn status(&self) -> Result<Status, Fault> {
        let message = StatusMessage::decode(self.0).map_err(|error| undecodable(&error))?;
        let details = message.details.unwrap_or_default();
        let retry_after = u64::try_from(details.retry_after_seconds).unwrap_or(0);
        Ok(Status::new(
            u16::try_from(message.code).unwrap_or(0),
            message.reason,
            message.message,
            (retry_after > 0).then_some(retry_after),
        ))
    }
}

#[cfg(test)]
mod tests;
