//! What became of connections that were made to see whether they work.

use super::super::facts::Facts;
use super::super::finding::{Area, Finding, In};

const SELF_TEST: In = In(Area::SelfTest);

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let trials = facts.trials.iter();
    trials
        .map(|trial| match &trial.outcome {
            Ok(()) => SELF_TEST.ok(trial.check, trial.to_string()),
            Err(error) => SELF_TEST.problem(
                trial.check,
                format!("not so: {trial}: {error}"),
                "The rules were written into a network namespace of their own, without anything of this node's around them; so it is the kernel or its settings that are in the way, not other rules.",
                "Compare with another node; report it with the kernel's version and the output of: ferrovia doctor -o json",
            ),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use ferrovia_core::family::Family;

    use super::super::super::finding::Severity;
    use super::super::super::selftest::Trial;
    use super::*;

    #[test]
    fn a_trial_that_failed_is_a_problem_and_says_how() {
        let trial = |outcome| Trial {
            check: "self-test/hairpin",
            what: "a pod reaches itself through its Service",
            family: Family::V6,
            outcome,
        };
        let facts = Facts {
            trials: vec![trial(Ok(())), trial(Err("timed out".into()))],
            ..Facts::default()
        };
        let findings = check(&facts);
        assert_eq!(findings[0].severity, Severity::Ok);
        assert_eq!(findings[1].severity, Severity::Problem);
        assert!(
            findings[1].what.ends_with("(IPv6): timed out"),
            "{}",
            findings[1].what
        );
    }
}
