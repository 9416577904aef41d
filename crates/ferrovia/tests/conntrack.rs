//! The thread that cleans up stale UDP flows, on the real kernel's table in a network namespace of its own.
//!
//! Needs root (or the right to make network namespaces); without it the tests fail and say so.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use ferrovia::conntrack::worker::{Cleaned, Cleaner};
use ferrovia_core::desired::Frontend;
use ferrovia_core::family::Family;
use ferrovia_core::plan::conntrack::Cleanup;
use ferrovia_host::conntrack::{FlowReader, SentTo};
use ferrovia_lab::namespace::in_namespace;

use ferrovia_lab::conntrack::cleanup::{at, cleanup, port};
use ferrovia_lab::conntrack::{ConntrackEntry, create};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const SERVICE: &str = "10.96.0.10:53";
const OTHER_SERVICE: &str = "10.96.0.11:53";
const OLD: &str = "10.244.0.1:53";
const NEW: &str = "10.244.0.2:53";

/// A service's endpoints were some and are others.
fn change(service: &str, old: &[&str], new: &[&str]) -> Cleanup {
    let port = |endpoints: &[&str]| {
        let endpoints: Vec<_> = endpoints.iter().map(|text| at(text)).collect();
        let name = service.replace(':', "-");
        port(&name, &[Frontend::ClusterIp(at(service))], &endpoints)
    };
    cleanup(Family::V4, vec![port(old)], vec![port(new)], &[])
}

fn flow(number: u16, service: &str, endpoint: &str) -> ConntrackEntry {
    let client = SocketAddr::new(at("10.1.0.1:0").ip(), number);
    ConntrackEntry::udp(client, at(service), at(endpoint))
}

fn started() -> (Cleaner, Receiver<Cleaned>) {
    started_with_pace(Duration::ZERO)
}

fn started_with_pace(pace: Duration) -> (Cleaner, Receiver<Cleaned>) {
    let (sender, reports) = mpsc::channel();
    let cleaner = Cleaner::start(pace, move |cleaned| {
        sender.send(cleaned).ok();
    });
    (cleaner.unwrap(), reports)
}

/// The endpoints of all flows, sorted.
fn endpoints() -> Vec<SocketAddr> {
    let mut found = Vec::new();
    let mut reader = FlowReader::open().unwrap();
    reader
        .each(Family::V4, SentTo::Anywhere, |flow| {
            found.push(flow.answered_by);
        })
        .unwrap();
    found.sort_unstable();
    found
}

fn removed(reports: &Receiver<Cleaned>) -> usize {
    let report = reports.recv_timeout(PATIENCE).unwrap();
    report.result.unwrap().total()
}

#[test]
fn cleans_up_and_reports_what_is_submitted() {
    in_namespace(|| {
        create([flow(1, SERVICE, OLD), flow(2, SERVICE, NEW)].into_iter()).unwrap();
        let (cleaner, reports) = started();
        cleaner.submit(change(SERVICE, &[OLD, NEW], &[NEW]));
        let report = reports.recv_timeout(PATIENCE).unwrap();
        assert_eq!(report.family, Family::V4);
        assert_eq!(report.result.unwrap().endpoint_gone, 1);
        assert_eq!(endpoints(), [at(NEW)]);
    });
}

#[test]
fn a_flow_that_newer_rules_made_is_not_taken_for_stale() {
    in_namespace(|| {
        let (cleaner, reports) = started();
        // A sync is under way when the order of the one before is carried out. Its rules are in force, its order is not yet given.
        let sync = cleaner.syncing();
        create([flow(1, SERVICE, NEW), flow(2, OTHER_SERVICE, OLD)].into_iter()).unwrap();
        cleaner.submit(change(SERVICE, &[OLD, NEW], &[OLD]));
        cleaner.submit(change(OTHER_SERVICE, &[OLD, NEW], &[NEW]));
        assert!(
            reports.recv_timeout(Duration::from_millis(200)).is_err(),
            "nothing is deleted meanwhile"
        );
        cleaner.submit(change(SERVICE, &[OLD], &[OLD, NEW]));
        drop(sync);
        // In one round or in two, depending on when the thread took up its orders.
        let mut total = 0;
        while total == 0 {
            total = removed(&reports);
        }
        assert_eq!(total, 1, "the other service's");
        assert_eq!(endpoints(), [at(NEW)]);
    });
}

