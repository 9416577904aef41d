//! The chains the kernel sends packets to, no matter who created them, and what may become of a packet there.
//!
//! Both of the kernel's rulesets become the same values: nf_tables' chains are read over netlink ([`Nft::hooked_chains`]), those of the
//! legacy iptables out of what its tool prints ([`of_saved`]). Conditions of rules are not understood, only what a rule can do: a chain is
//! said to refuse packets if some rule in it, or in a chain it leads to, may.
//!
//! [`Nft::hooked_chains`]: crate::nft::Nft::hooked_chains

use std::collections::{BTreeSet, HashMap};

use ferrovia_core::dialect::iptables::{SavedRule, SavedTable, parse};
use ferrovia_core::dialect::nft::HookPoint;
use ferrovia_core::family::Family;

use super::printable;

/// How many chains a chain leads to are named: a kube-proxy has tens of thousands.
const MOST_NAMES: usize = 256;

/// A chain that packets enter by themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookedChain {
    /// Which of the kernel's two rulesets it is of.
    pub ruleset: Ruleset,
    /// The families whose packets it sees.
    pub families: Vec<Family>,
    /// The table it is in.
    pub table: String,
    pub name: String,
    /// Where on a packet's way it stands.
    pub point: HookPoint,
    /// The order there, lower first.
    pub priority: i32,
    /// It translates addresses, and sees first packets only.
    pub is_nat: bool,
    /// What none of its rules decides about is refused: by its policy, or by a rule without conditions.
    pub refuses_rest: bool,
    /// What rules in it and in the chains it leads to can do.
    pub effects: RuleEffects,
    /// How many rules that are.
    pub rules: usize,
    /// Some of the chains it leads to.
    pub leads_to: BTreeSet<String>,
}

/// One of the kernel's two rulesets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ruleset {
    /// nf_tables, with what `iptables-nft` writes into it.
    Nftables,
    /// The tables of x_tables.
    Legacy,
}

/// What rules can do to packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleEffects {
    /// Let them pass for good, as far as this chain is concerned.
    pub accepts: bool,
    /// Drop or reject them.
    pub refuses: bool,
    pub translates_destination: bool,
    /// Give them another source.
    pub translates_source: bool,
    /// Keep them from being tracked, and so from being translated by anybody.
    pub untracks: bool,
}

impl RuleEffects {
    pub(crate) fn add(&mut self, other: Self) {
        self.accepts |= other.accepts;
        self.refuses |= other.refuses;
        self.translates_destination |= other.translates_destination;
        self.translates_source |= other.translates_source;
        self.untracks |= other.untracks;
    }

    /// What an iptables target of this name does; nothing for one that decides nothing.
    pub(crate) fn of_target(name: &str) -> Self {
        let mut effects = Self::default();
        match name {
            "ACCEPT" => effects.accepts = true,
            "DROP" | "REJECT" => effects.refuses = true,
            "DNAT" | "REDIRECT" | "TPROXY" => effects.translates_destination = true,
            "SNAT" | "MASQUERADE" => effects.translates_source = true,
            "NETMAP" => {
                effects.translates_destination = true;
                effects.translates_source = true;
            }
            "NOTRACK" => effects.untracks = true,
            _ => {}
        }
        effects
    }
}

/// One rule, as far as it is understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleSketch {
    pub(crate) effects: RuleEffects,
    pub(crate) jumps: Vec<String>,
    pub(crate) has_conditions: bool,
}

/// A base chain before it is known what its rules lead to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Base {
    pub(crate) point: HookPoint,
    pub(crate) priority: i32,
    pub(crate) is_nat: bool,
    pub(crate) drops: bool,
}

/// The chains of one table, and where their rules lead.
#[derive(Debug, Default)]
pub(crate) struct TableChains {
    chains: HashMap<String, ChainSketch>,
}

#[derive(Debug, Default)]
struct ChainSketch {
    base: Option<Base>,
    effects: RuleEffects,
    rules: usize,
    refuses_rest: bool,
    jumps: BTreeSet<String>,
}

impl TableChains {
    pub(crate) fn add_base(&mut self, name: &str, base: Base) {
        self.chains.entry(name.to_owned()).or_default().base = Some(base);
    }

    pub(crate) fn add_rule(&mut self, chain: &str, rule: RuleSketch) {
        let chain = self.chains.entry(chain.to_owned()).or_default();
        chain.rules += 1;
        chain.effects.add(rule.effects);
        chain.refuses_rest |= rule.effects.refuses && !rule.has_conditions;
        chain.jumps.extend(rule.jumps);
    }

    /// Adds the rules of a table's chains, which were read apart from the chains themselves.
    pub(crate) fn add_rules_of(&mut self, others: Self) {
        for (name, other) in others.chains {
            let chain = self.chains.entry(name).or_default();
            chain.effects.add(other.effects);
            chain.rules += other.rules;
            chain.refuses_rest |= other.refuses_rest;
            chain.jumps.extend(other.jumps);
        }
    }

