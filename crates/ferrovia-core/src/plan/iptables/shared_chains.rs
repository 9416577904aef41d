//! Edits the chains that rules of all services share.
//!
//! They are long, and rewriting one for a single service would cost time proportional to all services. So rules are inserted at the head and deleted
//! one by one. No two services claim the same address and port, so the order of services in a chain means nothing; the order of one
//! service's rules is kept.

use std::collections::{HashMap, HashSet};

use super::names::{EXTERNAL_SERVICES, NODE_PORTS, PROXY_FIREWALL, SERVICES};
use crate::dialect::iptables::{RestoreSection, TableName, canonical};

/// Fewer changes than this are always made one by one.
const FEW: usize = 32;

/// A chain of all services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum SharedChain {
    /// Refuses packets to cluster IPs.
    FilterServices,
    /// Refuses packets to external addresses and node ports.
    FilterExternal,
    /// Lets the load balancers' health checks in.
    FilterNodePorts,
    /// Drops packets to load balancers' addresses from sources that may not use them.
    FilterFirewall,
    /// Leads from addresses to services.
    NatServices,
    /// Leads from node ports to services.
    NatNodePorts,
}

impl SharedChain {
    pub(super) const ALL: [Self; 6] = [
        Self::FilterServices,
        Self::FilterExternal,
        Self::FilterNodePorts,
        Self::FilterFirewall,
        Self::NatServices,
        Self::NatNodePorts,
    ];

    pub(super) fn table(self) -> TableName {
        match self {
            Self::NatServices | Self::NatNodePorts => TableName::Nat,
            _ => TableName::Filter,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::FilterServices | Self::NatServices => SERVICES,
            Self::FilterExternal => EXTERNAL_SERVICES,
            Self::FilterNodePorts | Self::NatNodePorts => NODE_PORTS,
            Self::FilterFirewall => PROXY_FIREWALL,
        }
    }
}

/// The desired rules of a shared chain.
#[derive(Clone, Debug, Default)]
pub(super) struct DesiredChain {
    /// The rules of each service port, in order.
    pub(super) groups: Vec<Vec<String>>,
    /// What must come last.
    pub(super) tail: Vec<String>,
}

/// How a shared chain is changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChainEdit {
    /// Individual rules are added and deleted.
    Single(RuleChanges),
    /// So much differs that the chain is rewritten, with these kept rules in addition to the desired ones.
    Rewrite(Vec<String>),
}

/// Rules to add and to delete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RuleChanges {
    /// At the head, in this order.
    pub(super) insert: Vec<String>,
    /// At the end, in this order.
    pub(super) append: Vec<String>,
    /// Copies that go because the rule comes at another place.
    pub(super) moved: Vec<String>,
    /// Rules that go for good, one copy of each.
    pub(super) delete: Vec<String>,
}

impl RuleChanges {
    /// What has to change for a service port's rules to become others. What is new comes before what stays, so if that is not the order
    /// in which it should be, what stays is moved.
    pub(super) fn between(old: &[&str], new: &[&str]) -> Self {
        let owned = |rules: &[&str]| rules.iter().map(|rule| (*rule).to_owned()).collect();
        let wanted: HashSet<&str> = new.iter().copied().collect();
        let (stays, gone): (Vec<&str>, Vec<&str>) =
            old.iter().partition(|rule| wanted.contains(*rule));
        let (insert, moved) = match new.strip_suffix(&stays[..]) {
            Some(fresh) => (owned(fresh), Vec::new()),
            None => (owned(new), owned(&stays)),
        };
        Self {
            insert,
            append: Vec::new(),
            moved,
            delete: owned(&gone),
        }
    }

    fn len(&self) -> usize {
        self.insert.len() + self.append.len() + self.moved.len() + self.delete.len()
    }

    /// Writes additions and moves.
    pub(super) fn add(&self, chain: &str, section: &mut RestoreSection) {
        for rule in &self.moved {
            section.delete(chain, rule);
        }
        for rule in self.insert.iter().rev() {
            section.insert(chain, rule);
        }
        for rule in &self.append {
            section.append(chain, rule);
        }
    }

    pub(super) fn remove(&self, chain: &str, section: &mut RestoreSection) {
        for rule in &self.delete {
            section.delete(chain, rule);
        }
    }
}

impl DesiredChain {
    /// How many rules it is.
    pub(super) fn len(&self) -> usize {
        self.groups.iter().map(Vec::len).sum::<usize>() + self.tail.len()
    }

    /// All rules in order, for a chain that is rewritten.
    pub(super) fn rules(self, kept: Vec<String>) -> Vec<String> {
        let own = self.groups.into_iter().flatten();
        own.chain(kept).chain(self.tail).collect()
    }

