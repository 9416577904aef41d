use super::*;

const SECOND: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(60);

/// A state of an eligible node, and a time that is easy to read in a body.
fn state() -> (State, Moment) {
    let mut state = State::new(TIMEOUT, true);
    state.set_node(NodeState::Eligible);
    let now = Moment {
        instant: Instant::now(),
        wall: "2026-05-01T10:00:00.5Z".parse().unwrap(),
    };
    (state, now)
}

#[test]
fn nothing_reported_is_alive_but_gets_no_traffic() {
    let (state, now) = state();
    assert_eq!(
        state.healthz(now, None),
        Answer {
            is_ok: false,
            body: r#"{"lastUpdated":"0001-01-01T00:00:00Z","currentTime":"2026-05-01T10:00:00.5Z","nodeEligible":true,"healthy":true,"synced":false}"#.into(),
        }
    );
    assert_eq!(
        state.livez(now),
        Answer {
            is_ok: true,
            body: r#"{"lastUpdated":"2026-05-01T10:00:00.5Z","currentTime":"2026-05-01T10:00:00.5Z","healthy":true}"#.into(),
        }
    );
}

#[test]
fn every_family_must_have_been_written_once() {
    let (mut state, now) = state();
    for family in Family::ALL {
        state.started(family, now);
    }
    assert!(!state.healthz(now, None).is_ok && state.livez(now).is_ok);
    state.updated(Family::V4, now);
    assert!(!state.healthz(now, None).is_ok);
    state.updated(Family::V6, now);
    assert!(state.healthz(now, None).is_ok);
    // A family that fails later on is late only after its time.
    state.queued(Family::V6, now);
    assert!(state.healthz(now + SECOND, None).is_ok);
}

#[test]
fn idle_is_healthy_however_long() {
    let (mut state, now) = state();
    state.updated(Family::V4, now);
    for idle in [25 * SECOND, 24 * 3600 * SECOND] {
        let answer = state.healthz(now + idle, None);
        assert!(answer.is_ok, "{answer:?}");
    }
    assert_eq!(
        state.healthz(now + 25 * SECOND, None).body,
        r#"{"lastUpdated":"2026-05-01T10:00:25.5Z","currentTime":"2026-05-01T10:00:25.5Z","nodeEligible":true,"healthy":true,"status":{"IPv4":{"lastUpdated":"2026-05-01T10:00:00.5Z","healthy":true}}}"#
    );
}

#[test]
fn a_change_that_waits_too_long_makes_its_family_late() {
    let (mut state, now) = state();
    state.updated(Family::V4, now);
    state.updated(Family::V6, now + SECOND);
    state.queued(Family::V4, now + 2 * SECOND);
    state.queued(Family::V4, now + 30 * SECOND);
    assert!(state.healthz(now + 61 * SECOND, None).is_ok);
    let late = now + 62 * SECOND;
    assert_eq!(
        state.healthz(late, None),
        Answer {
            is_ok: false,
            body: r#"{"lastUpdated":"2026-05-01T10:00:01.5Z","currentTime":"2026-05-01T10:01:02.5Z","nodeEligible":true,"healthy":false,"status":{"IPv4":{"lastUpdated":"2026-05-01T10:00:00.5Z","healthy":false},"IPv6":{"lastUpdated":"2026-05-01T10:00:01.5Z","healthy":true}}}"#.into(),
        },
        "counted from the first change that waits"
    );
    assert!(!state.livez(late).is_ok);
    state.updated(Family::V6, late);
    assert!(
        !state.healthz(late, None).is_ok,
        "the other family's success does not help"
    );
    state.updated(Family::V4, late);
    assert!(state.healthz(late, None).is_ok);
}

#[test]
fn a_family_that_never_reported_does_not_count() {
    let (mut state, now) = state();
    state.queued(Family::V6, now);
    let answer = state.livez(now + 2 * TIMEOUT);
    assert!(
        answer.is_ok && !answer.body.contains("status"),
        "{answer:?}"
    );
}

#[test]
fn a_node_that_goes_gets_no_traffic_but_is_not_restarted() {
    let (mut state, now) = state();
    state.updated(Family::V4, now);
    state.set_node(NodeState::Ineligible);
    let later = now + SECOND;
    assert_eq!(
        state.healthz(later, None),
        Answer {
            is_ok: false,
            body: r#"{"lastUpdated":"2026-05-01T10:00:00.5Z","currentTime":"2026-05-01T10:00:01.5Z","nodeEligible":false,"healthy":true,"status":{"IPv4":{"lastUpdated":"2026-05-01T10:00:00.5Z","healthy":true}}}"#.into(),
        }
    );
    assert!(state.livez(later).is_ok);
    state.set_node(NodeState::Eligible);
    assert!(state.healthz(later, None).is_ok);
}

#[test]
fn without_a_node_object_it_depends_on_whether_one_is_expected() {
    let (_, now) = state();
    let expecting = State::new(TIMEOUT, true);
    let answer = expecting.healthz(now, None);
    assert!(!answer.is_ok && expecting.livez(now).is_ok);
    assert!(
        answer
            .body
            .starts_with(r#"{"lastUpdated":"0001-01-01T00:00:00Z","#),
        "{answer:?}"
    );
    let mut content = State::new(TIMEOUT, false);
    content.updated(Family::V4, now);
    assert!(content.healthz(now, None).is_ok);
    content.set_node(NodeState::Ineligible);
    assert!(
        !content.healthz(now, None).is_ok,
        "but one that is there counts"
    );
}

#[test]
fn age_of_data_is_shown_and_decides_nothing() {
    let (mut state, now) = state();
    state.updated(Family::V4, now);
    assert_eq!(
        state.healthz(now, Some(3600 * SECOND)),
        Answer {
            is_ok: true,
            body: r#"{"lastUpdated":"2026-05-01T10:00:00.5Z","currentTime":"2026-05-01T10:00:00.5Z","nodeEligible":true,"healthy":true,"status":{"IPv4":{"lastUpdated":"2026-05-01T10:00:00.5Z","healthy":true}},"dataAge":"3600s"}"#.into(),
        }
    );
    assert!(!state.livez(now).body.contains("dataAge"));
}
