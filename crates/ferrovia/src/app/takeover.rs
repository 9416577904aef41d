//! Removing what another proxy left, once our rules are in force.
//!
//! Until that has succeeded two sets of rules may be in force, so a failure is not the end of it: somebody may have held the tools' lock for a
//! moment, or changed a chain while we were reading. What cannot be removed in a day's patience is left to people.

use std::thread;
use std::time::Duration;

use crate::kube_event::{Notice, Noticeboard, Regarding, Severity};
use crate::mode::TakeOver;

/// How much it is worth to remove everything, and to harm nobody by it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// How often it is tried.
    attempts: u32,
    /// How long it is waited for connections that end with what is removed.
    connections: Duration,
}

impl Patience {
    /// Of a daemon: with the pauses below more than a day.
    pub(super) const DAEMON: Self = Self {
        attempts: 300,
        connections: Duration::from_secs(3600),
    };
    /// Of a process that is to end.
    pub(super) const ONCE: Self = Self {
        attempts: 3,
        connections: Duration::ZERO,
    };
}

/// The pause after the first failure. It doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Removes a predecessor's rules, which can go without a gap now, and tries again where that fails.
pub(super) fn remove_others(take_over: TakeOver, patience: Patience, notices: &Noticeboard) {
    remove_with_pauses(take_over, patience, notices, thread::sleep);
}

/// What stays is in force beside our rules: it forwards connections to Services that may be gone, and to pods that are.
fn warn_of_left(left: &[String], notices: &Noticeboard) {
    if left.is_empty() {
        return;
    }
    let rules = left.join("; ");
    tracing::error!(%rules, "Found iptables-legacy rules of a previous proxy, which only the iptables-legacy tools can remove; they stay in force beside ours. Run `ferrovia cleanup --kube-proxy --force` where these tools are, or reboot the node");
    notices(Notice {
        regarding: Regarding::Node,
        severity: Severity::Warning,
        reason: "LeftoverRules",
        action: "TakeOver",
        note: format!(
            "iptables-legacy rules of a previous proxy stay in force beside ours and may forward connections to pods that are gone: {rules}. Only the iptables-legacy tools can remove them: run `ferrovia cleanup --kube-proxy --force` on the node where these tools are, or reboot it"
        ),
    });
}

fn remove_with_pauses(
    mut take_over: TakeOver,
    Patience {
        attempts,
        connections,
    }: Patience,
    notices: &Noticeboard,
    mut rest: impl FnMut(Duration),
) {
    let mut pause = FIRST_PAUSE;
    for attempt in 1..=attempts {
        let error = match take_over(connections) {
            Ok(removed) => {
                removed.log();
                return warn_of_left(&removed.needs_tools, notices);
            }
            Err(error) => error,
        };
        if attempt == attempts {
            tracing::error!(%error, attempts, "cannot remove what another proxy left, or not look for it; if it left rules they stay in force beside ours, until `ferrovia cleanup --kube-proxy` or a restart of the proxy removes them");
            return;
        }
        tracing::warn!(%error, again_in = ?pause, "cannot remove what another proxy left, or not look for it; if it left rules they are in force beside ours; trying again");
        rest(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::mode::Removed;

    /// How often it is tried, and with which pauses, if it succeeds at this attempt.
    fn tried(succeeds_at: u32, attempts: u32) -> (u32, Vec<Duration>) {
        let calls = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&calls);
        let take_over = move |_| {
            if counted.fetch_add(1, Ordering::Relaxed) + 1 == succeeds_at {
                Ok(Removed::default())
            } else {
                Err("the lock is held".into())
            }
        };
        let mut pauses = Vec::new();
        let patience = Patience {
            attempts,
            ..Patience::ONCE
        };
        let notices: Noticeboard = Arc::new(|_| {});
        remove_with_pauses(Box::new(take_over), patience, &notices, |pause| {
            pauses.push(pause);
        });
        (calls.load(Ordering::Relaxed), pauses)
    }

    #[test]
    fn it_is_tried_until_it_succeeds() {
        let seconds = |pauses: &[u64]| -> Vec<Duration> {
            pauses.iter().copied().map(Duration::from_secs).collect()
        };
        let attempts = Patience::DAEMON.attempts;
        assert_eq!(tried(1, attempts), (1, Vec::new()));
        assert_eq!(tried(4, attempts), (4, seconds(&[1, 2, 4])));
        assert_eq!(tried(9, 3), (3, seconds(&[1, 2])));
        let (calls, pauses) = tried(u32::MAX, attempts);
        assert_eq!((calls, pauses.len()), (attempts, attempts as usize - 1));
        let whole: Duration = pauses.iter().sum();
        assert!(
            whole > Duration::from_secs(24 * 60 * 60 - 3600),
            "{whole:?}"
        );
        assert_eq!(pauses.last(), Some(&LONGEST_PAUSE));
    }
}
