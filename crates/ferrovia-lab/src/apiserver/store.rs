//! The objects and their history.
//!
//! One revision counts for all kinds, as in a real cluster. Every object is kept as the bytes that
//! lists and watches send, so that serving one is a copy. Every change is kept in a log together
//! with what was before: watches read on in it from where they are, and a list of an older
//! revision is the present with the later changes undone.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::Error;
use super::kind::Kind;
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
    labels: BTreeMap<String, String>,
    /// The values of [`Kind::selectable`], in its order.
    fields: Vec<String>,
    uid: Box<str>,
    created: Box<str>,
}

/// One change of one object; at least one of the two is there.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) revision: u64,
    pub(super) before: Option<Arc<Object>>,
    pub(super) after: Option<Arc<Object>>,
}

/// All objects of all kinds.
#[derive(Debug)]
pub(super) struct Store {
    revision: u64,
    next_uid: u64,
    /// How many changes of a kind are kept.
    history: usize,
    kinds: BTreeMap<Kind, Collection>,
}

/// The objects of one kind.
#[derive(Debug)]
struct Collection {
    objects: BTreeMap<Key, Arc<Object>>,
    log: VecDeque<Change>,
    /// How many changes have left the log at its old end.
    dropped: u64,
    /// Everything that happened after this revision is in the log, as far as clients are told.
    oldest: u64,
}

/// A place in the log of a kind: the next change to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor(u64);

/// What a list is to hold.
#[derive(Debug)]
pub(super) struct Window<'a> {
    /// Only objects of this namespace.
    pub(super) namespace: Option<&'a str>,
    pub(super) selector: &'a Selector,
    /// The first key to look at.
    pub(super) start: Option<Key>,
    /// The revision to show.
    pub(super) revision: u64,
    /// How many objects at most.
    pub(super) limit: usize,
}

/// A part of a list.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) objects: Vec<Arc<Object>>,
    /// Where the next page starts, and how many objects are left, selected or not.
    pub(super) rest: Option<(Key, usize)>,
}

impl Store {
    pub(super) fn new(history: usize) -> Self {
        let empty = || Collection {
            objects: BTreeMap::new(),
            log: VecDeque::new(),
            dropped: 0,
            oldest: 0,
        };
        Self {
            // An empty cluster has had a life already, and 0 means something else to clients.
            revision: 1000,
            next_uid: 1,
            history,
            kinds: Kind::ALL.into_iter().map(|kind| (kind, empty())).collect(),
        }
    }

    /// The revision of the last change.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// The oldest revision from which a watch may start, or that a list may show.
    pub(super) fn oldest(&self, kind: Kind) -> u64 {
        self.collection(kind).oldest
    }

    /// Creates or replaces an object and returns its revision.
    pub(super) fn apply(&mut self, object: Value) -> Result<u64, Error> {
        let kind = Kind::of(&object).ok_or(Error::UnknownKind)?;
        let Value::Object(mut object) = object else {
            return Err(Error::UnknownKind);
        };
        // Every answer writes these two anew, so they are not part of what is kept.
        object.remove("kind");
        object.remove("apiVersion");
        let key = key_of(kind, &mut object)?;
        let before = self.collection(kind).objects.get(&key).cloned();
        let revision = self.revision + 1;
        let after = self.finish(kind, key, object, before.as_deref(), revision)?;
        self.record(kind, before, Some(Arc::new(after)));
        Ok(revision)
    }

    /// Deletes an object and returns the revision of that; nothing if there is none.
    pub(super) fn delete(&mut self, kind: Kind, namespace: &str, name: &str) -> Option<u64> {
        let key = (namespace.into(), name.into());
        let before = self.collection(kind).objects.get(&key).cloned()?;
        self.record(kind, Some(before), None);
        Some(self.revision)
    }

    /// Forgets the history: nobody can start from before now.
    ///
    /// The log stays, for the watches that are reading it: a real server compacts its storage, and
    /// watches that are up to date do not notice.
    pub(super) fn compact(&mut self) {
        for collection in self.kinds.values_mut() {
            collection.oldest = self.revision;
        }
    }

