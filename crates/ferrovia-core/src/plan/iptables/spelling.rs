//! Tools that print our rules differently from what we expect.
//!
//! A version we have not met may order or abbreviate options in its own way. Chains of ours are then rewritten whenever they are compared,
//! which is a pity but right. A rule in somebody else's chain would be added once more each time, which is not.

use std::collections::HashSet;

use super::base::ChainRules;
use super::kernel::Found;
use crate::dialect::iptables::{SavedRule, Section, TableName};

/// The rules we have added to chains of others.
#[derive(Debug, Default)]
pub(in crate::plan) struct Spelling {
    added: HashSet<(TableName, &'static str, String)>,
}

impl Spelling {
    /// Adds what is missing of a chain where others have rules too.
    pub(in crate::plan) fn complete(
        &mut self,
        chain: &ChainRules,
        found: Option<&Found<'_>>,
        section: &mut Section,
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

    /// Whether a rule that is not found is there all the same: we have added it before, and there is one with the same target and comment.
    /// If not, it is about to be added.
    pub(in crate::plan) fn explains(
        &mut self,
        table: TableName,
        chain: &'static str,
        found: Option<&Found<'_>>,
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
