//! Whether there is room for more connections.

use super::super::facts::{Conntrack, Facts};
use super::super::finding::{Area, Finding, In};

const CONNTRACK: In = In(Area::Conntrack);
/// Of a hundred places, so many taken are a warning, and so many a problem.
const FULL: u64 = 80;
const FULLER: u64 = 95;
/// What kube-proxy sees to that there are at least.
const USUAL_MAX: u64 = 131_072;
/// From so many on, failed insertions are more than the odd one that every busy node has.
const MANY_FAILED: u64 = 1000;

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let Some(conntrack) = &facts.conntrack else {
        return Vec::new();
    };
    let findings = [
        Some(fill(conntrack)),
        limit(conntrack),
        dropped(conntrack),
        insert_failed(conntrack),
    ];
    findings.into_iter().flatten().collect()
}

fn fill(conntrack: &Conntrack) -> Finding {
    let check = "conntrack/fill";
    let Conntrack { used, max, .. } = *conntrack;
    // A limit of 0 is none.
    let percent = used.saturating_mul(100).checked_div(max).unwrap_or(0);
    let what = format!("{used} of {max} places are taken ({percent} %)");
    let why =
        "When the table is full, packets of new connections are dropped, whatever they are for.";
    let remedy = format!(
        "Raise conntrack.maxPerCore or conntrack.min in the configuration, or for now: sysctl -w net.netfilter.nf_conntrack_max={}",
        max.saturating_mul(2)
    );
    match percent {
        FULLER.. => CONNTRACK.problem(check, what, why, remedy),
        FULL.. => CONNTRACK.warning(check, what, why, remedy),
        _ => CONNTRACK.ok(check, what),
    }
}

fn limit(conntrack: &Conntrack) -> Option<Finding> {
    let max = conntrack.max;
    (1..USUAL_MAX).contains(&max).then(|| {
        CONNTRACK.note(
            "conntrack/limit",
            format!("only {max} connections can be tracked"),
            format!("kube-proxy and Ferrovia make it at least {USUAL_MAX} by default; a busy node needs that."),
            "Leave conntrack.min at its default, and see that the proxy may write the setting (in a container /proc/sys is often read-only).",
        )
    })
}

fn dropped(conntrack: &Conntrack) -> Option<Finding> {
    let totals = conntrack.totals?;
    let (dropped, early) = (totals.dropped, totals.early_dropped);
    (dropped > 0 || early > 0).then(|| {
        CONNTRACK.warning(
            "conntrack/drops",
            format!("since the node started, {dropped} packets were dropped and {early} connections thrown out because the table was full"),
            "The table has been full at least once; clients saw time-outs or broken connections.",
            "Raise conntrack.maxPerCore or conntrack.min, and look who opens so many connections: conntrack -L",
        )
    })
}

fn insert_failed(conntrack: &Conntrack) -> Option<Finding> {
    let failed = conntrack.totals?.insert_failed;
    let check = "conntrack/insert-failed";
    let what = format!("{failed} new connections could not be entered into the table");
    let why = "Two packets with the same addresses raced, and one was dropped. Resolvers that ask for IPv4 and IPv6 at once then wait five seconds.";
    let remedy = "If name lookups are sometimes slow: a DNS cache on each node, or single-request-reopen in resolv.conf.";
    match failed {
        0 => None,
        MANY_FAILED.. => Some(CONNTRACK.warning(check, what, why, remedy)),
        _ => Some(CONNTRACK.note(check, what, why, remedy)),
    }
}

#[cfg(test)]
mod tests {
    use ferrovia_host::survey::flows::ConntrackTotals;

    use super::super::super::finding::Severity;
    use super::super::tests::found;
    use super::*;

    fn severity(conntrack: Conntrack, name: &str) -> Option<Severity> {
        let facts = Facts {
            conntrack: Some(conntrack),
            ..Facts::default()
        };
        found(&check(&facts), name).map(|finding| finding.severity)
    }

    fn filled(used: u64, max: u64) -> Conntrack {
        Conntrack {
            used,
            max,
            totals: None,
        }
    }

    #[test]
    fn a_full_table_is_a_problem_and_a_nearly_full_one_a_warning() {
        let of = |used| severity(filled(used, 262_144), "conntrack/fill");
        assert_eq!(of(0), Some(Severity::Ok));
        assert_eq!(of(209_000), Some(Severity::Ok));
        assert_eq!(of(210_000), Some(Severity::Warning));
        assert_eq!(of(250_000), Some(Severity::Problem));
        assert_eq!(of(u64::MAX), Some(Severity::Problem));
        assert_eq!(severity(filled(5, 0), "conntrack/fill"), Some(Severity::Ok));
    }

    #[test]
    fn a_small_table_is_worth_a_word() {
        let of = |max| severity(filled(0, max), "conntrack/limit");
        assert_eq!(of(65_536), Some(Severity::Note));
        assert_eq!(of(USUAL_MAX), None);
        assert_eq!(of(0), None);
    }

    #[test]
    fn what_was_lost_is_told() {
        let of = |totals, name| {
            severity(
                Conntrack {
                    totals: Some(totals),
                    ..filled(0, USUAL_MAX)
                },
                name,
            )
        };
        let none = ConntrackTotals::default();
        let early = ConntrackTotals {
            early_dropped: 1,
            ..none
        };
        let failed = |insert_failed| ConntrackTotals {
            insert_failed,
            ..none
        };
        assert_eq!(of(none, "conntrack/drops"), None);
        assert_eq!(of(early, "conntrack/drops"), Some(Severity::Warning));
        assert_eq!(
            of(failed(1), "conntrack/insert-failed"),
            Some(Severity::Note)
        );
        assert_eq!(
            of(failed(5000), "conntrack/insert-failed"),
            Some(Severity::Warning)
        );
    }
}
