//! What was told of one resource: the names and versions of its objects, and nothing else.
//!
//! A list after an interruption is compared with this, so that only what changed or went is told. In a watch it keeps events that come
//! twice or late from taking an object back in time.

use std::collections::{HashMap, VecDeque};

use super::decode::Identity;

/// Deletions that are remembered, so that an older event which comes after one does not bring the object back.
const REMEMBERED: usize = 128;

/// The objects that were told.
#[derive(Debug, Default)]
pub(super) struct Known {
    objects: HashMap<Box<str>, Entry>,
    /// Objects that exist but could never be read, and the list they were last seen in.
    unread: HashMap<Box<str>, u32>,
    gone: VecDeque<(Box<str>, Version)>,
    /// Which list an object was last seen in.
    list: u32,
    /// The list in progress held something without a readable name, which may be any object it seems to lack.
    has_nameless: bool,
}

#[derive(Debug)]
struct Entry {
    version: Version,
    list: u32,
}

/// A version as it is kept. Nearly all are numbers, which need no memory of their own.
#[derive(Debug, PartialEq, Eq)]
enum Version {
    Number(u64),
    Text(Box<str>),
}

impl Known {
    /// A list begins, which may be one that was broken off before.
    pub(super) fn begin_list(&mut self) {
        self.list = self.list.wrapping_add(1);
        self.has_nameless = false;
        self.gone.clear();
    }

    /// An object of a list, which is believed whatever was known: a server restored from a backup has older versions. `true` for news.
    pub(super) fn listed(&mut self, object: &Identity) -> bool {
        let version = Version::new(&object.version);
        let is_same = |known: &Entry| !object.version.is_empty() && known.version == version;
        let is_news = !self.objects.get(object.key.as_str()).is_some_and(is_same);
        self.put(object);
        is_news
    }

    /// What is known may be of another history, where the same versions stood for other states: the next list reports every object.
    pub(super) fn forget_versions(&mut self) {
        for entry in self.objects.values_mut() {
            entry.version = Version::Text("".into());
        }
    }

    /// An object of a list that cannot be read is not gone.
    pub(super) fn unreadable_in_list(&mut self, object: Option<&Identity>) {
        let Some(object) = object else {
            self.has_nameless = true;
            return;
        };
        if let Some(entry) = self.objects.get_mut(object.key.as_str()) {
            entry.list = self.list;
        } else {
            self.unread.insert(object.key.as_str().into(), self.list);
        }
    }

    /// The list is complete: forgets and returns the keys of what it lacks.
    pub(super) fn end_list(&mut self) -> Vec<Box<str>> {
        if self.has_nameless {
            return Vec::new();
        }
        let list = self.list;
        self.unread.retain(|_, seen| *seen == list);
        let went = self.objects.extract_if(|_, entry| entry.list != list);
        let went = went.map(|(key, _)| key).collect();
        self.objects.shrink_to_fit();
        went
    }

    /// An object of a watch. `true` for news.
    pub(super) fn applied(&mut self, object: &Identity) -> bool {
        let known = self.objects.get(object.key.as_str());
        let known = known.map(|entry| &entry.version).or_else(|| {
            let mut gone = self.gone.iter().rev();
            gone.find_map(|(key, version)| (**key == object.key).then_some(version))
        });
        let version = Version::new(&object.version);
        if known.is_some_and(|known| *known == version || version.is_before(known)) {
            return false;
        }
        self.put(object);
        true
    }

    /// A deletion in a watch. `true` for news.
    pub(super) fn deleted(&mut self, object: &Identity) -> bool {
        let key = object.key.as_str();
        self.unread.remove(key);
        let version = Version::new(&object.version);
        let is_late = |known: &Entry| version.is_before(&known.version);
        if self.objects.get(key).is_some_and(is_late) {
            return false;
        }
        let was_known = self.objects.remove(key).is_some();
        if self.gone.len() == REMEMBERED {
            self.gone.pop_front();
        }
        self.gone.push_back((key.into(), version));
        was_known
    }

    /// An object of a watch that cannot be read keeps its last good state, if it had one.
    pub(super) fn unreadable(&mut self, object: &Identity) {
        if !self.objects.contains_key(object.key.as_str()) {
            self.unread.insert(object.key.as_str().into(), self.list);
        }
    }

    /// How many objects exist that could never be read.
    pub(super) fn unread(&self) -> usize {
        self.unread.len()
    }

    fn put(&mut self, object: &Identity) {
        self.unread.remove(object.key.as_str());
        let entry = Entry {
            version: Version::new(&object.version),
            list: self.list,
        };
        // Most objects are known already, and then the key need not be made anew.
        match self.objects.get_mut(object.key.as_str()) {
            Some(known) => *known = entry,
            None => {
                self.objects.insert(object.key.as_str().into(), entry);
            }
        }
    }
}

impl Version {
    /// A number that is not written as numbers usually are stays a text, so that no two versions become one.
    fn new(text: &str) -> Self {
        let is_usual = text == "0" || !text.starts_with(['0', '+']);
        match text.parse() {
            Ok(number) if is_usual => Self::Number(number),
            _ => Self::Text(text.into()),
        }
    }

    /// As [`is_before`].
    fn is_before(&self, other: &Self) -> bool {
        are_in_order(self.number(), other.number())
    }

