//! What Services survive: changes, crashes and a flushed ruleset, under traffic.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use ferrovia_lab::{Pod, Role, World};

use super::services::{DNS, NODE, OUTSIDE, POD_C, POD_D, WEB, WEB_NODE_PORT};
use crate::cluster::DemoCluster;
use crate::monitor::NftMonitor;
use crate::report::{DemoReport, grouped};
use crate::traffic::{DemoClient, Destination, Observation, during, pulse, tally};

/// Four clients that call without pause.
const CALLERS: [(DemoClient, Destination); 4] = [
    (POD_C, WEB),
    (POD_D, WEB),
    (NODE, WEB),
    (OUTSIDE, WEB_NODE_PORT),
];

/// Time for traffic before and after a change.
const A_WHILE: Duration = Duration::from_millis(600);

/// The limit until a change is active. It usually takes a twentieth of it, half of which is the wait
/// for further writes to the file.
const CHANGE_LIMIT: Duration = Duration::from_millis(500);

/// The interval of probes while the ruleset is flushed.
const TICK: Duration = Duration::from_millis(1);

/// The number of probes.
const TICKS: usize = 500;

pub(super) fn endpoint_removed(
    cluster: &mut DemoCluster,
    report: &mut DemoReport,
) -> anyhow::Result<()> {
    report.scene(
        "An endpoint is removed and added again, while 4 clients call without pause",
        "web.yaml",
    );
    let leaving = Pod::Y;
    let world = Arc::clone(&cluster.world);
    let (calls, (removed, restored)) = during(&world, &CALLERS, || {
        cluster.interrupt.sleep(A_WHILE);
        let removed = Instant::now();
        let file = cluster
            .scratch
            .remove_lines("web.yaml", &leaving.v4().to_string())?;
        cluster.interrupt.sleep(A_WHILE);
        let restored = Instant::now();
        cluster.scratch.replace("web.yaml", &file)?;
        cluster.interrupt.sleep(A_WHILE);
        Ok((removed, restored))
    })?;
    if cluster.interrupt.is_raised() {
        return Ok(());
    }
    report_traffic(report, &world, &calls, "");

    let own: Vec<Instant> = calls
        .iter()
        .filter(|call| call.is_by(leaving))
        .map(|call| call.started)
        .collect();
    let name = leaving.name();
    let last = own.iter().filter(|at| **at < restored).max();
    let gone = last.map(|last| last.saturating_duration_since(removed));
    report.check(
        &format!(
            "{name} removed from the manifest: last connection after {}",
            millis(gone)
        ),
        in_time(gone),
    );
    let back = own.iter().filter(|at| **at >= restored).min();
    let back = back.map(|first| first.saturating_duration_since(restored));
    report.check(
        &format!(
            "{name} added again: first connection after {}",
            millis(back)
        ),
        in_time(back),
    );
    Ok(())
}

pub(super) fn proxy_killed(
    cluster: &mut DemoCluster,
    report: &mut DemoReport,
) -> anyhow::Result<()> {
    report.scene(
        "The proxy is killed (SIGKILL) and restarted, under the same traffic",
        "",
    );
    let world = Arc::clone(&cluster.world);
    let (calls, (absent, written)) = during(&world, &CALLERS, || {
        cluster.interrupt.sleep(A_WHILE);
        let killed = Instant::now();
        cluster.kill_proxy();
        let mut monitor = NftMonitor::start(Arc::clone(&world))?;
        cluster.interrupt.sleep(A_WHILE);
        cluster.start_proxy()?;
        let absent = killed.elapsed();
        cluster.interrupt.sleep(A_WHILE);
        Ok((absent, monitor.written()?))
    })?;
    if cluster.interrupt.is_raised() {
        return Ok(());
    }
    let during = format!(", {} ms of it without a proxy", absent.as_millis());
    report_traffic(report, &world, &calls, &during);
    let verdict = match written.first() {
        None => Ok(()),
        Some(line) => Err(format!("{} writes, the first: {line}", written.len())),
    };
    report.check(
        "the new proxy found the rules up to date and wrote nothing",
        verdict,
    );
    Ok(())
}

pub(super) fn rules_flushed(
    cluster: &mut DemoCluster,
    report: &mut DemoReport,
) -> anyhow::Result<()> {
    report.scene(
        "Another process runs `nft flush ruleset` on the node",
        "dns.yaml",
    );
    let answered = thread::scope(|scope| {
        let pulses = scope.spawn(|| pulse(&cluster.world, POD_C, DNS, TICK, TICKS));
        cluster.interrupt.sleep(TICK * 100);
        let status = cluster
            .world
            .exec(Role::Node, "nft")
            .args(["flush", "ruleset"])
            .status()
            .context("cannot run nft")?;
        ensure!(status.success(), "nft flush ruleset failed");
        match pulses.join() {
            Ok(answered) => answered,
            Err(_) => anyhow::bail!("the probing thread panicked"),
        }
    })?;
    let lost = answered.iter().filter(|answered| !**answered).count();
    // The last tenth is long after the repair; losses before it are the measurement.
    let is_repaired = answered
        .iter()
        .rev()
        .take(TICKS / 10)
        .all(|answered| *answered);
    let verdict = if is_repaired {
        Ok(())
    } else {
        Err("the Service was not repaired".to_owned())
    };
    report.check(
        &format!(
            "{TICKS} datagrams, one per ms: {lost} unanswered ({lost} ms outage), then repaired"
        ),
        verdict,
    );
    Ok(())
}

fn report_traffic(report: &mut DemoReport, world: &World, calls: &[Observation], more: &str) {
    let tally = tally(world, calls);
    report.check(
        &format!(
            "{} connections from pod-c, pod-d, node and outside: {} failed{more}",
            grouped(tally.answered() + tally.failed),
            tally.failed
        ),
        tally.expect_no_failure(),
    );
}

fn millis(time: Option<Duration>) -> String {
    time.map_or_else(
        || "never".to_owned(),
        |time| format!("{} ms", time.as_millis()),
    )
}

fn in_time(time: Option<Duration>) -> Result<(), String> {
    match time {
        Some(time) if time <= CHANGE_LIMIT => Ok(()),
        Some(_) => Err(format!("expected within {} ms", CHANGE_LIMIT.as_millis())),
        None => Err("no connection reached it".to_owned()),
    }
}
