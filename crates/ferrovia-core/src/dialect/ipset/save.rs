//! Reading what `ipset save` prints.

use std::collections::{BTreeMap, BTreeSet};

use super::{Entry, Kind, SetName};
use crate::family::Family;

/// A set that is in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// What it holds; `None` if that is nothing we use, and then nothing is said of its entries.
    pub kind: Option<Kind>,
    /// How many entries it takes at most; of no meaning for [`Kind::Port`].
    pub max: u32,
    /// What is in it. Entries we could not have made are left out: such a set has been changed by somebody else.
    pub entries: BTreeSet<Entry>,
    /// There are entries that were left out.
    pub has_others: bool,
}

/// The sets of a saved text, by name. Sets whose names cannot be ours are passed over, and so are lines that make no sense.
pub fn parse(save: &str) -> BTreeMap<SetName, Set> {
    let mut sets: BTreeMap<SetName, Set> = BTreeMap::new();
    // Entries of one set come one after the other, so the set is looked up once.
    let mut current: Option<(&str, &mut Set)> = None;
    for line in save.lines() {
        let mut words = line.split_ascii_whitespace();
        let (command, name) = (words.next(), words.next().unwrap_or_default());
        match command {
            Some("create") => {
                current = None;
                if let Some(set) = SetName::new(name) {
                    sets.insert(set, created(words));
                }
            }
            Some("add") => {
                if current.as_ref().is_none_or(|(of, _)| *of != name) {
                    current = SetName::new(name)
                        .and_then(|set| sets.get_mut(&set))
                        .map(|set| (name, set));
                }
                if let Some((_, set)) = &mut current {
                    add(set, words.next().unwrap_or_default());
                }
            }
            _ => {}
        }
    }
    sets
}

fn add(set: &mut Set, text: &str) {
    match set.kind.and_then(|kind| Entry::parse(kind, text)) {
        Some(entry) => {
            set.entries.insert(entry);
        }
        None => set.has_others = true,
    }
}

/// A set without entries, from the words after its name. A bitmap of only some ports is none of ours.
fn created<'a>(mut words: impl Iterator<Item = &'a str>) -> Set {
    let type_name = words.next().unwrap_or_default();
    let (mut family, mut max, mut range) = (Family::V4, u32::MAX, None);
    while let Some(option) = words.next() {
        match option {
            "family" if words.next() == Some("inet6") => family = Family::V6,
            "maxelem" => max = words.next().and_then(|n| n.parse().ok()).unwrap_or(max),
            "range" => range = words.next(),
            _ => {}
        }
    }
    let kind = Kind::from_type_name(type_name, family)
        .filter(|kind| *kind != Kind::Port || range == Some("0-65535"));
    Set {
        kind,
        max,
        entries: BTreeSet::new(),
        has_others: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_and_entries_are_read_back() {
        let save = "create KUBE-CLUSTER-IP hash:ip,port family inet hashsize 1024 maxelem 65536 bucketsize 12 initval 0xc0ffee\n\
                    add KUBE-CLUSTER-IP 10.96.0.1,tcp:443\n\
                    add KUBE-CLUSTER-IP 10.96.0.10,udp:53 timeout 3\n\
                    create KUBE-6-IPVS-IPS hash:ip family inet6 hashsize 1024 maxelem 16777216\n\
                    create KUBE-NODE-PORT-TCP bitmap:port range 0-65535\n\
                    add KUBE-NODE-PORT-TCP 30010\n\
                    add KUBE-CLUSTER-IP 10.96.0.1,tcp:80\n\
                    add KUBE-CLUSTER-IP 10.96.0.1,icmp:8/0\n\
                    create OTHER hash:mac hashsize 1024 maxelem 65536\n\
                    add OTHER 01:02:03:04:05:06\nadd NOWHERE 1\nnonsense\n";
        let sets = parse(save);
        let set = |name: &str| sets.get(&SetName::new(name).unwrap()).unwrap();
        let entries =
            |name| -> Vec<String> { set(name).entries.iter().map(Entry::to_string).collect() };
        assert_eq!(
            entries("KUBE-CLUSTER-IP"),
            ["10.96.0.1,tcp:80", "10.96.0.1,tcp:443", "10.96.0.10,udp:53"]
        );
        assert_eq!(set("KUBE-CLUSTER-IP").kind, Some(Kind::IpPort(Family::V4)));
        assert_eq!(set("KUBE-CLUSTER-IP").max, 65536);
        assert!(set("KUBE-CLUSTER-IP").has_others && !set("KUBE-NODE-PORT-TCP").has_others);
        assert_eq!(set("KUBE-6-IPVS-IPS").kind, Some(Kind::Ip(Family::V6)));
        assert_eq!(entries("KUBE-NODE-PORT-TCP"), ["30010"]);
        assert_eq!((set("OTHER").kind, entries("OTHER").len()), (None, 0));
        assert_eq!(sets.len(), 4);
    }

    proptest::proptest! {
        /// Whatever the text is, reading it does not panic.
        #[test]
        fn any_text_can_be_read(save in "(create |add |A |hash:ip |family |inet6 |maxelem |range |1|,|:|\n|\\PC){0,40}") {
            let _ = parse(&save);
        }
    }
}
