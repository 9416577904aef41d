//! One version of an object: its bytes, and the fields that the server needs.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::Error;
use super::kind::Kind;
use super::protobuf;
use super::selector::Selector;

/// Namespace (empty for cluster-scoped kinds) and name, in the order of lists.
pub(super) type Key = (Box<str>, Box<str>);

/// The creation time of objects without one. It is fixed, so that every run sends the same bytes.
const CREATED: &str = "2026-01-02T03:04:05Z";

/// One version of an object.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) key: Key,
    /// The JSON as an item of a list: without `kind` and `apiVersion`, which only the list has.
    pub(super) json: Bytes,
    /// The item in protobuf.
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
    /// Parses an object of a test or a client.
    pub(super) fn new(object: Value) -> Result<Self, Error> {
        let kind = Kind::of(&object).ok_or(Error::UnknownKind)?;
        let Value::Object(mut rest) = object else {
            return Err(Error::UnknownKind);
        };
        // Every response adds these two, so they are not stored.
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

    /// Sets the fields that the server assigns, and encodes the object.
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
    /// Whether the object matches this selector.
    pub(super) fn is_selected(&self, kind: Kind, selector: &Selector) -> bool {
        selector.matches(&self.labels, |field| self.field(kind, field))
    }

    /// Whether it is in this namespace, if one is given.
    pub(super) fn is_in(&self, namespace: Option<&str>) -> bool {
        namespace.is_none_or(|namespace| *self.key.0 == *namespace)
    }

    /// The object's bytes with the revision of its deletion.
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

/// No two objects are created at the same revision.
fn new_uid(revision: u64) -> Box<str> {
    format!("5f0e7a1c-0000-4000-8000-{revision:012x}").into()
}

/// Labels that are not strings are kept in the object but never match.
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
