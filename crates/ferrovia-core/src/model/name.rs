//! Names: which texts may name a thing, how a bad one is shown, and one shared copy of each good one.
//!
//! Names end up in comments of firewall rules, in logs and on terminals. What passes here needs no escaping anywhere.

use std::collections::HashSet;
use std::sync::Arc;

use super::Unusable;
use crate::wire::Metadata;

/// The API's limit for the name of an object.
const MAX_NAME: usize = 253;
/// The API's limit for the name of a port, and for the value of a label.
const MAX_LABEL: usize = 63;
/// How much of a bad text is shown. Enough to find it, too little to flood a log.
const MAX_EXCERPT: usize = 40;

/// Whether a text may name an object: lower-case letters, digits, `-` and `.`, with a letter or digit at both ends.
pub fn valid_name(text: &str) -> bool {
    text.len() <= MAX_NAME && is_name_of(text, |byte| byte == b'-' || byte == b'.')
}

/// Whether a text may name a port: like an object but shorter and without dots. The empty name is one, that of an unnamed port.
pub(super) fn valid_port_name(text: &str) -> bool {
    text.is_empty() || (text.len() <= MAX_LABEL && is_name_of(text, |byte| byte == b'-'))
}

/// Whether a text may be a label's value, such as the name of a zone: also upper-case letters and `_`, but never empty.
pub(super) fn valid_label_value(text: &str) -> bool {
    text.len() <= MAX_LABEL
        && !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
}

/// Namespace and name of an object, checked.
pub(super) fn checked_names(metadata: &Metadata) -> Result<(&str, &str), Unusable> {
    let namespace = namespace_or_default(&metadata.namespace);
    check("metadata.namespace", namespace)?;
    check("metadata.name", &metadata.name)?;
    Ok((namespace, &metadata.name))
}

/// Fails with a reason unless the text may name an object.
pub(super) fn check(field: &str, text: &str) -> Result<(), Unusable> {
    if valid_name(text) {
        return Ok(());
    }
    let problem = format!("{} is not a valid name", excerpt(text));
    Err(Unusable::Broken {
        field: field.into(),
        problem,
    })
}

/// Manifests may leave the namespace out; the API server then puts the object into `default`.
pub(crate) fn namespace_or_default(namespace: &str) -> &str {
    if namespace.is_empty() {
        "default"
    } else {
        namespace
    }
}

/// The beginning of an untrusted text, quoted and in plain ASCII, fit for a log line.
pub(crate) fn excerpt(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .take(MAX_EXCERPT)
        .flat_map(char::escape_default)
        .collect();
    if text.chars().nth(MAX_EXCERPT).is_some() {
        shown.push_str("...");
    }
    format!("\"{shown}\"")
}

/// A name that may be hostile, made fit to be shown.
pub(crate) fn shown_name(name: &str) -> String {
    if valid_name(name) {
        name.into()
    } else {
        excerpt(name)
    }
}

/// Interns names that many objects repeat: ten thousand slices name the same few nodes, zones and ports.
#[derive(Debug, Default)]
pub(crate) struct NamePool {
    shared: HashSet<Arc<str>>,
    /// Size at which unused names are collected.
    sweep_at: usize,
}

impl NamePool {
    /// Below this size looking for unused names is not worth it.
    const MIN_SWEEP: usize = 1024;

    /// Replaces a name by the shared copy of it.
    pub(crate) fn share(&mut self, name: &mut Arc<str>) {
        if let Some(shared) = self.shared.get(name) {
            *name = Arc::clone(shared);
            return;
        }
        self.sweep_if_large();
        self.shared.insert(Arc::clone(name));
    }

    /// Drops unused names each time the pool has doubled, so that churn does not leak memory and collection is amortized.
    fn sweep_if_large(&mut self) {
        if self.shared.len() >= self.sweep_at.max(Self::MIN_SWEEP) {
            self.shared.retain(|name| Arc::strong_count(name) > 1);
            self.sweep_at = self.shared.len() * 2;
        }
    }
}

fn is_name_of(text: &str, is_inner: impl Fn(u8) -> bool) -> bool {
    let is_end = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = [text.bytes().next(), text.bytes().next_back()];
    ends.iter().all(|end| end.is_some_and(is_end))
        && text.bytes().all(|byte| is_end(byte) || is_inner(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        let long = "a".repeat(253);
        for good in ["a", "web-1", "a.b.c", "0", &long] {
            assert!(valid_name(good), "{good}");
        }
        let longer = "a".repeat(254);
        for bad in [
            "", "-a", "a-", ".a", "A", "a_b", "a/b", "a b", "a\n", "a\"", "a;b", "é", "a\\",
            &longer,
        ] {
            assert!(!valid_name(bad), "{bad:?}");
        }
    }

    #[test]
    fn port_names_are_checked() {
        for good in ["", "http", "p-0", &"a".repeat(63)] {
            assert!(valid_port_name(good), "{good}");
        }
        for bad in ["a.b", "HTTP", "a\n", "-", &"a".repeat(64)] {
            assert!(!valid_port_name(bad), "{bad:?}");
        }
    }

    #[test]
    fn excerpts_are_short_plain_ascii() {
        assert_eq!(excerpt("a\n\"b\u{e9}"), r#""a\n\"b\u{e9}""#);
        let long = excerpt(&"\u{202e}".repeat(300));
        assert!(long.is_ascii() && long.len() < 400 && long.ends_with("...\""));
    }

    #[test]
    fn unused_names_are_dropped() {
        let mut names = NamePool::default();
        let mut kept: Arc<str> = "kept".into();
        names.share(&mut kept);
        for i in 0..10 * NamePool::MIN_SWEEP {
            names.share(&mut format!("n{i}").into());
        }
        assert!(names.shared.len() <= 2 * NamePool::MIN_SWEEP);
        let mut again: Arc<str> = "kept".into();
        names.share(&mut again);
        assert!(Arc::ptr_eq(&kept, &again));
    }
}
