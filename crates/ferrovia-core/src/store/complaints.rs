//! What authors are told of their objects.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::model::{Unusable, Warning, namespace_or_default, shown_name};
use crate::wire::{Kind, Metadata};

/// A hash of the warnings each object last had, so that an author hears of a problem once and not at every update.
#[derive(Debug, Default)]
pub(super) struct Complaints(HashMap<(Kind, String), u64>);

impl Complaints {
    /// The warnings, unless the object had the same ones when it was last seen.
    pub(super) fn only_news(
        &mut self,
        kind: Kind,
        metadata: &Metadata,
        warnings: Vec<Warning>,
    ) -> Vec<Warning> {
        if warnings.is_empty() && self.0.is_empty() {
            return warnings;
        }
        let object = (kind, object_name(&metadata.namespace, &metadata.name));
        if warnings.is_empty() {
            self.0.remove(&object);
            return warnings;
        }
        let mut hasher = DefaultHasher::new();
        warnings.hash(&mut hasher);
        let hash = hasher.finish();
        if self.0.insert(object, hash) == Some(hash) {
            Vec::new()
        } else {
            warnings
        }
    }

    /// The object has gone.
    pub(super) fn forget(&mut self, kind: Kind, namespace: &str, name: &str) {
        self.0.remove(&(kind, object_name(namespace, name)));
    }

    /// Nothing is wrong with any object.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The object's name for finding it again, whatever is in it. Not fit to be shown.
fn object_name(namespace: &str, name: &str) -> String {
    format!("{}/{name}", namespace_or_default(namespace))
}

/// Says why an object is not used, unless that is as it should be.
pub(super) fn unusable(kind: Kind, metadata: &Metadata, reason: Unusable) -> Vec<Warning> {
    match reason {
        Unusable::NotOurs(_) => Vec::new(),
        Unusable::Broken { field, problem } => {
            let problem = format!("{problem}; the object is not used");
            vec![Warning {
                object: shown_object(kind, metadata),
                field,
                problem,
                operator_detail: None,
            }]
        }
    }
}

/// `Kind namespace/name`, with names that may be hostile made fit to be shown.
fn shown_object(kind: Kind, metadata: &Metadata) -> String {
    let name = shown_name(&metadata.name);
    if kind == Kind::Node {
        return format!("{} {name}", kind.name());
    }
    let namespace = shown_name(namespace_or_default(&metadata.namespace));
    format!("{} {namespace}/{name}", kind.name())
}