    /// Compares with the observed rules. Rules of no desired service port are deleted if `may_go` allows it.
    pub(super) fn compare(&self, found: &[&str], may_go: impl Fn(&str) -> bool) -> ChainEdit {
        const TAIL: usize = usize::MAX;
        let mut owners: HashMap<&str, usize> = HashMap::new();
        for (n, group) in self.groups.iter().enumerate() {
            owners.extend(group.iter().map(|rule| (rule.as_str(), n)));
        }
        owners.extend(self.tail.iter().map(|rule| (rule.as_str(), TAIL)));

        // `iptables-restore` reads line by line, so a rule with a line break or invalid bytes cannot be named.
        let is_repeatable = |rule: &str| !rule.contains(['\n', char::REPLACEMENT_CHARACTER]);
        let mut changes = RuleChanges::default();
        let mut kept = Vec::new();
        let mut seen: HashMap<usize, Vec<&str>> = HashMap::new();
        for rule in found {
            match owners.get(&*canonical(rule)) {
                Some(owner) => seen.entry(*owner).or_default().push(rule),
                None if may_go(rule) => changes.delete.push((*rule).to_owned()),
                None if is_repeatable(rule) => kept.push((*rule).to_owned()),
                None => {}
            }
        }
        let is = |found: &[&str], wanted: &[String]| {
            found.len() == wanted.len()
                && found
                    .iter()
                    .zip(wanted)
                    .all(|(f, w)| canonical(f) == w.as_str())
        };
        let none = Vec::new();
        for (n, group) in self.groups.iter().enumerate() {
            let there = seen.get(&n).unwrap_or(&none);
            if !is(there, group) {
                changes
                    .moved
                    .extend(there.iter().map(|rule| (*rule).to_owned()));
                changes.insert.extend_from_slice(group);
            }
        }
        let last = found.len().checked_sub(self.tail.len());
        let end = last.and_then(|last| found.get(last..)).unwrap_or_default();
        let there = seen.get(&TAIL).unwrap_or(&none);
        if !is(end, &self.tail) || there.len() != self.tail.len() {
            changes
                .moved
                .extend(there.iter().map(|rule| (*rule).to_owned()));
            changes.append.extend_from_slice(&self.tail);
        }
        let mut deleted = changes.delete.iter().chain(&changes.moved);
        let many = FEW.max(self.groups.len() / 4);
        if changes.len() > many || !deleted.all(|rule| is_repeatable(rule)) {
            ChainEdit::Rewrite(kept)
        } else {
            ChainEdit::Single(changes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> DesiredChain {
        let group = |rules: &[&str]| rules.iter().map(|rule| (*rule).to_owned()).collect();
        DesiredChain {
            groups: vec![group(&["a1", "a2"]), group(&["b"])],
            tail: group(&["tail"]),
        }
    }

    fn edit(found: &[&str]) -> RuleChanges {
        match wanted().compare(found, |rule| rule != "kept") {
            ChainEdit::Single(changes) => changes,
            ChainEdit::Rewrite(_) => panic!("a few changes are no reason to rewrite"),
        }
    }

    fn changes(insert: &[&str], append: &[&str], moved: &[&str], delete: &[&str]) -> RuleChanges {
        let owned = |rules: &[&str]| rules.iter().map(|rule| (*rule).to_owned()).collect();
        RuleChanges {
            insert: owned(insert),
            append: owned(append),
            moved: owned(moved),
            delete: owned(delete),
        }
    }

    #[test]
    fn a_ports_rules_keep_their_order() {
        assert_eq!(
            RuleChanges::between(&["b", "x"], &["a", "b"]),
            changes(&["a"], &[], &[], &["x"])
        );
        assert_eq!(
            RuleChanges::between(&["a", "x"], &["a", "b"]),
            changes(&["a", "b"], &[], &["a"], &["x"])
        );
        assert_eq!(RuleChanges::between(&["a"], &["a"]), RuleChanges::default());
        assert_eq!(
            RuleChanges::between(&["a", "a"], &["a"]),
            changes(&["a"], &[], &["a", "a"], &[])
        );
        assert_eq!(
            RuleChanges::between(&["a"], &[]),
            changes(&[], &[], &[], &["a"])
        );
    }

    #[test]
    fn the_order_of_services_means_nothing_and_that_of_their_rules_does() {
        assert_eq!(edit(&["b", "a1", "a2", "tail"]), RuleChanges::default());
        assert_eq!(edit(&["a1", "b", "a2", "tail"]), RuleChanges::default());
        assert_eq!(
            edit(&["a2", "b", "a1", "tail"]),
            changes(&["a1", "a2"], &[], &["a2", "a1"], &[])
        );
    }

    #[test]
    fn missing_rules_come_and_others_go() {
        assert_eq!(
            edit(&["a1", "a2", "x", "tail"]),
            changes(&["b"], &[], &[], &["x"])
        );
        assert_eq!(
            edit(&["a1", "a2", "b", "b", "tail"]),
            changes(&["b"], &[], &["b", "b"], &[])
        );
        assert_eq!(
            edit(&["kept", "b", "a1", "a2", "tail"]),
            RuleChanges::default()
        );
    }

    #[test]
    fn the_tail_comes_last_and_once() {
        let moved = changes(&[], &["tail"], &["tail"], &[]);
        assert_eq!(edit(&["tail", "a1", "a2", "b"]), moved);
        assert_eq!(edit(&["a1", "a2", "b", "tail", "kept"]), moved);
        assert_eq!(
            edit(&["tail", "a1", "a2", "b", "tail"]),
            changes(&[], &["tail"], &["tail", "tail"], &[])
        );
        assert_eq!(edit(&["a1", "a2", "b"]), changes(&[], &["tail"], &[], &[]));
    }

    #[test]
    fn a_rule_that_cannot_be_named_forces_a_rewrite() {
        assert_eq!(
            wanted().compare(&["b", "line\nbreak"], |_| true),
            ChainEdit::Rewrite(Vec::new())
        );
        let mut foreign = vec!["x"; FEW + 1];
        foreign.push("kept");
        let edit = wanted().compare(&foreign, |rule| rule != "kept");
        assert_eq!(edit, ChainEdit::Rewrite(vec!["kept".into()]));
        assert_eq!(
            wanted().rules(vec!["kept".into()]),
            ["a1", "a2", "b", "kept", "tail"]
        );
    }
}
