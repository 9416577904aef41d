//! Cuts a big change into transactions that suit the tool.
//!
//! The nft tool's time grows with the square of what is in one transaction, the legacy tool loads the whole table for each. So a plan is written
//! in an order that is right at every point between two services, and this decides where it is really cut.

use crate::dialect::iptables::{Commits, RestoreSection, TableName};

/// About so many rules are written in one transaction, where there may be several: those of 150 services with two endpoints.
///
/// With 10,000 such services, the same text cut elsewhere took the nft tool (1.8.9) so long, with a tenth more or less from run to run: 4.6 s
/// in transactions of 25 services, 3.4 s of 80, 3.0 s of 120 to 200, 3.4 s of 330, 6 s of 1,000, and 14 to 43 s in one.
const RULES: usize = 1000;
/// So many chains are removed in one.
const REMOVALS: usize = 500;

/// The transactions on one table.
#[derive(Debug)]
pub(super) struct Sections {
    commits: Commits,
    done: Vec<RestoreSection>,
    open: RestoreSection,
    /// Rules in the open one.
    rules: usize,
}

impl Sections {
    pub(super) fn new(table: TableName, commits: Commits) -> Self {
        Self {
            commits,
            done: Vec::new(),
            open: RestoreSection::new(table),
            rules: 0,
        }
    }

    /// The one that is being written.
    pub(super) fn open(&mut self) -> &mut RestoreSection {
        &mut self.open
    }

    /// So many rules were written.
    pub(super) fn wrote(&mut self, rules: usize) {
        self.rules += rules;
    }

    /// Everything up to here can stand for itself.
    pub(super) fn may_cut(&mut self) {
        if self.rules >= RULES {
            self.cut();
        }
    }

    /// Empties some chains; empties and removes others.
    pub(super) fn remove_chains(&mut self, emptied: &[String], removed: &[String]) {
        let is_short = removed.len() <= REMOVALS;
        let all: Vec<&String> = emptied.iter().chain(removed).collect();
        // They may lead to each other, so all are empty before the first goes.
        for some in all.chunks(REMOVALS) {
            some.iter().for_each(|chain| self.open.declare(chain));
            if !is_short {
                self.cut();
            }
        }
        for some in removed.chunks(REMOVALS) {
            some.iter().for_each(|chain| self.open.delete_chain(chain));
            if !is_short {
                self.cut();
            }
        }
    }

    pub(super) fn finish(self) -> Vec<RestoreSection> {
        let mut all = self.done;
        all.push(self.open);
        all
    }

    fn cut(&mut self) {
        if self.commits == Commits::Many {
            let next = RestoreSection::new(self.open.table());
            self.done.push(std::mem::replace(&mut self.open, next));
            self.rules = 0;
        }
    }
}
