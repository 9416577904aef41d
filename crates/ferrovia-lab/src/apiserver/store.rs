//! The objects and their history.
//!
//! All kinds share one revision, as in a real cluster. Every object is stored as the bytes that lists
//! and watches send, so that serving one is a copy. Every change is kept in a log together with the
//! previous object: watches read the log from their cursor, and a list of an older revision is the
//! current state with the later changes undone.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::kind::Kind;
use super::object::{Draft, Key, Object};
use super::selector::Selector;

/// One change of one object; at least one of the two exists.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) revision: u64,
    pub(super) before: Option<Arc<Object>>,
    pub(super) after: Option<Arc<Object>>,
}

/// All objects of all kinds.
#[derive(Clone, Debug)]
pub(super) struct Store {
    revision: u64,
    /// How many changes of a kind are kept.
    history: usize,
    kinds: BTreeMap<Kind, Collection>,
}

/// The objects of one kind.
#[derive(Clone, Debug)]
struct Collection {
    objects: BTreeMap<Key, Arc<Object>>,
    log: VecDeque<Change>,
    /// How many changes were removed from the beginning of the log.
    dropped: u64,
    /// Clients can watch from this revision on.
    oldest: u64,
}

/// A position in the log of a kind: the next change to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor(u64);

/// The part of a list to return.
#[derive(Debug)]
pub(super) struct Window<'a> {
    /// Only objects of this namespace.
    pub(super) namespace: Option<&'a str>,
    pub(super) selector: &'a Selector,
    pub(super) start: Option<Key>,
    pub(super) revision: u64,
    /// The maximum number of objects.
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
            // Not 0, which has another meaning to clients.
            revision: 1000,
            history,
            kinds: Kind::ALL.into_iter().map(|kind| (kind, empty())).collect(),
        }
    }

    /// The revision of the last change.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// The oldest revision for watches and lists.
    pub(super) fn oldest(&self, kind: Kind) -> u64 {
        self.collection(kind).oldest
    }

    /// Creates or replaces an object and returns its revision.
    pub(super) fn apply(&mut self, draft: Draft) -> u64 {
        let kind = draft.kind;
        let before = self.collection(kind).objects.get(&draft.key).cloned();
        let after = draft.finish(before.as_deref(), self.revision + 1);
        self.record(kind, before, Some(Arc::new(after)));
        self.revision
    }

    /// Deletes an object and returns the revision of the deletion; `None` if it does not exist.
    pub(super) fn delete(&mut self, kind: Kind, namespace: &str, name: &str) -> Option<u64> {
        let key = (namespace.into(), name.into());
        let before = self.collection(kind).objects.get(&key).cloned()?;
        self.record(kind, Some(before), None);
        Some(self.revision)
    }

    /// Expires all earlier revisions.
    ///
    /// The log stays, for running watches: compaction of a real server does not affect watches that are
    /// up to date.
    pub(super) fn compact(&mut self) {
        for collection in self.kinds.values_mut() {
            collection.oldest = self.revision;
        }
    }

    /// The current version of an object.
    pub(super) fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<Arc<Object>> {
        let key = (namespace.into(), name.into());
        self.collection(kind).objects.get(&key).cloned()
    }

    /// The current objects of a kind.
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
            if object.is_selected(kind, window.selector) {
                objects.push(object.clone());
            }
        }
        let rest = walk.peek().map(|object| object.key.clone());
        Page {
            objects,
            rest: rest.map(|key| (key, walk.count())),
        }
    }

    /// The cursor of a watch that starts after a revision.
    pub(super) fn cursor_after(&self, kind: Kind, revision: u64) -> Cursor {
        let collection = self.collection(kind);
        let position = collection.log.partition_point(|c| c.revision <= revision);
        Cursor(collection.dropped + position as u64)
    }

    /// The next change for a watch; `Err` if it was removed from the log before it was read.
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

    /// Records a change in the log and in the current state.
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
}

