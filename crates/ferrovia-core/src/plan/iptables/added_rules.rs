//! Rules that we added to foreign chains, for iptables versions that print them differently from what we expect.
//!
//! An unknown version may order or abbreviate options in its own way. Our own chains are then rewritten on every comparison,
//! which is wasteful but correct. A rule in a foreign chain would be added again each time, which is not.

use std::collections::HashSet;

use super::base_chains::IptablesChainRules;
use super::observed::ObservedRules;
use crate::dialect::iptables::{RestoreSection, SavedRule, TableName};

/// The rules we have added to foreign chains.
#[derive(Debug, Default)]
pub(in crate::plan) struct AddedRules {
    added: HashSet<(TableName, &'static str, String)>,
}

impl AddedRules {
    /// Adds missing rules to a chain that also holds foreign rules.
    pub(in crate::plan) fn complete(
        &mut self,
        chain: &IptablesChainRules,
        found: Option<&ObservedRules<'_>>,
        section: &mut RestoreSection,
    ) {
        if found.is_none() {
            section.declare(chain.name);
        }
        for rule in &chain.rules {
            let is_there = found.is_some_and(|found| found.has(rule))
                || self.explains(chain.table, chain.name, found, rule);
            if !is_there {
                section.append(chain.name, rule);
            }
        }
    }

    /// Whether a rule that does not match exists in another form: we have added it before, and one has the same target and comment.
    /// If not, it is about to be added.
    pub(in crate::plan) fn explains(
        &mut self,
        table: TableName,
        chain: &'static str,
        found: Option<&ObservedRules<'_>>,
        rule: &str,
    ) -> bool {
        let is_new = self.added.insert((table, chain, rule.to_owned()));
        let is_alike =
            |found: &str| target(found) == target(rule) && comment(found) == comment(rule);
        !is_new && found.is_some_and(|found| found.rules.iter().any(|rule| is_alike(rule)))
    }
}

fn target(args: &str) -> Option<String> {
    let rule = SavedRule { chain: "", args };
    rule.targets().last().map(|target| target.into_owned())
}

/// The text of a comment, as far as its quotes.
fn comment(args: &str) -> Option<&str> {
    let (_, text) = args.split_once("--comment ")?;
    let text = text.trim_start_matches('"');
    text.split('"').next()
}
