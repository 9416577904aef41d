//! A plan's rules in the making.

use super::chains::{JumpPosition, PortalChain, PortalJump, egress, jumps};
use super::context::UserspaceContext;
use crate::dialect::iptables::{Restore, RestoreSection, TableName};

/// Rules in an order in which traffic is right between any two sections: refusals come before the way to a proxy goes, and go after it has
/// come, because packets that have been sent to a proxy do not meet them.
#[derive(Debug)]
pub(super) struct UserspaceWriter {
    mangle: RestoreSection,
    filter: RestoreSection,
    nat: RestoreSection,
    filter_gone: RestoreSection,
}

impl Default for UserspaceWriter {
    fn default() -> Self {
        Self {
            mangle: RestoreSection::new(TableName::Mangle),
            filter: RestoreSection::new(TableName::Filter),
            nat: RestoreSection::new(TableName::Nat),
            filter_gone: RestoreSection::new(TableName::Filter),
        }
    }
}

impl UserspaceWriter {
    /// Where additions to a table go.
    pub(super) fn section(&mut self, table: TableName) -> &mut RestoreSection {
        match table {
            TableName::Filter => &mut self.filter,
            TableName::Nat => &mut self.nat,
            TableName::Mangle => &mut self.mangle,
        }
    }

    /// Where rules of a table go from.
    pub(super) fn gone(&mut self, table: TableName) -> &mut RestoreSection {
        match table {
            TableName::Filter => &mut self.filter_gone,
            _ => self.section(table),
        }
    }

    /// Replaces a service port's rules in a chain. They are few and their order matters, so if one differs all are written.
    pub(super) fn replace(&mut self, chain: PortalChain, old: &[String], new: &[String]) {
        if old == new {
            return;
        }
        // What stays must go first, or the tool would remove the new copy.
        let (stays, gone): (Vec<_>, Vec<_>) = old.iter().partition(|rule| new.contains(rule));
        let section = self.section(chain.table());
        for rule in stays {
            section.delete(chain.name(), rule);
        }
        for rule in new.iter().rev() {
            section.insert(chain.name(), rule);
        }
        for rule in gone {
            self.gone(chain.table()).delete(chain.name(), rule);
        }
    }

    /// Changes the ways into the chains to what other settings make of them.
    pub(super) fn change_jumps(&mut self, old: &UserspaceContext, new: &UserspaceContext) {
        let (before, after) = (jumps(old), jumps(new));
        let (egress_before, egress_after) = (egress(old), egress(new));
        let is_new = egress_after != egress_before;
        if let Some((chain, rules)) = egress_after.filter(|_| is_new) {
            self.nat.fill(chain, &rules);
        }
        for jump in after.iter().filter(|jump| !before.contains(jump)) {
            self.add_jump(jump);
        }
        for jump in before.iter().filter(|jump| !after.contains(jump)) {
            self.gone(jump.table).delete(jump.from, &jump.rule);
        }
    }

    pub(super) fn add_jump(&mut self, jump: &PortalJump) {
        let section = self.section(jump.table);
        match jump.place {
            JumpPosition::Head => section.insert(jump.from, &jump.rule),
            JumpPosition::End => section.append(jump.from, &jump.rule),
        }
    }

    pub(super) fn finish(self) -> Restore {
        let mut rules = Restore::default();
        for section in [self.mangle, self.filter, self.nat, self.filter_gone] {
            rules.push(section);
        }
        rules
    }
}
