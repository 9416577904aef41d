//! Bytes of an answer in JSON to objects, straight into the slim structs of [`wire`](ferrovia_core::wire), and what both encodings share.
//! Never panics whatever the bytes.

use std::borrow::Cow;
use std::collections::BTreeMap;

use ferrovia_core::wire::{
    EndpointSlice, Endpoints, Kind, Metadata, Node, Object, Service, ServiceCidr,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::protobuf;

/// A bookmark with this annotation, set to `true`, ends the list at the beginning of a watch.
const LIST_ENDS: &str = "k8s.io/initial-events-end";

/// The longest object that is read. The API server stores none larger than about half of it.
pub(super) const LONGEST_OBJECT: usize = 4 << 20;

/// How much of a longer one is searched for its name.
const LOOKED_AT: usize = 1024;

/// The longest piece of the server's words that is repeated in a log.
const QUOTED: usize = 300;

/// Which object, and as it was when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    /// Namespace and name with a slash between; the namespace is empty for what has none.
    pub(super) key: String,
    /// Empty if the server did not say.
    pub(super) version: String,
}

impl Identity {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            key: format!("{}/{}", metadata.namespace, metadata.name),
            version: metadata.resource_version.clone().unwrap_or_default(),
        }
    }
}

/// One line of a watch.
#[derive(Debug)]
pub(super) enum News {
    /// An object appeared or changed.
    Applied(Box<Object>),
    /// An object went, or matches the selectors no more.
    Deleted(Identity),
    /// Nothing happened up to this version.
    Bookmark { version: String, ends_list: bool },
    /// The watch cannot go on.
    Error(Status),
}

/// Why something cannot be used.
#[derive(Debug)]
pub(super) struct Fault {
    /// The object, if that much could be read.
    pub(super) object: Option<Identity>,
    /// What is wrong.
    pub(super) what: String,
}

/// What the server says of a request it refused, or of a watch it gives up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    pub(super) code: u16,
    pub(super) reason: String,
    pub(super) message: String,
    details: Option<Details>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Details {
    retry_after_seconds: Option<u64>,
}

impl Status {
    pub(super) fn new(
        code: u16,
        reason: String,
        message: String,
        retry_after_seconds: Option<u64>,
    ) -> Self {
        Self {
            code,
            reason,
            message,
            details: Some(Details {
                retry_after_seconds,
            }),
        }
    }

    /// The body of an answer with this code, which need not be a `Status` at all.
    pub(super) fn of_answer(code: u16, body: &[u8]) -> Self {
        // Refusals come in either encoding, whatever the answer would have had.
        let status = if protobuf::is_enveloped(body) {
            protobuf::status(body)
        } else {
            serde_json::from_slice::<Self>(body).ok()
        };
        let status = status.unwrap_or_else(|| Self {
            message: quoted(&String::from_utf8_lossy(body)),
            ..Self::default()
        });
        Self {
            code,
            message: quoted(&status.message),
            ..status
        }
    }

    /// The history that was asked for is forgotten.
    pub(super) fn is_gone(&self) -> bool {
        self.code == 410 || self.reason == "Expired" || self.reason == "Gone"
    }

    /// A watch was refused because of the version it should begin with: forgotten, malformed, or of a history that the server does not
    /// know, such as after it was restored from a backup.
    pub(super) fn is_about_version(&self) -> bool {
        self.is_gone() || self.is_ahead() || matches!(self.code, 400 | 422)
    }

    /// The resourceVersion that was asked for is in the server's future: it was restored from a backup, or its cache lags.
    pub(super) fn is_ahead(&self) -> bool {
        self.code == 504 && self.message.contains("Too large resource version")
    }

    /// When the server wants to be asked again.
    pub(super) fn retry_after_seconds(&self) -> Option<u64> {
        self.details.as_ref()?.retry_after_seconds
    }
}

/// A list's own `metadata`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ListMetadata {
    pub(super) resource_version: String,
    /// Where the next page begins; empty after the last one.
    #[serde(rename = "continue")]
    pub(super) next: String,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// The little that every object has, for those that cannot be read whole.