impl Collection {
    /// The objects of a window before selection, at its revision.
    fn walk<'a>(&'a self, window: &Window<'a>) -> impl Iterator<Item = &'a Arc<Object>> + use<'a> {
        // The first change after the revision has the object at the revision.
        let mut undone: BTreeMap<&Key, Option<&Arc<Object>>> = BTreeMap::new();
        let later = self.log.partition_point(|c| c.revision <= window.revision);
        for change in self.log.range(later..) {
            if let Some(object) = change.before.as_ref().or(change.after.as_ref()) {
                undone.entry(&object.key).or_insert(change.before.as_ref());
            }
        }
        // No name is empty, so this is before the first object by default.
        let namespace = window.namespace;
        let first = || (namespace.unwrap_or_default().into(), "".into());
        let start = window.start.clone().unwrap_or_else(first);
        let deleted: Vec<_> = undone
            .iter()
            .filter(|(key, _)| ***key >= start && !self.objects.contains_key(**key))
            .filter_map(|(_, before)| *before)
            .collect();
        let present = self.objects.range(start..);
        let present = present.filter_map(move |(key, object)| match undone.get(key) {
            Some(before) => *before,
            None => Some(object),
        });
        merge(present, deleted.into_iter()).take_while(move |object| object.is_in(namespace))
    }
}

/// Merges two sequences by key.
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

/// The watch is so slow that the log no longer has its next change.
#[derive(Clone, Copy, Debug)]
pub(super) struct TooSlow;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Applies or deletes by a fixed pseudo-random sequence.
    fn step(store: &mut Store, random: &mut u32) {
        *random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let name = format!("s{}", (*random >> 16) % 12);
        let namespace = ["a", "b"][(*random >> 24) as usize % 2];
        if (*random >> 28).is_multiple_of(3) {
            store.delete(Kind::Service, namespace, &name);
        } else {
            let metadata = json!({"name": name, "namespace": namespace});
            let object = json!({"kind": "Service", "metadata": metadata});
            store.apply(Draft::new(object).unwrap());
        }
    }

    fn list(
        store: &Store,
        namespace: Option<&str>,
        revision: u64,
        limit: usize,
    ) -> Vec<Arc<Object>> {
        let mut all = vec![];
        let mut start = None;
        loop {
            let window = Window {
                namespace,
                selector: &Selector::default(),
                start,
                revision,
                limit,
            };
            let page = store.page(Kind::Service, &window);
            all.extend(page.objects);
            let Some((next, left)) = page.rest else {
                return all;
            };
            assert!(left > 0);
            start = Some(next);
        }
    }

    #[test]
    fn lists_every_revision() {
        let mut store = Store::new(10_000);
        let mut random = 1;
        let mut past = vec![];
        for _ in 0..300 {
            past.push((store.revision(), store.all(Kind::Service)));
            step(&mut store, &mut random);
        }
        for (revision, then) in &past {
            for namespace in [None, Some("a"), Some("b")] {
                for limit in [1, 5, usize::MAX] {
                    let listed = list(&store, namespace, *revision, limit);
                    let expected = then.iter().filter(|object| object.is_in(namespace));
                    assert!(listed.iter().map(|o| &o.json).eq(expected.map(|o| &o.json)));
                }
            }
        }
    }

    #[test]
    fn reports_a_watch_that_is_too_slow() {
        let mut store = Store::new(3);
        let mut cursor = store.cursor_after(Kind::Service, store.revision());
        for number in 0..3 {
            let metadata = json!({"name": format!("s{number}")});
            let object = json!({"kind": "Service", "metadata": metadata});
            store.apply(Draft::new(object).unwrap());
        }
        let first = store.read(Kind::Service, &mut cursor).unwrap().unwrap();
        assert_eq!(&*first.after.as_ref().unwrap().key.1, "s0");
        let mut late = store.cursor_after(Kind::Service, 0);
        store.delete(Kind::Service, "default", "s0");
        assert!(store.read(Kind::Service, &mut late).is_err());
        assert!(store.read(Kind::Service, &mut cursor).is_ok());
    }
}