    /// One object as it is now.
    pub(super) fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<Arc<Object>> {
        let key = (namespace.into(), name.into());
        self.collection(kind).objects.get(&key).cloned()
    }

    /// All objects of a kind as they are now.
    pub(super) fn all(&self, kind: Kind) -> Vec<Arc<Object>> {
        self.collection(kind).objects.values().cloned().collect()
    }

    /// Part of a list. The revision must be neither older than [`Store::oldest`] nor in the future.
    pub(super) fn page(&self, kind: Kind, window: &Window<'_>) -> Page {
        let collection = self.collection(kind);
        let mut walk = collection.walk(window).peekable();
        let mut objects = vec![];
        while objects.len() < window.limit {
            let Some(object) = walk.next() else { break };
            if window
                .selector
                .matches(&object.labels, |f| object.field(kind, f))
            {
                objects.push(object.clone());
            }
        }
        let rest = walk.peek().map(|object| object.key.clone());
        Page {
            objects,
            rest: rest.map(|key| (key, walk.count())),
        }
    }

    /// Where a watch starts that wants all that happens after a revision.
    pub(super) fn cursor_after(&self, kind: Kind, revision: u64) -> Cursor {
        let collection = self.collection(kind);
        let position = collection.log.partition_point(|c| c.revision <= revision);
        Cursor(collection.dropped + position as u64)
    }

    /// The next change for a watch; `Err` if it has left the log before it was read.
    pub(super) fn read(&self, kind: Kind, cursor: &mut Cursor) -> Result<Option<&Change>, TooSlow> {
        let collection = self.collection(kind);
        let position = cursor.0.checked_sub(collection.dropped).ok_or(TooSlow)?;
        let change = usize::try_from(position)
            .ok()
            .and_then(|position| collection.log.get(position));
        if change.is_some() {
            cursor.0 += 1;
        }
        Ok(change)
    }

    fn collection(&self, kind: Kind) -> &Collection {
        &self.kinds[&kind]
    }

    /// Writes a change into the log and into the present.
    fn record(&mut self, kind: Kind, before: Option<Arc<Object>>, after: Option<Arc<Object>>) {
        self.revision += 1;
        let Some(collection) = self.kinds.get_mut(&kind) else {
            return;
        };
        match (&before, &after) {
            (_, Some(object)) => {
                collection
                    .objects
                    .insert(object.key.clone(), object.clone());
            }
            (Some(object), None) => {
                collection.objects.remove(&object.key);
            }
            (None, None) => {}
        }
        collection.log.push_back(Change {
            revision: self.revision,
            before,
            after,
        });
        while collection.log.len() > self.history {
            if let Some(change) = collection.log.pop_front() {
                collection.oldest = collection.oldest.max(change.revision);
                collection.dropped += 1;
            }
        }
    }

    /// Fills in what the server gives an object, and makes its bytes.
    fn finish(
        &mut self,
        kind: Kind,
        key: Key,
        mut object: Map<String, Value>,
        before: Option<&Object>,
        revision: u64,
    ) -> Result<Object, Error> {
        let metadata = metadata_of(&mut object)?;
        let text = |name: &str| metadata.get(name).and_then(Value::as_str).map(Box::from);
        let uid: Box<str> = match (before, text("uid")) {
            (Some(before), _) => before.uid.clone(),
            (None, Some(uid)) => uid,
            (None, None) => self.new_uid(),
        };
        let created: Box<str> = match (before, text("creationTimestamp")) {
            (Some(before), _) => before.created.clone(),
            (None, created) => created.unwrap_or_else(|| CREATED.into()),
        };
        metadata.insert("uid".into(), json!(uid));
        metadata.insert("creationTimestamp".into(), json!(created));
        metadata.insert("resourceVersion".into(), json!(revision.to_string()));
        let labels = labels_of(metadata);
        let object = Value::Object(object);
        let fields = kind
            .selectable()
            .iter()
            .map(|(_, pointer)| selectable_text(object.pointer(pointer)))
            .collect();
        Ok(Object {
            key,
            json: object.to_string().into(),
            labels,
            fields,
            uid,
            created,
        })
    }

