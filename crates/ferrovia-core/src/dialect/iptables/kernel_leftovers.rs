//! What a kube-proxy left behind in the chains of `iptables-nft`, read from the kernel itself and not from what the tool prints.
//!
//! The same choice as in `leftovers.rs`, but rules are named by their handles, so any rule can go, also one that the tool could not repeat.

use std::collections::{HashMap, HashSet};

use super::leftovers::is_kube_proxys;

/// The tables of iptables in which a kube-proxy has chains.
pub const TABLES: [&str; 3] = ["nat", "filter", "mangle"];

/// One of these tables, as the kernel has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelTable {
    pub name: String,
    /// Its chains, in any order.
    pub chains: Vec<KernelChain>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelChain {
    pub name: String,
    /// Packets enter it by themselves, so it is one that iptables has from the beginning.
    pub is_base: bool,
    /// How many rules it has and how many rules and elements refer to it, together.
    pub uses: u32,
    pub rules: Vec<KernelRule>,
}

/// A rule, as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelRule {
    /// What the kernel calls it.
    pub handle: u64,
    /// The chain it jumps to.
    pub target: Option<String>,
}

/// What to remove from one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelRemoval {
    pub table: String,
    /// Rules of built-in chains that jump to chains of kube-proxy's, as chain and handle.
    pub jumps: Vec<(String, u64)>,
    /// Chains to empty and delete.
    pub deleted: Vec<String>,
    /// Chains to empty only, because something of others refers to them.
    pub kept: Vec<String>,
    /// How many rules the emptied chains hold.
    pub rules_inside: usize,
}

/// Finds kube-proxy's chains in a table, but for those still of use, which `is_used` names by table and chain; `None` if there is nothing to do.
pub fn leftovers_in_kernel(
    table: &KernelTable,
    is_used: impl Fn(&str, &str) -> bool,
) -> Option<KernelRemoval> {
    let is_left = |chain: &&KernelChain| {
        !chain.is_base
            && is_kube_proxys(&table.name, &chain.name)
            && !is_used(&table.name, &chain.name)
    };
    let left: Vec<&KernelChain> = table.chains.iter().filter(is_left).collect();
    let names: HashSet<&str> = left.iter().map(|chain| chain.name.as_str()).collect();
    let mut removal = KernelRemoval {
        table: table.name.clone(),
        jumps: Vec::new(),
        deleted: Vec::new(),
        kept: Vec::new(),
        rules_inside: left.iter().map(|chain| chain.rules.len()).sum(),
    };
    // How many rules refer to each chain, and which chains rules of others keep.
    let (mut references, mut held) = (HashMap::<&str, u32>::new(), HashSet::new());
    for chain in &table.chains {
        for rule in &chain.rules {
            let Some(target) = rule.target.as_deref().filter(|to| names.contains(to)) else {
                continue;
            };
            *references.entry(target).or_default() += 1;
            if names.contains(chain.name.as_str()) || is_used(&table.name, &chain.name) {
                continue;
            }
            if chain.is_base {
                removal.jumps.push((chain.name.clone(), rule.handle));
            } else {
                held.insert(target);
            }
        }
    }
    for chain in left {
        let known = references.get(chain.name.as_str()).copied().unwrap_or(0);
        let own = u32::try_from(chain.rules.len()).unwrap_or(u32::MAX);
        // More uses than there are rules: an element of a map leads there.
        let is_held = held.contains(chain.name.as_str()) || chain.uses > known.saturating_add(own);
        if !is_held {
            removal.deleted.push(chain.name.clone());
        } else if !chain.rules.is_empty() {
            removal.kept.push(chain.name.clone());
        }
    }
    let is_empty =
        removal.jumps.is_empty() && removal.deleted.is_empty() && removal.kept.is_empty();
    (!is_empty).then_some(removal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(name: &str, uses: u32, targets: &[Option<&str>]) -> KernelChain {
        let rule = |(number, target): (usize, &Option<&str>)| KernelRule {
            handle: number as u64 + 10,
            target: target.map(str::to_owned),
        };
        KernelChain {
            name: name.into(),
            is_base: name == "PREROUTING",
            uses,
            rules: targets.iter().enumerate().map(rule).collect(),
        }
    }

    fn table(chains: Vec<KernelChain>) -> KernelTable {
        KernelTable {
            name: "nat".into(),
            chains,
        }
    }

    #[test]
    fn chains_go_with_the_jumps_of_built_in_chains_to_them() {
        let table = table(vec![
            chain(
                "PREROUTING",
                3,
                &[Some("DOCKER"), Some("KUBE-SERVICES"), None],
            ),
            chain("DOCKER", 1, &[]),
            chain("KUBE-SERVICES", 2, &[Some("KUBE-MARK-MASQ")]),
            chain("KUBE-MARK-MASQ", 2, &[None]),
            chain("KUBE-KUBELET-CANARY", 0, &[]),
        ]);
        let removal = leftovers_in_kernel(&table, |_, _| false).unwrap();
        assert_eq!(removal.jumps, [("PREROUTING".to_owned(), 11)]);
        assert_eq!(removal.deleted, ["KUBE-SERVICES", "KUBE-MARK-MASQ"]);
        assert_eq!((removal.kept, removal.rules_inside), (Vec::new(), 2));
    }

    #[test]
    fn chains_with_foreign_references_are_only_flushed() {
        let table = table(vec![
            chain("MINE", 1, &[Some("KUBE-SERVICES")]),
            chain("KUBE-SERVICES", 2, &[None]),
            // One use that no rule explains.
            chain("KUBE-NODEPORTS", 2, &[None]),
            chain("KUBE-MARK-MASQ", 1, &[]),
        ]);
        let removal = leftovers_in_kernel(&table, |_, _| false).unwrap();
        assert_eq!(removal.deleted, [""; 0]);
        assert_eq!(removal.kept, ["KUBE-SERVICES", "KUBE-NODEPORTS"]);
    }

    #[test]
    fn chains_that_are_used_stay_with_what_leads_to_them() {
        let is_used = |_: &str, name: &str| name == "KUBE-SERVICES";
        let table = table(vec![
            chain("PREROUTING", 1, &[Some("KUBE-SERVICES")]),
            chain("KUBE-SERVICES", 2, &[None]),
        ]);
        assert_eq!(leftovers_in_kernel(&table, is_used), None);
        assert!(leftovers_in_kernel(&table, |_, _| false).is_some());
    }
}
