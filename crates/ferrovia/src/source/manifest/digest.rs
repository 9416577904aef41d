//! 128 bits that stand for a content we do not want to keep.
//!
//! A wire object is big and the store has already taken what it needs, so a folder remembers of every object
//! and every file only its digest, which is enough to tell whether it changed.

use std::hash::{DefaultHasher, Hash, Hasher};

use ferrovia_core::wire::Object;

/// Equal for equal contents, and for all practical purposes different for different ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Digest(u64, u64);

impl Digest {
    /// Of a file's bytes.
    pub(super) fn of_bytes(bytes: &[u8]) -> Self {
        Self::of(bytes)
    }

    /// Of an object as we understood it: a comment or a field we do not read makes no difference.
    pub(super) fn of_object(object: &Object) -> Self {
        Self::of(object)
    }

    /// Two hashes of 64 bits that start differently.
    fn of(content: impl Hash) -> Self {
        let [first, second] = [0u8, 1].map(|start| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u8(start);
            content.hash(&mut hasher);
            hasher.finish()
        });
        Self(first, second)
    }
}