    fn new_uid(&mut self) -> Box<str> {
        let uid = format!("5f0e7a1c-0000-4000-8000-{:012x}", self.next_uid);
        self.next_uid += 1;
        uid.into()
    }
}

impl Collection {
    /// The objects of a window before selection, at its revision.
    fn walk<'a>(&'a self, window: &Window<'a>) -> impl Iterator<Item = &'a Arc<Object>> + use<'a> {
        // The first change after the revision knows what was there at the revision.
        let mut undone: BTreeMap<&Key, Option<&Arc<Object>>> = BTreeMap::new();
        let later = self.log.partition_point(|c| c.revision <= window.revision);
        for change in self.log.range(later..) {
            if let Some(object) = change.before.as_ref().or(change.after.as_ref()) {
                undone.entry(&object.key).or_insert(change.before.as_ref());
            }
        }
        let start = match (&window.start, window.namespace) {
            (Some(key), _) => Bound::Included(key.clone()),
            (None, Some(namespace)) => Bound::Included((namespace.into(), "".into())),
            (None, None) => Bound::Unbounded,
        };
        let namespace = window.namespace;
        let from = start.clone();
        let deleted: Vec<_> = undone
            .iter()
            .filter(|(key, _)| !self.objects.contains_key(**key))
            .filter(move |(key, _)| match &from {
                Bound::Included(start) => **key >= start,
                _ => true,
            })
            .filter_map(|(_, object)| *object)
            .collect();
        let present =
            self.objects
                .range((start, Bound::Unbounded))
                .filter_map(move |(key, object)| match undone.get(key) {
                    Some(before) => *before,
                    None => Some(object),
                });
        merge(present, deleted.into_iter())
            .take_while(move |object| namespace.is_none_or(|namespace| *object.key.0 == *namespace))
    }
}

/// Two sequences in the order of keys, as one.
fn merge<'a>(
    left: impl Iterator<Item = &'a Arc<Object>>,
    right: impl Iterator<Item = &'a Arc<Object>>,
) -> impl Iterator<Item = &'a Arc<Object>> {
    let (mut left, mut right) = (left.peekable(), right.peekable());
    std::iter::from_fn(move || match (left.peek(), right.peek()) {
        (Some(a), Some(b)) if b.key < a.key => right.next(),
        (Some(_), _) => left.next(),
        (None, _) => right.next(),
    })
}

/// A watch that read so slowly that the log went on without it.
#[derive(Clone, Copy, Debug)]
pub(super) struct TooSlow;

impl Object {
    /// Whether a watch or a list with this selector sees the object.
    pub(super) fn is_selected(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        selector: &Selector,
    ) -> bool {
        namespace.is_none_or(|namespace| *self.key.0 == *namespace)
            && selector.matches(&self.labels, |field| self.field(kind, field))
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

fn metadata_of(object: &mut Map<String, Value>) -> Result<&mut Map<String, Value>, Error> {
    object
        .get_mut("metadata")
        .and_then(Value::as_object_mut)
        .ok_or(Error::NoName)
}

/// The key of an object; a namespaced one without a namespace is put into `default`.
fn key_of(kind: Kind, object: &mut Map<String, Value>) -> Result<Key, Error> {
    let metadata = metadata_of(object)?;
    let name = metadata.get("name").and_then(Value::as_str);
    let name = Box::from(name.ok_or(Error::NoName)?);
    if !kind.namespaced() {
        return Ok(("".into(), name));
    }
    let namespace = metadata.entry("namespace").or_insert(json!("default"));
    Ok((namespace.as_str().ok_or(Error::NoName)?.into(), name))
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
