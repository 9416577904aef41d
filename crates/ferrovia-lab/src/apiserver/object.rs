//! One version of an object: its bytes, and the little of it the server must know.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::Error;
use super::kind::Kind;
use super::protobuf;
use super::selector::Selector;

/// Namespace (empty if the kind has none) and name, in the order in which lists give them.
pub(super) type Key = (Box<str>, Box<str>);

/// When objects were made that do not say so themselves. The lab has no use for the real time,
/// and every run sends the same bytes.
const CREATED: &str = "2026-01-02T03:04:05Z";

/// One version of an object.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) key: Key,
    /// The JSON as lists hold it: without kind and version of the API, which only the list says.
    pub(super) json: Bytes,
    /// The same in protobuf.
    pub(super) protobuf: Bytes,
    labels: BTreeMap<String, String>,
    /// The values of [`Kind::selectable`], in its order.
    fields: Vec<String>,
    uid: Box<str>,
    created: Box<str>,
}

/// An object that is to be stored.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) kind: Kind,
    pub(super) key: Key,
    metadata: Map<String, Value>,
    /// Everything else.
    rest: Map<String, Value>,
}

impl Draft {
    /// Takes an object as a test or a client wrote it.
    pub(super) fn new(object: Value) -> Result<Self, Error> {
        let kind = Kind::of(&object).ok_or(Error::UnknownKind)?;
        let Value::Object(mut rest) = object else {
            return Err(Error::UnknownKind);
        };
        // Every answer writes these two anew, so they are not part of what is kept.
        rest.remove("kind");
        rest.remove("apiVersion");
        let Some(Value::Object(mut metadata)) = rest.remove("metadata") else {
            return Err(Error::NoName);
        };
        let key = key_of(kind, &mut metadata)?;
        Ok(Self {
            kind,
            key,
            metadata,
            rest,
        })
    }

    /// Fills in what the server gives an object, and makes its bytes.
    pub(super) fn finish(mut self, before: Option<&Object>, revision: u64) -> Object {
        let said = |name: &str| self.metadata.get(name).and_then(Value::as_str);
        let (uid, created): (Box<str>, Box<str>) = match before {
            Some(before) => (before.uid.clone(), before.created.clone()),
            None => (
                said("uid").map_or_else(|| new_uid(revision), Box::from),
                said("creationTimestamp").unwrap_or(CREATED).into(),
            ),
        };
        let given = [
            ("uid", json!(uid)),
            ("creationTimestamp", json!(created)),
            ("resourceVersion", json!(revision.to_string())),
        ];
        let given = given.map(|(name, value)| (name.to_owned(), value));
        self.metadata.extend(given);
        let labels = labels_of(&self.metadata);
        self.rest.insert("metadata".into(), self.metadata.into());
        let object = Value::Object(self.rest);
        let selectable = self.kind.selectable().iter();
        let json = object.to_string();
        Object {
            key: self.key,
            protobuf: protobuf::object(self.kind, json.as_bytes()).into(),
            json: json.into(),
            labels,
            fields: selectable
                .map(|(_, pointer)| selectable_text(object.pointer(pointer)))
                .collect(),
            uid,
            created,
        }
    }
}

impl Object {
    /// Whether a watch or a list with this selector sees the object.
    pub(super) fn is_selected(&self, kind: Kind, selector: &Selector) -> bool {
        selector.matches(&self.labels, |field| self.field(kind, field))
    }

    /// Whether it lives in this namespace, if one is asked for.
    pub(super) fn is_in(&self, namespace: Option<&str>) -> bool {
        namespace.is_none_or(|namespace| *self.key.0 == *namespace)
    }

    /// The object's bytes, but with the revision at which it went.
    pub(super) fn last_state(&self, revision: u64) -> Bytes {
        let Ok(mut object) = serde_json::from_slice::<Value>(&self.json) else {
            return self.json.clone();
        };
        object["metadata"]["resourceVersion"] = json!(revision.to_string());
        object.to_string().into()
    }

    /// The whole object as a value.
    pub(super) fn value(&self, kind: Kind) -> Value {
        let mut object: Value = serde_json::from_slice(&self.json).unwrap_or_default();
        object["kind"] = json!(kind.name());
        object["apiVersion"] = json!(kind.api_version());
        object
    }

    fn field(&self, kind: Kind, name: &str) -> Option<&str> {
        match name {
            "metadata.name" => Some(&self.key.1),
            "metadata.namespace" => Some(&self.key.0),
            _ => {
                let place = kind.selectable().iter().position(|(n, _)| *n == name)?;
                self.fields.get(place).map(String::as_str)
            }
        }
    }
}

/// The key of an object; a namespaced one without a namespace is put into `default`.
fn key_of(kind: Kind, metadata: &mut Map<String, Value>) -> Result<Key, Error> {
    let name = metadata.get("name").and_then(Value::as_str);
    let name = Box::from(name.ok_or(Error::NoName)?);
    if !kind.namespaced() {
        return Ok(("".into(), name));
    }
    let namespace = metadata.entry("namespace").or_insert(json!("default"));
    Ok((namespace.as_str().ok_or(Error::NoName)?.into(), name))
}

/// No two objects are made at the same revision.
fn new_uid(revision: u64) -> Box<str> {
    format!("5f0e7a1c-0000-4000-8000-{revision:012x}").into()
}

/// Labels that are not texts are kept in the object but select nothing.
fn labels_of(metadata: &Map<String, Value>) -> BTreeMap<String, String> {
    let labels = metadata.get("labels").and_then(Value::as_object);
    labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

fn selectable_text(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}
