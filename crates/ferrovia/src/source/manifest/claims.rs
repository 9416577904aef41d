//! Who defines which object.
//!
//! An object may be defined in several files. The claim that was there first is in force, the others wait for
//! it to go. Objects themselves are not kept, only their digests; who needs a waiting one reads its file again.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use ferrovia_core::wire::{Kind, Object};

use super::digest::Digest;

/// Identity of an object. Sorts by kind first, so that batches have Services before their slices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ObjectKey {
    pub(super) kind: Kind,
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
}

impl ObjectKey {
    pub(super) fn of(object: &Object) -> Self {
        let metadata = object.metadata();
        Self {
            kind: object.kind(),
            namespace: metadata.namespace.as_str().into(),
            name: metadata.name.as_str().into(),
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.namespace {
            "" => write!(f, "{} {}", self.kind.name(), self.name),
            namespace => write!(f, "{} {namespace}/{}", self.kind.name(), self.name),
        }
    }
}

/// A file's definition of an object.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) file: Arc<Path>,
    pub(super) line: usize,
    pub(super) digest: Digest,
}

/// What the rest of the world was told of an object last.
#[derive(Debug)]
pub(super) struct InForce {
    pub(super) file: Arc<Path>,
    pub(super) digest: Digest,
}

/// All that is known of one object.
#[derive(Debug, Default)]
pub(super) struct Entry {
    /// In the order they came.
    claims: Vec<Claim>,
    pub(super) in_force: Option<InForce>,
}

impl Entry {
    /// The claim that should be in force.
    pub(super) fn first(&self) -> Option<&Claim> {
        self.claims.first()
    }
}

/// Every object of the folder.
#[derive(Debug, Default)]
pub(super) struct Claims {
    entries: HashMap<Arc<ObjectKey>, Entry>,
}

impl Claims {
    /// The one shared copy of a key; files and entries hold the same.
    pub(super) fn intern(&mut self, key: ObjectKey) -> Arc<ObjectKey> {
        if let Some((known, _)) = self.entries.get_key_value(&key) {
            return Arc::clone(known);
        }
        let key = Arc::new(key);
        self.entries.insert(Arc::clone(&key), Entry::default());
        key
    }

    /// Notes that a file defines an object. When it is new there and has to wait, the claim it waits for.
    pub(super) fn stake(&mut self, key: &Arc<ObjectKey>, claim: Claim) -> Option<&Claim> {
        let claims = &mut self.entries.entry(Arc::clone(key)).or_default().claims;
        if let Some(known) = claims.iter_mut().find(|known| known.file == claim.file) {
            *known = claim;
            return None;
        }
        claims.push(claim);
        claims.first().filter(|_| claims.len() > 1)
    }

    /// Notes that a file no longer defines an object.
    pub(super) fn withdraw(&mut self, key: &ObjectKey, file: &Path) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.claims.retain(|claim| &*claim.file != file);
        }
    }

    pub(super) fn entry(&mut self, key: &ObjectKey) -> Option<&mut Entry> {
        self.entries.get_mut(key)
    }

    /// Forgets an object nobody defines any more.
    pub(super) fn remove(&mut self, key: &ObjectKey) {
        self.entries.remove(key);
    }
}