#[test]
fn submitting_does_not_block() {
    in_namespace(|| {
        create((1..2000).map(|n| flow(n, SERVICE, OLD))).unwrap();
        let (cleaner, reports) = started();
        let sync = cleaner.syncing();
        // The thread waits for the sync to end, or is about to.
        let start = Instant::now();
        for _ in 0..1000 {
            cleaner.submit(change(SERVICE, &[OLD, NEW], &[NEW]));
        }
        assert!(start.elapsed() < PATIENCE / 2, "it would wait for ever");
        drop(sync);
        let mut total = 0;
        while total < 1999 {
            total += removed(&reports);
        }
        assert_eq!(endpoints(), []);
    });
}

#[test]
fn what_fails_is_tried_again() {
    in_namespace(|| {
        const NOBODY: libc::uid_t = 65534;
        // SAFETY: no pointers; affects this thread only, and the one it starts.
        let changed = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
        assert_eq!(changed, 0);
        let (cleaner, reports) = started();
        cleaner.submit(change(SERVICE, &[OLD, NEW], &[NEW]));
        for _ in 0..2 {
            let report = reports.recv_timeout(PATIENCE).unwrap();
            let error = report.result.unwrap_err().to_string();
            assert_eq!(error, "cannot read the UDP flows: Operation not permitted");
        }
    });
}

#[test]
fn the_thread_ends_with_its_grip_even_in_the_middle_of_work() {
    in_namespace(|| {
        create([flow(1, SERVICE, OLD)].into_iter()).unwrap();
        let (cleaner, reports) = started();
        let _sync = cleaner.syncing();
        cleaner.submit(change(SERVICE, &[OLD, NEW], &[NEW]));
        drop(cleaner);
        let last = reports.iter().last();
        assert!(last.is_none_or(|report| report.result.unwrap().total() == 0));
        assert_eq!(endpoints(), [at(OLD)]);
    });
}

#[test]
fn changes_in_quick_succession_are_cleaned_up_together() {
    const PACE: Duration = Duration::from_secs(2);
    in_namespace(|| {
        let (cleaner, reports) = started_with_pace(PACE);
        let begin = Instant::now();
        create((1..=11).map(|n| flow(n, SERVICE, &format!("10.244.1.{n}:53")))).unwrap();
        cleaner.submit(change(SERVICE, &["10.244.1.1:53", NEW], &[NEW]));
        let first = removed(&reports);
        assert_eq!(first, 11, "all that the service does not have");
        for n in 1..=10 {
            let gone = format!("10.244.2.{n}:53");
            create([flow(n, OTHER_SERVICE, &gone)].into_iter()).unwrap();
            cleaner.submit(change(OTHER_SERVICE, &[&gone, NEW], &[NEW]));
        }
        let mut rounds = 0;
        let mut total = 0;
        while total < 10 {
            total += removed(&reports);
            rounds += 1;
        }
        // One round, unless this thread was kept from running for longer than the pace.
        let most = begin.elapsed().as_secs() / PACE.as_secs();
        assert!(
            rounds <= most.max(1),
            "{rounds} rounds in {:?}",
            begin.elapsed()
        );
        assert!(begin.elapsed() >= PACE, "the second round came too early");
    });
}

#[test]
fn endpoints_that_join_cause_no_round() {
    in_namespace(|| {
        create([flow(1, OTHER_SERVICE, OLD)].into_iter()).unwrap();
        let (cleaner, reports) = started();
        cleaner.submit(change(SERVICE, &[OLD], &[OLD, NEW]));
        cleaner.submit(change(OTHER_SERVICE, &[OLD, NEW], &[NEW]));
        assert_eq!(removed(&reports), 1);
        cleaner.submit(change(SERVICE, &[OLD], &[OLD, NEW]));
        drop(cleaner);
        assert_eq!(reports.iter().count(), 0, "only removals were looked for");
    });
}

#[test]
fn endpoint_that_returns_while_its_flows_are_looked_for_keeps_them() {
    in_namespace(|| {
        create([flow(1, SERVICE, OLD), flow(2, OTHER_SERVICE, OLD)].into_iter()).unwrap();
        let (cleaner, reports) = started();
        let sync = cleaner.syncing();
        cleaner.submit(change(SERVICE, &[OLD, NEW], &[NEW]));
        cleaner.submit(change(OTHER_SERVICE, &[OLD, NEW], &[NEW]));
        assert!(
            reports.recv_timeout(Duration::from_millis(200)).is_err(),
            "nothing is deleted meanwhile"
        );
        // Endpoints only join, which by itself is no reason to look.
        cleaner.submit(change(SERVICE, &[NEW], &[NEW, OLD]));
        drop(sync);
        let mut total = 0;
        while total == 0 {
            total = removed(&reports);
        }
        assert_eq!(total, 1, "the other service's");
        assert_eq!(endpoints(), [at(OLD)]);
    });
}
