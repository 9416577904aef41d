//! The checks: each looks at the facts and says what it makes of them.

mod conntrack;
mod interfaces;
mod kernel;
mod ports;
mod proxies;
mod rules;
mod selftest;
mod settings;

use super::facts::Facts;
use super::finding::Finding;

/// Runs all checks.
pub(super) fn all(facts: &Facts) -> Vec<Finding> {
    let checks: [fn(&Facts) -> Vec<Finding>; 8] = [
        kernel::check,
        settings::check,
        conntrack::check,
        rules::check,
        proxies::check,
        ports::check,
        interfaces::check,
        selftest::check,
    ];
    checks.iter().flat_map(|check| check(facts)).collect()
}

/// Some names, and how many more there are.
fn some_of<T: AsRef<str>>(names: &[T], most: usize) -> String {
    let shown: Vec<&str> = names.iter().take(most).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(most) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The one finding of a check, if it found anything.
    pub(super) fn found<'f>(findings: &'f [Finding], check: &str) -> Option<&'f Finding> {
        let mut alike = findings.iter().filter(|finding| finding.check == check);
        let first = alike.next();
        assert!(alike.next().is_none(), "{check} was found twice");
        first
    }

    #[test]
    fn nothing_seen_is_nothing_wrong() {
        let worst = all(&Facts::default())
            .into_iter()
            .map(|finding| finding.severity)
            .max();
        assert!(worst <= Some(super::super::finding::Severity::Note));
    }

    #[test]
    fn long_lists_are_cut() {
        assert_eq!(some_of(&["a", "b"], 2), "a, b");
        assert_eq!(some_of(&["a", "b", "c", "d"], 2), "a, b and 2 more");
    }
}
