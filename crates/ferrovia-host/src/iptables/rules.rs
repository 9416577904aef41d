//! How many rules there are, for those who ask from other threads.

use std::sync::{Arc, Mutex};

use ferrovia_core::dialect::iptables::RuleCount;

use crate::locked;

/// The rules of one family. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct RulesWritten(Arc<Mutex<Option<Rules>>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Rules of ours that are in the kernel.
    pub in_force: RuleCount,
    /// How many of them the last write added.
    pub written: RuleCount,
}

impl RulesWritten {
    /// The numbers as of the last write that succeeded, if there was one.
    pub fn get(&self) -> Option<Rules> {
        *locked(&self.0)
    }

    pub(super) fn set(&self, in_force: RuleCount, written: RuleCount) {
        *locked(&self.0) = Some(Rules { in_force, written });
    }
}