    fn number(&self) -> Option<u128> {
        match self {
            Self::Number(number) => Some((*number).into()),
            Self::Text(text) => number(text),
        }
    }
}

/// Whether a version is older than another.
///
/// Versions are the server's business, but since Kubernetes 1.35 it is documented that those of one resource are whole numbers that
/// grow, as they always were. Anything else has no order here.
pub(super) fn is_before(version: &str, other: &str) -> bool {
    are_in_order(number(version), number(other))
}

fn are_in_order(version: Option<u128>, other: Option<u128>) -> bool {
    version
        .zip(other)
        .is_some_and(|(version, other)| version < other)
}

fn number(version: &str) -> Option<u128> {
    let is_plain = version.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| version.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str, version: &str) -> Identity {
        Identity {
            key: format!("default/{name}"),
            version: version.to_owned(),
        }
    }

    fn sorted(mut keys: Vec<Box<str>>) -> Vec<String> {
        keys.sort();
        keys.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_second_list_tells_only_what_differs() {
        let mut known = Known::default();
        known.begin_list();
        for name in ["a", "b", "c"] {
            assert!(known.listed(&object(name, "1")));
        }
        assert!(known.end_list().is_empty());

        known.begin_list();
        assert!(!known.listed(&object("a", "1")));
        assert!(known.listed(&object("b", "2")));
        assert!(known.listed(&object("d", "3")));
        assert_eq!(sorted(known.end_list()), ["default/c"]);

        known.begin_list();
        assert_eq!(
            sorted(known.end_list()),
            ["default/a", "default/b", "default/d"]
        );
    }

    #[test]
    fn a_list_that_broke_off_takes_nothing_away() {
        let mut known = Known::default();
        known.begin_list();
        known.listed(&object("a", "1"));
        known.listed(&object("b", "1"));
        known.end_list();
        known.begin_list();
        known.listed(&object("a", "1"));
        known.begin_list();
        known.listed(&object("b", "1"));
        assert_eq!(sorted(known.end_list()), ["default/a"]);
    }

    #[test]
    fn a_list_may_go_back_but_an_event_may_not() {
        let mut known = Known::default();
        known.begin_list();
        assert!(known.listed(&object("a", "10")));
        known.end_list();
        assert!(!known.applied(&object("a", "10")), "twice");
        assert!(!known.applied(&object("a", "9")), "late");
        assert!(known.applied(&object("a", "11")));
        assert!(!known.deleted(&object("a", "10")), "late");
        known.begin_list();
        assert!(known.listed(&object("a", "5")), "restored from a backup");
    }

    #[test]
    fn the_same_version_of_another_history_is_news() {
        let mut known = Known::default();
        known.begin_list();
        known.listed(&object("a", "10"));
        known.listed(&object("b", "11"));
        known.end_list();
        known.forget_versions();
        known.begin_list();
        assert!(known.listed(&object("a", "10")));
        assert!(!known.listed(&object("a", "10")));
        assert_eq!(sorted(known.end_list()), ["default/b"]);
    }

    #[test]
    fn what_was_deleted_does_not_come_back_by_a_late_event() {
        let mut known = Known::default();
        known.applied(&object("a", "1"));
        assert!(known.deleted(&object("a", "3")));
        assert!(!known.applied(&object("a", "2")));
        assert!(!known.deleted(&object("a", "3")), "twice");
        assert!(known.applied(&object("a", "4")));
        // A server of old gave the deletion the version of the object.
        assert!(known.deleted(&object("a", "4")));
    }

    #[test]
    fn deletions_are_not_remembered_for_ever() {
        let mut known = Known::default();
        for i in 0..1000 {
            known.deleted(&object(&i.to_string(), "1"));
        }
        assert_eq!(known.gone.len(), REMEMBERED);
    }

    #[test]
    fn versions_that_are_no_numbers_have_no_order() {
        let mut known = Known::default();
        assert!(known.applied(&object("a", "zz")));
        assert!(known.applied(&object("a", "aa")));
        assert!(!known.applied(&object("a", "aa")));
        assert!(known.applied(&object("b", "007")));
        assert!(known.applied(&object("b", "7")), "another version");
        assert!(known.applied(&object("b", "18446744073709551616")));
        assert!(!known.applied(&object("b", "18446744073709551615")), "late");
        assert!(!is_before("+1", "2"));
        assert!(!is_before("", "2"));
        assert!(is_before("9", "10"));
    }

    #[test]
    fn what_cannot_be_read_is_not_gone() {
        let mut known = Known::default();
        known.begin_list();
        known.listed(&object("a", "1"));
        known.listed(&object("b", "1"));
        known.unreadable_in_list(Some(&object("c", "1")));
        assert_eq!(known.unread(), 1);
        assert!(known.end_list().is_empty());

        known.begin_list();
        known.unreadable_in_list(Some(&object("a", "2")));
        known.listed(&object("c", "2"));
        assert_eq!(sorted(known.end_list()), ["default/b"]);
        assert_eq!(known.unread(), 0, "a has a good state, c was read at last");

        known.begin_list();
        known.unreadable_in_list(None);
        assert!(known.end_list().is_empty(), "it may have been any of them");

        known.unreadable(&object("e", "9"));
        assert_eq!(known.unread(), 1);
        known.begin_list();
        assert_eq!(sorted(known.end_list()), ["default/a", "default/c"]);
        assert_eq!(known.unread(), 0);
    }
}
