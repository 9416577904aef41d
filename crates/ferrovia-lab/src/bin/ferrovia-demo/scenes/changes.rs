//! What services survive: changes, crashes and other people's mistakes, while clients call.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use ferrovia_lab::{Pod, Role, World};

use super::services::{DNS, NODE, OUTSIDE, POD_C, POD_D, WEB, WEB_NODE_PORT};
use crate::monitor::Monitor;
use crate::report::{Report, grouped};
use crate::stage::Stage;
use crate::traffic::{Client, Observation, Target, during, pulse, tally};

/// Four clients who call without a pause, each in its own way.
const HAMMERS: [(Client, Target); 4] = [
    (POD_C, WEB),
    (POD_D, WEB),
    (NODE, WEB),
    (OUTSIDE, WEB_NODE_PORT),
];

/// Time for traffic before and after a change.
const A_WHILE: Duration = Duration::from_millis(600);

/// A change must be in force after this long. It usually takes a twentieth of it, half of which
/// is spent waiting whether the file is being written further.
const CHANGE_LIMIT: Duration = Duration::from_millis(500);

/// How often the rules are probed while somebody flushes them.
const TICK: Duration = Duration::from_millis(1);

/// How many times.
const TICKS: usize = 500;

pub(super) fn endpoint_removed(stage: &mut Stage, report: &mut Report) -> anyhow::Result<()> {
    report.scene(
        "An endpoint is removed, and comes back, while 4 clients hammer the service",
        "web.yaml",
    );
    let leaving = Pod::Y;
    let world = Arc::clone(&stage.world);
    let (calls, (removed, restored)) = during(&world, &HAMMERS, || {
        stage.interrupt.sleep(A_WHILE);
        let removed = Instant::now();
        let file = stage
            .scratch
            .remove_lines("web.yaml", &leaving.v4().to_string())?;
        stage.interrupt.sleep(A_WHILE);
        let restored = Instant::now();
        stage.scratch.replace("web.yaml", &file)?;
        stage.interrupt.sleep(A_WHILE);
        Ok((removed, restored))
    })?;
    if stage.interrupt.is_raised() {
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
            "{name} removed from the file: its last connection began {} later",
            millis(gone)
        ),
        in_time(gone),
    );
    let back = own.iter().filter(|at| **at >= restored).min();
    let back = back.map(|first| first.saturating_duration_since(restored));
    report.check(
        &format!(
            "{name} put back: its first connection began {} later",
            millis(back)
        ),
        in_time(back),
    );
    Ok(())
}

pub(super) fn proxy_killed(stage: &mut Stage, report: &mut Report) -> anyhow::Result<()> {
    report.scene(
        "The proxy is killed with -9 and started again, under the same traffic",
        "",
    );
    let world = Arc::clone(&stage.world);
    let (calls, (absent, written)) = during(&world, &HAMMERS, || {
        stage.interrupt.sleep(A_WHILE);
        let killed = Instant::now();
        stage.kill_proxy();
        let mut monitor = Monitor::start(Arc::clone(&world))?;
        stage.interrupt.sleep(A_WHILE);
        stage.start_proxy()?;
        let absent = killed.elapsed();
        stage.interrupt.sleep(A_WHILE);
        Ok((absent, monitor.written()?))
    })?;
    if stage.interrupt.is_raised() {
        return Ok(());
    }
    let during = format!(", {} ms of it without a proxy", absent.as_millis());
    report_traffic(report, &world, &calls, &during);
    let verdict = match written.first() {
        None => Ok(()),
        Some(line) => Err(format!("{} writes, the first: {line}", written.len())),
    };
    report.check(
        "the new proxy found the kernel's rules as they should be and wrote nothing",
        verdict,
    );
    Ok(())
}

pub(super) fn rules_flushed(stage: &mut Stage, report: &mut Report) -> anyhow::Result<()> {
    report.scene("Somebody runs `nft flush ruleset` on the node", "dns.yaml");
    let answered = thread::scope(|scope| {
        let pulses = scope.spawn(|| pulse(&stage.world, POD_C, DNS, TICK, TICKS));
        stage.interrupt.sleep(TICK * 100);
        let status = stage
            .world
            .exec(Role::Node, "nft")
            .args(["flush", "ruleset"])
            .status()
            .context("cannot run nft")?;
        ensure!(status.success(), "nft flush ruleset failed");
        match pulses.join() {
            Ok(answered) => answered,
            Err(_) => anyhow::bail!("the prober's thread panicked"),
        }
    })?;
    let lost = answered.iter().filter(|answered| !**answered).count();
    // The last tenth is long after the repair; before it, losses are what is being measured.
    let healed = answered
        .iter()
        .rev()
        .take(TICKS / 10)
        .all(|answered| *answered);
    let verdict = if healed {
        Ok(())
    } else {
        Err("the service did not come back".to_owned())
    };
    report.check(
        &format!("{TICKS} datagrams, one each ms: {lost} unanswered, so {lost} ms without service; then all is whole again"),
        verdict,
    );
    Ok(())
}

fn report_traffic(report: &mut Report, world: &World, calls: &[Observation], more: &str) {
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
        None => Err("it never had a connection".to_owned()),
    }
}
