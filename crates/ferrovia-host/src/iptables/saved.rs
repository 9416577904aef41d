//! All iptables rulesets of this namespace as their tools print them, for reports.

use std::env;

use ferrovia_core::family::Family;

use super::tool::{Backend, tools_on};
use crate::exec;

/// One family's rules in one of the kernel's two rulesets.
#[derive(Debug)]
pub struct Saved {
    /// The tool that was asked, such as `ip6tables-legacy`.
    pub tool: String,
    pub family: Family,
    /// Which ruleset. For plain `iptables`, the one that it reports.
    pub backend: Backend,
    /// What it said. Empty if there are no tables.
    pub text: Result<String, exec::Error>,
}

/// Asks every tool there is. Nothing is changed, and no table is made by asking.
pub fn saved() -> Vec<Saved> {
    let tools = tools_on(&env::var_os("PATH").unwrap_or_default());
    let saved = tools.into_iter().map(|mut tool| {
        if tool.backend == Backend::Chosen
            && let Ok(version) = tool.version()
        {
            tool.backend = super::detect::backend_of(&version);
        }
        Saved {
            tool: tool.name(),
            family: tool.family,
            backend: tool.backend,
            text: if tool.has_tables() {
                tool.save(&[])
            } else {
                Ok(String::new())
            },
        }
    });
    saved.collect()
}
