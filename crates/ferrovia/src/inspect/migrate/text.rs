//! The answer for people.

use std::fmt;

use super::{Change, OldMode};
use crate::inspect::wrap::hanging;

/// How many Services are named.
const MOST: usize = 8;

/// What holds for everybody who comes from these modes, and asks for nothing.
const ALWAYS: &str = "In nftables mode a port of a cluster IP that no Service has is refused, and addresses of a ServiceCIDR that no Service has are dropped; iptables let such packets go wherever routes lead, ipvs answered for itself.";

/// Changes as text.
#[derive(Clone, Copy, Debug)]
pub struct Text<'c> {
    /// Where from.
    pub from: OldMode,
    /// What changes.
    pub changes: &'c [Change],
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = self.from.name();
        match self.changes.len() {
            0 => writeln!(
                f,
                "from {from} to nftables: nothing changes for these Services and settings"
            )?,
            1 => writeln!(f, "from {from} to nftables: 1 thing changes")?,
            count => writeln!(f, "from {from} to nftables: {count} things change")?,
        }
        for change in self.changes {
            writeln!(f, "\n{}", change.change)?;
            if let Some(setting) = change.setting {
                write!(f, "{}", hanging("  setting   ", setting))?;
            }
            if !change.services.is_empty() {
                write!(f, "{}", hanging("  Services  ", &named(&change.services)))?;
            }
            write!(f, "{}", hanging("  what      ", &change.what))?;
            write!(f, "{}", hanging("  do        ", &change.remedy))?;
        }
        write!(f, "\n{}", hanging("", ALWAYS))
    }
}

fn named(services: &[String]) -> String {
    let shown: Vec<_> = services.iter().take(MOST).map(String::as_str).collect();
    match services.len().saturating_sub(MOST) {
        0 => shown.join(", "),
        more => format!("{} and {more} more (all with -o json)", shown.join(", ")),
    }
}
