//! Bytes of a manifest file to objects. Pure, and never panics whatever the bytes.
//!
//! A file is decoded whole or not at all: its first fault is the result, with the line in the file and, where
//! the text has one, the field. A document is looked at first for its kind and then read as that kind, because
//! fields may come before `kind` (`addressType` of an EndpointSlice sorts before it) and only a parser that
//! knows the type can say where a value of the wrong type stands.

mod field;
mod json;
mod peek;
mod yaml;

use std::path::Path;

use ferrovia_core::wire::{EndpointSlice, Endpoints, Kind, Node, Object, Service, ServiceCidr};
use serde::{Deserialize, Deserializer};

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Documents separated by `---`.
    Yaml,
    /// Documents one after the other.
    Json,
}

impl Format {
    /// By the file's extension; `None` for a file that is no manifest, such as an editor's backup.
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "yaml" | "yml" => Some(Self::Yaml),
            "json" => Some(Self::Json),
            _ => None,
        }
    }
}

/// An object and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// The object, with the namespace filled in.
    pub object: Box<Object>,
    /// The line it starts on, from 1.
    pub line: usize,
}

/// Why a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct DecodeError {
    /// The line, from 1, never beyond the end of the file.
    pub line: usize,
    /// The column, from 1.
    pub column: Option<usize>,
    /// The field, as in `spec.ports[0].port`.
    pub field: Option<String>,
    /// What is wrong.
    pub what: String,
}

impl DecodeError {
    fn new(line: usize, what: impl Into<String>) -> Self {
        Self {
            line,
            column: None,
            field: None,
            what: what.into(),
        }
    }

    /// Found while looking at one entry of a list alone.
    fn in_item(self, index: usize) -> Self {
        let field = match &self.field {
            Some(field) => format!("items[{index}].{field}"),
            None => format!("items[{index}]"),
        };
        Self {
            field: Some(field),
            ..self
        }
    }
}

/// Every object of a file, in its order. Kinds the proxy does not care about are left out.
pub fn decode(bytes: &[u8], format: Format) -> Result<Vec<Decoded>, DecodeError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
        DecodeError::new(1 + line_breaks(valid), "the file is not UTF-8 text")
    })?;
    // Some editors put a byte order mark in front; it means nothing in UTF-8.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match format {
        Format::Yaml => yaml::decode(text),
        Format::Json => json::decode(text),
    }
}

/// What every API object says about itself.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Head {
    api_version: Option<String>,
    kind: Option<String>,
}

/// What is to be done with a document.
enum Role {
    Object(Kind),
    List,
    Skipped,
}

impl Head {
    fn role(&self) -> Result<Role, &'static str> {
        let Some(kind) = self.kind.as_deref().filter(|kind| !kind.is_empty()) else {
            return Err("is missing, so this is not a Kubernetes object");
        };
        let group = self.group();
        if let Some(known) = Kind::ALL.into_iter().find(|known| known.name() == kind) {
            // Others use our kinds' names too, such as Knative its Service.
            let ours = group.is_none_or(|group| group == group_of(known));
            return Ok(if ours {
                Role::Object(known)
            } else {
                Role::Skipped
            });
        }
        let is_list = kind.strip_suffix("List").is_some_and(|item| {
            item.is_empty() || Kind::ALL.into_iter().any(|known| known.name() == item)
        });
        if is_list {
            return Ok(Role::List);
        }
        tracing::debug!(kind, "a kind the proxy has no use for is left out");
        Ok(Role::Skipped)
    }

    /// What an entry of the list `self` is. Entries of a typed list, as the API server gives it, carry no kind.
    fn role_of_item(&self, item: &Self) -> Result<Role, &'static str> {
        let item_kind = self
            .kind
            .as_deref()
            .and_then(|kind| kind.strip_suffix("List"));
        let implied = match (&item.kind, item_kind) {
            (None, Some(kind)) if !kind.is_empty() => Self {
                api_version: self.api_version.clone(),
                kind: Some(kind.to_owned()),
            }
            .role(),
            _ => item.role(),
        };
        match implied? {
            Role::List => Err("is a list inside a list, which is not supported"),
            role => Ok(role),
        }
    }

    /// The API group, empty for the core one; `None` when no version is given.
    fn group(&self) -> Option<&str> {
        let version = self
            .api_version
            .as_deref()
            .filter(|version| !version.is_empty())?;
        Some(version.split_once('/').map_or("", |(group, _)| group))
    }
}

fn group_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Service | Kind::Endpoints | Kind::Node => "",
        Kind::EndpointSlice => "discovery.k8s.io",
        Kind::ServiceCidr => "networking.k8s.io",
    }
}

/// Reads a value as an object of this kind, in either format.
fn typed<'de, D: Deserializer<'de>>(kind: Kind, value: D) -> Result<Object, D::Error> {
    Ok(match kind {
        Kind::Service => Object::Service(Service::deserialize(value)?),
        Kind::EndpointSlice => Object::EndpointSlice(EndpointSlice::deserialize(value)?),
        Kind::Endpoints => Object::Endpoints(Endpoints::deserialize(value)?),
        Kind::Node => Object::Node(Node::deserialize(value)?),
        Kind::ServiceCidr => Object::ServiceCidr(ServiceCidr::deserialize(value)?),
    })
}

/// What the API server does on admission and the core leaves to the source: every object has a name, and a
/// namespaced one a namespace.
fn admit(mut object: Object, line: usize) -> Result<Decoded, DecodeError> {
    if object.metadata().name.is_empty() {
        return Err(DecodeError {
            field: Some("metadata.name".to_owned()),
            ..DecodeError::new(line, "is missing")
        });
    }
    match &mut object {
        Object::Service(Service { metadata, .. })
        | Object::EndpointSlice(EndpointSlice { metadata, .. })
        | Object::Endpoints(Endpoints { metadata, .. }) => {
            if metadata.namespace.is_empty() {
                "default".clone_into(&mut metadata.namespace);
            }
        }
        Object::Node(Node { metadata, .. }) | Object::ServiceCidr(ServiceCidr { metadata, .. }) => {
            metadata.namespace.clear();
        }
    }
    Ok(Decoded {
        object: Box::new(object),
        line,
    })
}

fn line_breaks(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == b'\n').count()
}

/// Messages quote the file; what could move a terminal's cursor is shown as an escape.
fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_control() {
            out.extend(char.escape_default());
        } else {
            out.push(char);
        }
    }
    out
}
