//! Which warnings were already reported about each object.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::model::{Unusable, Warning, namespace_or_default, shown_name};
use crate::wire::{Kind, Metadata};

/// A hash of the last warnings of each object, so that a problem is reported once and not with every update.
#[derive(Debug, Default)]
pub(super) struct WarningHistory(HashMap<(Kind, String), u64>);

impl WarningHistory {
    /// The warnings, unless the object had the same ones before.
    pub(super) fn only_new(
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

    /// The object was deleted.
    pub(super) fn forget(&mut self, kind: Kind, namespace: &str, name: &str) {
        self.0.remove(&(kind, object_name(namespace, name)));
    }

    /// No object has warnings.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A lookup key for the object, unescaped: not for display.
fn object_name(namespace: &str, name: &str) -> String {
    format!("{}/{name}", namespace_or_default(namespace))
}

/// The warning about an object that cannot be used; none if it is not for this proxy.
pub(super) fn unusable(kind: Kind, metadata: &Metadata, reason: Unusable) -> Vec<Warning> {
    match reason {
        Unusable::NotOurs(_) => Vec::new(),
        Unusable::Broken { field, problem } => {
            let problem = format!("{problem}; {} ignored", kind.name());
            vec![Warning {
                object: shown_object(kind, metadata),
                field,
                problem,
                operator_detail: None,
            }]
        }
    }
}

/// `Kind namespace/name`, with untrusted names escaped.
fn shown_object(kind: Kind, metadata: &Metadata) -> String {
    let name = shown_name(&metadata.name);
    if kind == Kind::Node {
        return format!("{} {name}", kind.name());
    }
    let namespace = shown_name(namespace_or_default(&metadata.namespace));
    format!("{} {namespace}/{name}", kind.name())
}
