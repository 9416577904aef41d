//! A stand-in for the tools and the kernel: takes what the restoring tool takes and prints what the saving tool prints.
//!
//! As strict as the real ones where it matters: a section is all or nothing, a jump needs its target, a rule that is removed must be there,
//! and so must a chain, empty and without anything that leads to it.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use super::{SavedRule, parse};

/// Tables with chains and rules.
#[derive(Clone, Debug, Default)]
pub struct IptablesSim {
    tables: BTreeMap<String, SimChains>,
}

type SimChains = BTreeMap<String, Vec<String>>;

/// The built-in chains of the tables we use.
const BUILT_IN: [(&str, &[&str]); 3] = [
    ("filter", &["INPUT", "FORWARD", "OUTPUT"]),
    ("nat", &["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"]),
    (
        "mangle",
        &["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"],
    ),
];

/// Targets that are no chains.
const VERDICTS: [&str; 8] = [
    "ACCEPT",
    "DROP",
    "RETURN",
    "REJECT",
    "MARK",
    "MASQUERADE",
    "DNAT",
    "REDIRECT",
];

impl IptablesSim {
    /// The ruleset that the saving tool printed.
    pub fn load(save: &str) -> Self {
        let mut sim = Self::default();
        for table in parse(save) {
            let chains = sim.tables.entry(table.name.to_owned()).or_default();
            for chain in table.chains {
                chains.insert(chain.name.to_owned(), Vec::new());
            }
            for rule in table.rules {
                let rules = chains.entry(rule.chain.to_owned()).or_default();
                rules.push(rule.args.to_owned());
            }
        }
        sim
    }

    /// Takes what the restoring tool takes, with `--noflush`. Sections before a bad one stay, as they do in the kernel.
    ///
    /// # Errors
    /// The first line that cannot be done, and why.
    pub fn restore(&mut self, input: &str) -> Result<(), String> {
        let mut lines = input.lines();
        while let Some(line) = lines.next() {
            let name = line
                .strip_prefix('*')
                .ok_or_else(|| format!("{line}: no section"))?;
            let mut chains = self.tables.get(name).cloned().unwrap_or_default();
            for built_in in built_in(name) {
                chains.entry((*built_in).to_owned()).or_default();
            }
            loop {
                match lines.next() {
                    None => return Err(format!("{name}: no COMMIT")),
                    Some("COMMIT") => break,
                    Some(line) => {
                        take(&mut chains, built_in(name), line)
                            .map_err(|why| format!("{line}: {why}"))?;
                    }
                }
            }
            self.tables.insert(name.to_owned(), chains);
        }
        Ok(())
    }

    /// What the saving tool prints.
    pub fn save(&self) -> String {
        let mut text = String::new();
        for (table, chains) in &self.tables {
            let _ = writeln!(text, "*{table}");
            for chain in chains.keys() {
                let built_in = built_in(table).contains(&chain.as_str());
                let policy = if built_in { "ACCEPT" } else { "-" };
                let _ = writeln!(text, ":{chain} {policy} [0:0]");
            }
            for (chain, rules) in chains {
                for rule in rules {
                    let _ = writeln!(text, "-A {chain} {rule}");
                }
            }
            let _ = writeln!(text, "COMMIT");
        }
        text
    }

    /// The rules of a chain, if it is there.
    pub fn chain(&self, table: &str, chain: &str) -> Option<&[String]> {
        let rules = self.tables.get(table)?.get(chain)?;
        Some(rules)
    }

    /// All chains of a table with their rules.
    pub fn chains(&self, table: &str) -> impl Iterator<Item = (&String, &Vec<String>)> {
        self.tables.get(table).into_iter().flatten()
    }
}

fn built_in(table: &str) -> &'static [&'static str] {
    let found = BUILT_IN.iter().find(|(name, _)| *name == table);
    found.map_or(&[], |(_, chains)| chains)
}

fn take(chains: &mut SimChains, built_in: &[&str], line: &str) -> Result<(), String> {
    if let Some(rest) = line.strip_prefix(':') {
        let name = rest.split(' ').next().unwrap_or_default();
        chains.insert(name.to_owned(), Vec::new());
        return Ok(());
    }
    let (command, rest) = line.split_once(' ').ok_or("no command")?;
    let (chain, rule) = rest.split_once(' ').unwrap_or((rest, ""));
    if command == "-X" {
        return remove(chains, built_in, chain);
    }
    check_target(chains, chain, rule)?;
    let rules = chains.get_mut(chain).ok_or("no such chain")?;
    match command {
        "-A" => rules.push(rule.to_owned()),
        "-I" => rules.insert(0, rule.to_owned()),
        "-D" => {
            let at = rules.iter().position(|found| found == rule);
            rules.remove(at.ok_or("no such rule")?);
        }
        _ => return Err("no such command".into()),
    }
    Ok(())
}

fn check_target(chains: &SimChains, chain: &str, args: &str) -> Result<(), String> {
    let rule = SavedRule { chain, args };
    for target in rule.targets() {
        if !VERDICTS.contains(&&*target) && !chains.contains_key(&*target) {
            return Err(format!("no chain {target}"));
        }
    }
    Ok(())
}

fn remove(chains: &mut SimChains, built_in: &[&str], name: &str) -> Result<(), String> {
    let rules = chains.get(name).ok_or("no such chain")?;
    if built_in.contains(&name) || !rules.is_empty() {
        return Err("the chain is not empty, or is built in".into());
    }
    let held: HashMap<_, _> = chains
        .iter()
        .flat_map(|(chain, rules)| rules.iter().map(move |args| SavedRule { chain, args }))
        .flat_map(|rule| {
            rule.targets()
                .map(|t| (t.into_owned(), rule.chain))
                .collect::<Vec<_>>()
        })
        .collect();
    if let Some(by) = held.get(name) {
        return Err(format!("{by} leads to it"));
    }
    chains.remove(name);
    Ok(())
}