#[derive(Deserialize)]
struct Named {
    metadata: NamedMetadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NamedMetadata {
    name: String,
    namespace: String,
    resource_version: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct JsonBookmark {
    metadata: BookmarkMetadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BookmarkMetadata {
    resource_version: String,
    annotations: Option<BTreeMap<String, String>>,
}

/// What is read of a bookmark.
pub(super) struct Bookmark {
    pub(super) version: String,
    pub(super) annotations: BTreeMap<String, String>,
}

/// The object of an event, in one of the encodings.
pub(super) trait Content {
    fn object(&self, kind: Kind) -> Result<Object, Fault>;
    /// Nothing if the object has no name.
    fn identity(&self) -> Option<Identity>;
    fn bookmark(&self) -> Result<Bookmark, Fault>;
    fn status(&self) -> Result<Status, Fault>;
}

struct InJson<'a>(&'a [u8]);

impl Content for InJson<'_> {
    fn object(&self, kind: Kind) -> Result<Object, Fault> {
        object(kind, self.0)
    }

    fn identity(&self) -> Option<Identity> {
        named(self.0)
    }

    fn bookmark(&self) -> Result<Bookmark, Fault> {
        let JsonBookmark { metadata } = read(self.0)?;
        Ok(Bookmark {
            version: metadata.resource_version,
            annotations: metadata.annotations.unwrap_or_default(),
        })
    }

    fn status(&self) -> Result<Status, Fault> {
        read(self.0)
    }
}

/// One line of a watch of this kind.
pub(super) fn news(kind: Kind, line: &[u8]) -> Result<News, Fault> {
    let envelope: Envelope<'_> = read(line)?;
    let content = InJson(envelope.object.get().as_bytes());
    event(kind, &envelope.kind, &content)
}

/// An event of this type in a watch of this kind.
pub(super) fn event(kind: Kind, event: &str, content: &impl Content) -> Result<News, Fault> {
    match event {
        "ADDED" | "MODIFIED" => Ok(News::Applied(Box::new(content.object(kind)?))),
        "DELETED" => match content.identity() {
            Some(identity) => Ok(News::Deleted(identity)),
            None => Err(fault("a deletion of an object without a name")),
        },
        "BOOKMARK" => {
            let Bookmark {
                version,
                annotations,
            } = content.bookmark()?;
            if version.is_empty() {
                return Err(fault("a bookmark without a version"));
            }
            Ok(News::Bookmark {
                version,
                ends_list: annotations
                    .get(LIST_ENDS)
                    .is_some_and(|value| value == "true"),
            })
        }
        "ERROR" => {
            let status = content.status()?;
            Ok(News::Error(Status {
                message: quoted(&status.message),
                ..status
            }))
        }
        other => Err(fault(format!(
            "an event of the unknown type {:?}",
            quoted(other)
        ))),
    }
}

/// One object of this kind.
pub(super) fn object(kind: Kind, bytes: &[u8]) -> Result<Object, Fault> {
    let object = typed(kind, bytes).map_err(|error| Fault {
        object: named(bytes),
        what: quoted(&error.to_string()),
    })?;
    with_name(object)
}

/// Refuses an object without a name.
pub(super) fn with_name(object: Object) -> Result<Object, Fault> {
    if object.metadata().name.is_empty() {
        return Err(fault("metadata.name is missing"));
    }
    Ok(object)
}

/// The `metadata` of a list.
pub(super) fn list_metadata(bytes: &[u8]) -> Result<ListMetadata, Fault> {
    read(bytes)
}

/// The fault of an object that is longer than allowed, of which this is the beginning. Servers write the name first, so that much can
/// be told of it.
pub(super) fn too_long(beginning: &[u8]) -> Fault {
    let beginning = beginning.get(..LOOKED_AT).unwrap_or(beginning);
    let text = String::from_utf8_lossy(beginning);
    let metadata = text.split_once(r#""metadata":{"#).map(|(_, rest)| rest);
    let object = metadata.and_then(|metadata| {
        let namespace = text_field(metadata, r#""namespace":""#).unwrap_or_default();
        let name = text_field(metadata, r#""name":""#)?;
        Some(Identity {
            key: format!("{namespace}/{name}"),
            version: String::new(),
        })
    });
    too_long_object(object)
}

/// The fault of an object that is longer than allowed, with its name if that could be read.
pub(super) fn too_long_object(object: Option<Identity>) -> Fault {
    Fault {
        object,
        what: format!("it is longer than {LONGEST_OBJECT} bytes"),
    }
}

fn text_field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let (value, _) = text.split_once(key)?.1.split_once('"')?;
    Some(value)
}

fn typed(kind: Kind, bytes: &[u8]) -> Result<Object, serde_json::Error> {
    Ok(match kind {
        Kind::Service => Object::Service(serde_json::from_slice::<Service>(bytes)?),
        Kind::EndpointSlice => {
            Object::EndpointSlice(serde_json::from_slice::<EndpointSlice>(bytes)?)
        }
        Kind::Endpoints => Object::Endpoints(serde_json::from_slice::<Endpoints>(bytes)?),
        Kind::Node => Object::Node(serde_json::from_slice::<Node>(bytes)?),
        Kind::ServiceCidr => Object::ServiceCidr(serde_json::from_slice::<ServiceCidr>(bytes)?),
    })
}

fn named(bytes: &[u8]) -> Option<Identity> {
    let Named { metadata } = serde_json::from_slice(bytes).ok()?;
    (!metadata.name.is_empty()).then(|| Identity {
        key: format!("{}/{}", metadata.namespace, metadata.name),
        version: metadata.resource_version,
    })
}

fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Fault> {
    serde_json::from_slice(bytes).map_err(|error| fault(quoted(&error.to_string())))
}

pub(super) fn fault(what: impl Into<String>) -> Fault {
    Fault {
        object: None,
        what: what.into(),
    }
}

/// The server's words, short enough for a log and without what could move a terminal's cursor.
pub(super) fn quoted(text: &str) -> String {
    let mut out: String = text
        .chars()
        .take(QUOTED)
        .map(|char| if char.is_control() { ' ' } else { char })
        .collect();
    if out.len() < text.len() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests;
