//! The iptables mode's way into the kernel.

use std::time::{Duration, Instant};

use ferrovia_core::dialect::iptables::{Restore, TableName};
use ferrovia_core::family::Family;
use ferrovia_core::plan::iptables::{CANARY, IptablesObserved, fixed_names};

use super::counters::{AcctCounter, AcctCounters};
use super::lock::{Lock, LockError, LockUsage};
use super::rules::RulesWritten;
use super::settings;
use super::tool::{Backend, ChainPresence, Tool};
use crate::{Applier, exec, sysctl};

/// How long we wait for the legacy tools' lock before the attempt counts as failed.
const LOCK_LIMIT: Duration = Duration::from_secs(30);
/// The whole ruleset is compared so rarely that reading it takes at most this part of the time.
const COMPARING_SHARE: u32 = 100;
/// How often a comparison is tried that cannot succeed.
const RARELY: Duration = Duration::from_secs(600);

/// Why something could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A tool failed at something else than a line.
    #[error(transparent)]
    Tool(#[from] exec::Error),
    /// A tool did not accept a line of the plan.
    #[error("{error} (line: {line})")]
    Line {
        error: exec::Error,
        /// The line it did not accept.
        line: String,
    },
    /// The lock could not be had.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Another process has put something into a built-in chain that the tool does not understand.
    #[error(
        "cannot list chain {chain} of table {table}, which holds a rule that iptables does not understand (see `nft list ruleset`): {cause}"
    )]
    Incompatible {
        table: &'static str,
        chain: &'static str,
        cause: exec::Error,
    },
    /// A counter could not be made.
    #[error("cannot create the packet counters: {0}")]
    Counters(ferrovia_netlink::Error),
    /// Node ports cannot answer on loopback.
    #[error(
        "cannot serve node ports on 127.0.0.1 (disable localhost node ports, or set route_localnet by hand): {cause}"
    )]
    RouteLocalnet {
        /// What was tried, and what the system said.
        cause: sysctl::Error,
    },
}

/// Writes one family's rules.
#[derive(Debug)]
pub struct IptablesApplier {
    tool: Tool,
    lock: Option<Lock>,
    usage: LockUsage,
    rules: RulesWritten,
    counters: Vec<AcctCounter>,
    /// The setting for node ports on loopback has still to be made.
    localnet_wanted: bool,
    /// When all rules are to be compared again.
    compare_at: Option<Instant>,
    /// What was read last has yet to be answered with a write.
    has_read: bool,
    /// The chain that is gone when everything is.
    canary: (TableName, &'static str),
}

impl IptablesApplier {
    /// An applier that uses this tool.
    pub fn new(tool: Tool) -> Self {
        let lock = (tool.backend != Backend::Nft).then(|| Lock::new(LOCK_LIMIT));
        Self {
            tool,
            lock,
            usage: LockUsage::default(),
            rules: RulesWritten::default(),
            counters: Vec::new(),
            localnet_wanted: false,
            compare_at: None,
            has_read: false,
            canary: (TableName::Mangle, CANARY),
        }
    }

    /// Rules count into these, so they are made before rules are written.
    #[must_use]
    pub fn with_counters(mut self, counters: &[AcctCounter]) -> Self {
        self.counters = counters.to_vec();
        self
    }

    /// Node ports answer on loopback, which requires a sysctl once the rules are in force.
    #[must_use]
    pub fn with_localhost_node_ports(mut self) -> Self {
        self.localnet_wanted = self.tool.family == Family::V4;
        self
    }

    /// Another chain whose absence means that everything was removed.
    #[must_use]
    pub(crate) fn with_canary(mut self, table: TableName, chain: &'static str) -> Self {
        self.canary = (table, chain);
        self
    }

    /// Another limit for the wait for the lock.
    #[must_use]
    pub fn with_lock_limit(mut self, limit: Duration) -> Self {
        self.lock = self.lock.map(|_| Lock::new(limit));
        self
    }

    /// How much the lock is used, to be asked at any time.
    pub fn lock_usage(&self) -> LockUsage {
        self.usage.clone()
    }

    /// How many rules there are, to be asked at any time.
    pub fn rules_written(&self) -> RulesWritten {
        self.rules.clone()
    }

    fn restore(&self, plan: &Restore) -> Result<(), Error> {
        if let Some(lock) = &self.lock {
            let start = Instant::now();
            let free = lock.wait_until_free();
            self.usage.waited(start.elapsed());
            free?;
        }
        let start = Instant::now();
        let result = self.tool.restore(plan.to_string());
        if self.lock.is_some() {
            self.usage.held(start.elapsed());
        }
        result.map_err(|error| match refused_line(&error, plan) {
            Some(line) => Error::Line { error, line },
            None => Error::Tool(error),
        })
    }