    /// The base chains, in the order in which packets meet them.
    pub(crate) fn hooked(
        &self,
        ruleset: Ruleset,
        families: &[Family],
        table: &str,
    ) -> Vec<HookedChain> {
        let based = self
            .chains
            .iter()
            .filter_map(|(name, chain)| Some((name, chain, chain.base?)));
        let mut hooked: Vec<_> = based
            .map(|(name, chain, base)| {
                let reached = self.reached(name);
                let mut found = HookedChain {
                    ruleset,
                    families: families.to_vec(),
                    table: printable(table),
                    name: printable(name),
                    point: base.point,
                    priority: base.priority,
                    is_nat: base.is_nat,
                    refuses_rest: base.drops || chain.refuses_rest,
                    effects: chain.effects,
                    rules: chain.rules,
                    leads_to: BTreeSet::new(),
                };
                for name in reached {
                    if let Some(chain) = self.chains.get(name) {
                        found.effects.add(chain.effects);
                        found.rules += chain.rules;
                    }
                    if found.leads_to.len() < MOST_NAMES {
                        found.leads_to.insert(printable(name));
                    }
                }
                found
            })
            .collect();
        hooked.sort_by(|a, b| {
            let order = |chain: &HookedChain| (chain.point as u32, chain.priority);
            order(a).cmp(&order(b)).then_with(|| a.name.cmp(&b.name))
        });
        hooked
    }

    /// The chains that packets may get to from one.
    fn reached<'c>(&'c self, from: &'c str) -> BTreeSet<&'c str> {
        let mut reached = BTreeSet::new();
        let mut open = vec![from];
        while let Some(name) = open.pop() {
            let jumps = self.chains.get(name).map(|chain| &chain.jumps);
            for next in jumps.into_iter().flatten() {
                if next != from && reached.insert(next.as_str()) {
                    open.push(next);
                }
            }
        }
        reached
    }
}

/// The chains of the legacy ruleset, out of what its saving tool printed.
pub fn of_saved(family: Family, save: &str) -> Vec<HookedChain> {
    let tables = parse(save);
    let hooked = tables
        .iter()
        .flat_map(|table| of_table(table).hooked(Ruleset::Legacy, &[family], table.name));
    hooked.collect()
}

fn of_table(table: &SavedTable<'_>) -> TableChains {
    let mut chains = TableChains::default();
    for chain in table.chains.iter().filter(|chain| chain.built_in) {
        let Some((point, priority)) = place(table.name, chain.name) else {
            continue;
        };
        chains.add_base(
            chain.name,
            Base {
                point,
                priority,
                is_nat: table.name == "nat",
                drops: chain.drops,
            },
        );
    }
    for rule in &table.rules {
        chains.add_rule(rule.chain, sketch(rule));
    }
    chains
}

fn sketch(rule: &SavedRule<'_>) -> RuleSketch {
    let mut sketch = RuleSketch {
        has_conditions: !rule.args.starts_with("-j "),
        ..RuleSketch::default()
    };
    for target in rule.targets() {
        sketch.effects.add(RuleEffects::of_target(&target));
        sketch.effects.untracks |= target == "CT" && rule.args.contains("--notrack");
        sketch.jumps.push(target.into_owned());
    }
    sketch
}

/// Where a built-in chain stands, as the kernel has it.
fn place(table: &str, chain: &str) -> Option<(HookPoint, i32)> {
    let point = match chain {
        "PREROUTING" => HookPoint::Prerouting,
        "INPUT" => HookPoint::Input,
        "FORWARD" => HookPoint::Forward,
        "OUTPUT" => HookPoint::Output,
        "POSTROUTING" => HookPoint::Postrouting,
        _ => return None,
    };
    let is_source = matches!(point, HookPoint::Input | HookPoint::Postrouting);
    let priority = match table {
        "raw" => -300,
        "mangle" => -150,
        "nat" if is_source => 100,
        "nat" => -100,
        "filter" => 0,
        "security" => 50,
        _ => return None,
    };
    Some((point, priority))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAVED: &str = "\
*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
:DOCKER-USER - [0:0]
:LOOP - [0:0]
-A INPUT -i eth0 -j ACCEPT
-A INPUT -j REJECT --reject-with icmp-host-prohibited
-A FORWARD -j DOCKER-USER
-A DOCKER-USER -p tcp -m comment --comment \"not for -j DROP us\" -j LOOP
-A LOOP -j DOCKER-USER
-A LOOP -s 192.0.2.0/24 -j DROP
COMMIT
*raw
:PREROUTING ACCEPT [0:0]
-A PREROUTING -p udp -j CT --notrack
COMMIT
";

    #[test]
    fn saved_chains_include_the_chains_they_lead_to() {
        let chains = of_saved(Family::V4, SAVED);
        let chain = |name: &str| chains.iter().find(|chain| chain.name == name).unwrap();
        let forward = chain("FORWARD");
        assert!(forward.refuses_rest && forward.effects.refuses && !forward.effects.accepts);
        assert_eq!((forward.priority, forward.rules), (0, 4));
        assert!(forward.leads_to.contains("LOOP"), "{forward:?}");
        let input = chain("INPUT");
        assert!(input.refuses_rest && input.effects.accepts);
        assert!(!chain("OUTPUT").refuses_rest);
        let raw = chain("PREROUTING");
        assert!(raw.effects.untracks);
        assert_eq!((raw.point, raw.priority), (HookPoint::Prerouting, -300));
    }

    #[test]
    fn a_rule_with_conditions_does_not_refuse_the_rest() {
        let chains = of_saved(
            Family::V4,
            "*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -s 192.0.2.1/32 -j DROP\nCOMMIT\n",
        );
        assert!(chains[0].effects.refuses && !chains[0].refuses_rest);
    }

    #[test]
    fn text_that_is_no_ruleset_has_no_chains() {
        assert_eq!(of_saved(Family::V4, "*filter\n:FORWARD DROP\n"), []);
        assert_eq!(of_saved(Family::V4, "\u{0}\n:::\nCOMMIT\n"), []);
    }
}
