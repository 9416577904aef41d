//! What a kube-proxy left behind in iptables, and the text that removes it.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::restore::{Restore, RestoreSection, TableName};
use super::save::{SavedRule, SavedTable, parse};

/// Finds kube-proxy's chains in what `iptables-save` printed, and all that has to be done to be rid of them; `None` if there is nothing.
///
/// The chains are those of its iptables, ipvs and userspace modes, of all versions. Chains it shares with the kubelet stay as they are
/// (`KUBE-FIREWALL` with the jumps to it, `KUBE-MARK-DROP`, the kubelet's canary and hint), and so does everything of others:
///
/// - Rules of built-in chains that jump to one of kube-proxy's chains go: kube-proxy put them there, and without their target they cannot be.
/// - Rules of other user-defined chains stay even if they jump to one of kube-proxy's chains, because another process wrote them. The chain they
///   jump to is then only emptied: packets come back from it as if it were not there. The same is done for a rule of a built-in chain
///   that cannot be repeated in the tool's own language (see [`SavedRule::is_repeatable`]).
pub fn leftovers(save: &str) -> Option<LeftoverRemoval<'_>> {
    leftovers_besides(save, |_, _| false)
}

/// The same, but for chains that are still of use, identified by table and name. What leads from those to chains that go must go
/// before.
pub fn leftovers_besides(
    save: &str,
    is_used: impl Fn(&str, &str) -> bool,
) -> Option<LeftoverRemoval<'_>> {
    let tables = parse(save);
    let removals = tables.iter().filter_map(|table| {
        let (name, mut table) = (table.name, table.clone());
        table.rules.retain(|rule| !is_used(name, rule.chain));
        let is_left = |chain: &str| is_kube_proxys(name, chain) && !is_used(name, chain);
        TableRemoval::of(&table, is_left)
    });
    let tables: Vec<_> = removals.collect();
    (!tables.is_empty()).then_some(LeftoverRemoval { tables })
}

/// What to remove, table by table. Tables without leftovers are not in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftoverRemoval<'a> {
    tables: Vec<TableRemoval<'a>>,
}

/// How many transactions a removal is cut into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commits {
    /// One a table. What suits the legacy tool: each commit makes it load the whole table again.
    One,
    /// As many as needed to keep each short. What suits the nft tool: its time grows with the square of what is in one commit (9,000 chains
    /// take 2.6 s at once and 0.6 s in parts), and the kernel blocks all other rule changes meanwhile.
    Many,
}

impl Commits {
    fn lines(self) -> usize {
        match self {
            Self::One => usize::MAX,
            Self::Many => 500,
        }
    }
}

impl LeftoverRemoval<'_> {
    /// The text for `iptables-restore --noflush`.
    ///
    /// The jumps into the chains go first and the chains are all empty before the first is deleted. So a packet meets either whole chains or
    /// none, and no cut between the lines can leave a reference to a deleted chain.
    pub fn restore_input(&self, commits: Commits) -> String {
        let mut text = String::new();
        for table in &self.tables {
            for lines in table.lines().chunks(commits.lines()) {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "*{}\n{}\nCOMMIT", table.name, lines.join("\n"));
            }
        }
        text
    }

    /// The same as a plan, in one transaction a table.
    pub fn restore(&self) -> Restore {
        let mut restore = Restore::default();
        for table in &self.tables {
            let known = TableName::ALL
                .into_iter()
                .find(|known| known.as_str() == table.name);
            // kube-proxy's chains are in no other tables.
            let Some(name) = known else { continue };
            let mut section = RestoreSection::new(name);
            for rule in &table.jumps {
                section.delete(rule.chain, rule.args);
            }
            for chain in table.kept.iter().chain(&table.deleted) {
                section.declare(chain);
            }
            for chain in &table.deleted {
                section.delete_chain(chain);
            }
            restore.push(section);
        }
        restore
    }

    /// How many chains go.
    pub fn chains(&self) -> usize {
        self.tables.iter().map(|table| table.deleted.len()).sum()
    }

    /// How many rules go: those in the chains, and the jumps to them.
    pub fn rules(&self) -> usize {
        self.tables
            .iter()
            .map(|table| table.jumps.len() + table.rules_inside)
            .sum()
    }

    /// The chains that are emptied but stay because rules of others refer to them, as `(table, chain)`.
    pub fn kept(&self) -> impl Iterator<Item = (&str, &str)> {
        self.tables
            .iter()
            .flat_map(|table| table.kept.iter().map(|chain| (table.name, *chain)))
    }
}

/// What to remove from one table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TableRemoval<'a> {
    name: &'a str,
    /// Rules of built-in chains that jump into kube-proxy's.
    jumps: Vec<SavedRule<'a>>,
    /// Chains to empty and delete.
    deleted: Vec<&'a str>,
    /// Chains to empty only.
    kept: Vec<&'a str>,
    /// How many rules the emptied chains hold.
    rules_inside: usize,
}