    /// Reads a table that the tool cannot print because of another process's rule, as far as our own chains and the jumps to them go. The chains of
    /// services are not found that way and so are written again.
    fn save_known_chains(&self, table: TableName) -> Result<String, Error> {
        let tool = self.tool.name();
        tracing::warn!(
            table = table.as_str(),
            tool,
            "Found a foreign rule that iptables cannot list; rewriting all rules of this table without comparing"
        );
        let (built_in, ours) = fixed_names(table);
        let mut save = format!("*{}\n", table.as_str());
        for chain in built_in.iter().chain(ours) {
            match self.tool.list(table, chain) {
                Ok(rules) => {
                    let rules = rules.lines().filter(|line| line.starts_with("-A "));
                    let rules: Vec<&str> = rules.collect();
                    let policy = if built_in.contains(chain) {
                        "ACCEPT"
                    } else {
                        "-"
                    };
                    save += &format!(":{chain} {policy} [0:0]\n{}\n", rules.join("\n"));
                }
                // Without knowing whether our jump is there we would add one more each time.
                Err(cause) if built_in.contains(chain) => {
                    return Err(Error::Incompatible {
                        chain,
                        table: table.as_str(),
                        cause,
                    });
                }
                Err(_) => {}
            }
        }
        Ok(save + "COMMIT\n")
    }

    fn allow_localnet(&mut self) -> Result<(), Error> {
        if self.localnet_wanted {
            settings::allow_localnet_routing().map_err(|cause| Error::RouteLocalnet { cause })?;
            self.localnet_wanted = false;
        }
        Ok(())
    }
}

impl Applier for IptablesApplier {
    type Observed = IptablesObserved;
    type Plan = Restore;
    type Error = Error;

    fn observe(&mut self) -> Result<IptablesObserved, Error> {
        if !self.counters.is_empty() {
            let mut counters = AcctCounters::open().map_err(Error::Counters)?;
            for counter in &self.counters {
                counters.ensure(*counter).map_err(Error::Counters)?;
            }
        }
        let start = Instant::now();
        // The legacy tool knows only tables that another process has used; the rest is empty.
        let save = self.tool.save(&[])?;
        self.compare_at = Some(Instant::now() + start.elapsed() * COMPARING_SHARE);
        self.has_read = true;
        let mut save = save;
        for table in incompatible(&save) {
            save += &self.save_known_chains(table)?;
            self.compare_at = Some(Instant::now() + RARELY);
        }
        Ok(IptablesObserved { save })
    }

    fn apply(&mut self, plan: &Restore) -> Result<bool, Error> {
        let changes = !plan.is_empty();
        let start = Instant::now();
        if changes {
            self.restore(plan)?;
        }
        if std::mem::take(&mut self.has_read) {
            // What was read may have been nothing, and quickly; what is there now takes about half as long to read as it took to write.
            let at = Instant::now() + start.elapsed() * (COMPARING_SHARE / 2);
            self.compare_at = self.compare_at.max(Some(at));
        }
        self.rules.set(plan.in_force, plan.written());
        self.allow_localnet()?;
        Ok(changes)
    }

    /// Checking the canary chain is cheap and shows that everything was removed. Whether single rules were changed is only seen by comparing
    /// all, which is due now and then.
    fn is_untouched(&mut self) -> Result<bool, Error> {
        if self.compare_at.is_none_or(|at| at <= Instant::now()) {
            return Ok(false);
        }
        // Another process who holds the lock is at work; what comes of it is seen the next time.
        let (table, chain) = self.canary;
        let canary = self.tool.has_chain(table, chain)?;
        Ok(canary != ChainPresence::Missing)
    }
}

/// The tables that the nft tool cannot print. It reports it among its comments and goes on.
fn incompatible(save: &str) -> Vec<TableName> {
    let complains_about = |table: &TableName| {
        let complaint = format!("# Table `{}' is incompatible", table.as_str());
        save.lines().any(|line| line.starts_with(&complaint))
    };
    TableName::ALL.into_iter().filter(complains_about).collect()
}

/// The line of the input that a tool complained about: it says `line 12 failed` or `line 12: RULE_APPEND failed`.
fn refused_line(error: &exec::Error, plan: &Restore) -> Option<String> {
    const LONGEST: usize = 300;
    let exec::Error::Failed { stderr, .. } = error else {
        return None;
    };
    let after = stderr.split("line ").nth(1)?;
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    let number: usize = digits.parse().ok()?;
    // Printed again rather than kept: a plan can be large, and failures are rare.
    let input = plan.to_string();
    let line = input.lines().nth(number.checked_sub(1)?)?;
    Some(line.chars().take(LONGEST).collect())
}

#[cfg(test)]
mod tests {
    use ferrovia_core::dialect::iptables::RestoreSection;
    use ferrovia_core::family::Family;

    use super::*;

    /// Where nothing was read at first, reading all the rest right after it was written would keep the first changes waiting.
    #[test]
    fn what_took_long_to_write_is_not_compared_at_once() {
        let folder = ferrovia_lab::Folder::new();
        for (program, does) in [
            ("iptables-nft", "true"),
            ("iptables-nft-save", "true"),
            ("iptables-nft-restore", "cat > /dev/null; sleep 1"),
        ] {
            folder.write_program(program, does);
        }
        let path = folder.path().as_os_str();
        let tool = Tool::find(path, Family::V4, Backend::Nft).unwrap();
        let mut applier = IptablesApplier::new(tool);
        applier.observe().unwrap();
        let mut section = RestoreSection::new(TableName::Nat);
        section.fill("KUBE-SERVICES", &[]);
        let mut plan = Restore::default();
        plan.push(section);
        assert!(applier.apply(&plan).unwrap());
        assert!(applier.is_untouched().unwrap());
        // Changes do not put it off forever.
        let due = applier.compare_at;
        assert!(applier.apply(&plan).unwrap());
        assert_eq!(applier.compare_at, due);
    }
}
