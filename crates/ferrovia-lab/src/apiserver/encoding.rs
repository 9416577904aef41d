//! JSON or protobuf: which one a client gets, and events and objects in either.

use bytes::{Bytes, BytesMut};
use http::header::ACCEPT;
use http::{HeaderMap, StatusCode};

use super::kind::Kind;
use super::object::Object;
use super::protobuf;
use super::status::Status;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The encoding of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Json,
    Protobuf,
}

impl Encoding {
    /// The encoding for a client with this `Accept` header: the first media type that the server supports.
    pub(super) fn negotiated(headers: &HeaderMap, knows_protobuf: bool) -> Result<Self, Status> {
        let Some(accepted) = headers.get(ACCEPT) else {
            return Ok(Self::Json);
        };
        let accepted = accepted.to_str().unwrap_or_default();
        let media_types = accepted.split(',').map(essence);
        let mut known = media_types.filter_map(|media_type| match media_type {
            PROTOBUF if knows_protobuf => Some(Self::Protobuf),
            "application/json" | "application/*" | "*/*" => Some(Self::Json),
            _ => None,
        });
        let not_acceptable = || Status::of_code(StatusCode::NOT_ACCEPTABLE, None);
        known.next().ok_or_else(not_acceptable)
    }

    pub(super) fn content_type(self, is_watch: bool) -> &'static str {
        match (self, is_watch) {
            (Self::Json, _) => "application/json",
            (Self::Protobuf, false) => PROTOBUF,
            (Self::Protobuf, true) => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }

    /// An object as an item of a list.
    pub(super) fn of(self, object: &Object) -> Bytes {
        match self {
            Self::Json => object.json.clone(),
            Self::Protobuf => object.protobuf.clone(),
        }
    }

    /// An object of this kind as an item of a list, from its JSON.
    pub(super) fn of_json(self, kind: Kind, json: Bytes) -> Bytes {
        match self {
            Self::Json => json,
            Self::Protobuf => protobuf::object(kind, &json).into(),
        }
    }

    /// Appends an event to a piece of a watch.
    pub(super) fn append_event(self, piece: &mut BytesMut, kind: Kind, event: &str, object: &[u8]) {
        let (api_version, name) = (kind.api_version(), kind.name());
        match self {
            Self::Json => append_json(piece, kind, event, object),
            Self::Protobuf => {
                let object = protobuf::enveloped(api_version, name, object);
                piece.extend_from_slice(&protobuf::event(event, object));
            }
        }
    }

    /// The event of a watch that ends with an error.
    pub(super) fn error_event(self, status: &Status) -> Vec<u8> {
        match self {
            Self::Json => {
                format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", status.object()).into_bytes()
            }
            Self::Protobuf => protobuf::event("ERROR", protobuf::status(status)),
        }
    }

    /// The body of an error response.
    pub(super) fn status(self, status: &Status) -> Vec<u8> {
        match self {
            Self::Json => status.object().to_string().into_bytes(),
            Self::Protobuf => protobuf::status(status),
        }
    }

    /// The body of a response with one object.
    pub(super) fn single(self, kind: Kind, object: &Object) -> Vec<u8> {
        match self {
            Self::Json => object.value(kind).to_string().into_bytes(),
            Self::Protobuf => {
                protobuf::enveloped(kind.api_version(), kind.name(), &object.protobuf)
            }
        }
    }
}

/// A media type without its parameters.
fn essence(media_type: &str) -> &str {
    media_type.split(';').next().unwrap_or_default().trim()
}

fn append_json(piece: &mut BytesMut, kind: Kind, event: &str, object: &[u8]) {
    let head = format!(
        r#"{{"type":"{event}","object":{{"kind":"{}","apiVersion":"{}","#,
        kind.name(),
        kind.api_version(),
    );
    // The object's own bracket is replaced by the one of the head; it always has metadata.
    let fields = object.get(1..).unwrap_or_default();
    piece.reserve(head.len() + fields.len() + 2);
    piece.extend_from_slice(head.as_bytes());
    piece.extend_from_slice(fields);
    piece.extend_from_slice(b"}\n");
}