impl<'a> TableRemoval<'a> {
    fn of(table: &SavedTable<'a>, is_left: impl Fn(&str) -> bool) -> Option<Self> {
        let user_defined = table.chains.iter().filter(|chain| !chain.built_in);
        // As a list to keep the order of the text, so that the same ruleset gives the same removal; as a set to look up names.
        let chains: Vec<&str> = user_defined
            .map(|chain| chain.name)
            .filter(|name| is_left(name))
            .collect();
        let owned: HashSet<&str> = chains.iter().copied().collect();
        let (inside, outside): (Vec<SavedRule<'_>>, Vec<_>) =
            (table.rules.iter()).partition(|rule| owned.contains(rule.chain));
        let built_in = table.built_in();
        let (jumps, others): (Vec<_>, Vec<_>) = outside
            .into_iter()
            .filter(|rule| rule.targets().any(|target| owned.contains(&*target)))
            .partition(|rule| built_in.contains(&rule.chain) && rule.is_repeatable());
        let held: HashSet<_> = others.iter().flat_map(SavedRule::targets).collect();
        let (mut kept, deleted): (Vec<_>, Vec<_>) =
            chains.into_iter().partition(|name| held.contains(*name));
        // Emptying an empty chain is no work to do.
        let filled: HashSet<_> = inside.iter().map(|rule| rule.chain).collect();
        kept.retain(|name| filled.contains(name));
        let removal = Self {
            name: table.name,
            jumps,
            deleted,
            kept,
            rules_inside: inside.len(),
        };
        (!removal.is_empty()).then_some(removal)
    }

    /// Whether the table has nothing of kube-proxy's, or only empty chains that have to stay.
    fn is_empty(&self) -> bool {
        self.jumps.is_empty() && self.deleted.is_empty() && self.kept.is_empty()
    }

    fn lines(&self) -> Vec<String> {
        let jumps = self
            .jumps
            .iter()
            .map(|rule| format!("-D {} {}", rule.chain, rule.args));
        // To declare a chain that exists is to empty it.
        let flushed = self
            .kept
            .iter()
            .chain(&self.deleted)
            .map(|chain| format!(":{chain} - [0:0]"));
        let deleted = self.deleted.iter().map(|chain| format!("-X {chain}"));
        jumps.chain(flushed).chain(deleted).collect()
    }
}

/// The chains of kube-proxy's modes that have a fixed name, by table.
const FIXED: [(&str, &[&str]); 3] = [
    (
        "nat",
        &[
            "KUBE-SERVICES",
            "KUBE-NODEPORTS",
            "KUBE-POSTROUTING",
            "KUBE-MARK-MASQ",
            "KUBE-PROXY-CANARY",
            // ipvs
            "KUBE-NODE-PORT",
            "KUBE-LOAD-BALANCER",
            // userspace
            "KUBE-PORTALS-CONTAINER",
            "KUBE-PORTALS-HOST",
            "KUBE-NODEPORT-CONTAINER",
            "KUBE-NODEPORT-HOST",
        ],
    ),
    (
        "filter",
        &[
            "KUBE-SERVICES",
            "KUBE-EXTERNAL-SERVICES",
            "KUBE-FORWARD",
            "KUBE-NODEPORTS",
            "KUBE-PROXY-FIREWALL",
            "KUBE-PROXY-CANARY",
            // ipvs
            "KUBE-NODE-PORT",
            "KUBE-SOURCE-RANGES-FIREWALL",
            "KUBE-IPVS-FILTER",
            "KUBE-IPVS-OUT-FILTER",
            "KUBE-IPVS-POLICY",
            // userspace
            "KUBE-NODEPORT-NON-LOCAL",
        ],
    ),
    ("mangle", &["KUBE-PROXY-CANARY", MARK_CHAIN]),
];

/// An empty chain of ours that says who wrote the chains with kube-proxy's names beside it. No packet meets it.
pub const MARK_CHAIN: &str = "FERROVIA-OWNED";
/// The table it is in, which is cheap to read.
pub const MARK_TABLE: &str = "mangle";

/// Whether this is the chain that says whose the others are.
pub fn is_mark(table: &str, chain: &str) -> bool {
    table == MARK_TABLE && chain == MARK_CHAIN
}

/// What the names of the chains of services and endpoints start with. `KUBE-XLB-` was in use up to 1.23.
const HASHED: [&str; 6] = [
    "KUBE-SVC-",
    "KUBE-SVL-",
    "KUBE-SEP-",
    "KUBE-FW-",
    "KUBE-EXT-",
    "KUBE-XLB-",
];

/// Whether a kube-proxy makes a chain of this name in this table.
pub fn is_kube_proxys(table: &str, chain: &str) -> bool {
    let fixed = FIXED
        .iter()
        .any(|(of, names)| *of == table && names.contains(&chain));
    fixed || (table == "nat" && is_hashed_name(chain))
}

/// Whether this names a chain of a service or an endpoint.
pub(crate) fn is_hashed_name(chain: &str) -> bool {
    HASHED
        .iter()
        .any(|prefix| chain.strip_prefix(prefix).is_some_and(is_hash))
}

/// Whether this is what kube-proxy makes of a service's name: 16 characters of base32. A foreign chain named `KUBE-FW-home` is not.
fn is_hash(text: &str) -> bool {
    text.len() == 16
        && text
            .bytes()
            .all(|byte| matches!(byte, b'A'..=b'Z' | b'2'..=b'7'))
}

#[cfg(test)]
mod tests;
