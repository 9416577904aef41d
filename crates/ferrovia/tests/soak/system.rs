//! What the kernel, the system's tools and the clock do wrong.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use ferrovia_lab::{ClientHost, Role};
use jiff::{SignedDuration, Timestamp};

use crate::Mode;
use crate::churn::{CANARY, STEADY};
use crate::flows::Crowd;
use crate::injected::{ADDRESSES, Injection, LISTENER, WRITER, Whose};
use crate::limits::{FERROVIA, Limits};
use crate::model::Trouble;
use crate::scene::Scene;
use crate::stage::{HEALTH, METRICS};
use crate::traffic::{who_answers, who_answers_at};

/// So often is the kernel asked again at most while it refuses everything, for each family and however many changes come. Without a pause
/// it would be a hundred times.
const ATTEMPTS_A_SECOND: u64 = 10;

/// Lets nobody track what stays within the node, so that the daemon can be asked although there is no room for flows.
const UNTRACKED: &str = "table inet soak {
    chain in { type filter hook prerouting priority raw; iif lo notrack; }
    chain out { type filter hook output priority raw; oif lo notrack; }
}";

impl Scene<'_> {
    /// Writes fail, and are tried again with pauses, while the daemon says that it is not well. In the end answers to writes get lost.
    pub(crate) fn kernel_refuses(&self) -> anyhow::Result<String> {
        if self.options.mode == Mode::Iptables {
            return self.tools_fail();
        }
        self.limited(Limits::Hasty, || {
            self.model.begin(Trouble::Behind);
            let begin = Instant::now();
            let injection = Injection::begin(self.stage, WRITER, "sendto:error=ENOBUFS")?;
            self.until_it_says_so()?;
            self.wait(2);
            let (refused, time) = (injection.end()?, begin.elapsed());
            let most = 2 * ATTEMPTS_A_SECOND * (time.as_secs() + 1);
            ensure!(
                (1..=most).contains(&(refused as u64)),
                "the kernel was asked {refused} times in {time:.0?}, which is more than {most}"
            );
            self.stage
                .until("it is healthy again", || self.stage.is_healthy())?;
            let injection =
                Injection::begin(self.stage, WRITER, "recvfrom:error=ENOBUFS:when=1+3")?;
            self.wait(2);
            let lost = injection.end()?;
            ensure!(lost > 0, "no answer got lost");
            self.settle()?;
            self.model.end();
            Ok(format!(
                "writes refused {refused} times in {time:.0?}, then {lost} answers lost"
            ))
        })
    }

    /// The same where tools write.
    fn tools_fail(&self) -> anyhow::Result<String> {
        let files = &self.stage.files;
        files.set_tools("")?;
        self.limited(Limits::StandIns, || {
            self.model.begin(Trouble::Behind);
            for fault in ["exit 1", "exit 4", "kill"] {
                files.set_tools(fault)?;
                self.until_it_says_so()?;
            }
            files.set_tools("hang")?;
            self.wait(1);
            files.set_tools("")?;
            self.stage
                .until("it is healthy again", || self.stage.is_healthy())?;
            self.settle()?;
            self.model.end();
            Ok("iptables-restore ends with 1 and with 4, is killed, and hangs".to_owned())
        })
    }

    /// The daemon finds out that it cannot write, counts it, and is not healthy any more.
    fn until_it_says_so(&self) -> anyhow::Result<()> {
        let stage = self.stage;
        let errors = "ferrovia_kernel_errors_total";
        // Before the first error there is no such series.
        let before = stage.metric(errors).unwrap_or(0.0);
        stage.until("failed writes are counted", || {
            Ok(stage.metric(errors).unwrap_or(0.0) > before)
        })?;
        stage.until("a daemon that cannot write says so", || {
            Ok(!stage.is_healthy()?)
        })?;
        ensure!(
            stage.has_said("cannot write the rules"),
            "failed writes are not in the log"
        );
        Ok(())
    }

    /// Others take our rules away while the kernel has no room for the news of it.
    pub(crate) fn news_lost(&self) -> anyhow::Result<String> {
        let injection = Injection::begin(self.stage, LISTENER, "recvfrom:error=ENOBUFS:when=1+5")?;
        let done = self.foreign_flush()?;
        let lost = injection.end()?;
        ensure!(lost > 0, "no news got lost");
        Ok(format!("{done}, and {lost} times no room for the news"))
    }

    /// The node gets an address, of which the daemon hears, but which it cannot read for a while.
    pub(crate) fn addresses_unread(&self) -> anyhow::Result<String> {
        const NEW: &str = "198.51.100.99";
        let address = ["address", "add", NEW, "dev", "lo"];
        let at = SocketAddr::new(NEW.parse()?, STEADY.node_port().port());
        let injection = Injection::begin(self.stage, ADDRESSES, "sendto:error=ENOBUFS")?;
        self.stage.on_node("ip", &address)?;
        self.stage
            .until("addresses cannot be read", || Ok(injection.failed() > 0))?;
        let times = injection.end()?;
        self.stage
            .until("a node port on a new address answers", || {
                Ok(who_answers_at(self.stage, ClientHost::Node, at)?.is_some())
            })?;
        let address = ["address", "del", NEW, "dev", "lo"];
        self.stage.on_node("ip", &address)?;
        Ok(format!(
            "the node gets another one, which {times} times cannot be read"
        ))
    }

    /// Every now and then a conversation fails: with the kernel, the API server, or whoever asks the daemon.
    pub(crate) fn calls_fail(&self) -> anyhow::Result<String> {
        self.model.begin(Trouble::Behind);
        let what = "sendto,recvfrom,writev,accept4:error=ENOMEM:when=5+40";
        let injection = Injection::begin(self.stage, Whose::Everyone, what)?;
        let begin = Instant::now();
        while begin.elapsed() < self.each {
            // It may well not answer.
            self.stage.is_healthy()?;
            thread::sleep(Duration::from_millis(100));
        }
        let failed = injection.end()?;
        ensure!(failed > 0, "no system call failed");
        Ok(format!("{failed} calls fail for want of memory"))
    }

    /// No room for new connections. Those that there are live, changes are followed, and people are told.
    pub(crate) fn conntrack_full(&self) -> anyhow::Result<String> {
        self.model.begin(Trouble::Full);
        let mut crowd = Crowd::new(&self.stage.world)?;
        crowd.fill()?;
        let is_over = AtomicBool::new(false);
        let (told, crowd) = thread::scope(|scope| {
            // Whatever ends makes room, which is taken at once.
            let crowding = scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    crowd.keep_full()?;
                    thread::sleep(Duration::from_millis(1));
                }
                anyhow::Ok(crowd)
            });
            self.wait(2);
            let told = self.without_room();
            is_over.store(true, Ordering::Relaxed);
            let crowd = crowding
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (told, crowd)
        });
        let flows = crowd?.leave()?;
        told?;
        Ok(format!("{flows} flows of others, and room for no more"))
    }

    /// What must hold while no new connection is possible.
    fn without_room(&self) -> anyhow::Result<()> {
        self.stage.until("a new connection is dropped", || {
            Ok(who_answers(self.stage, CANARY)?.is_none())
        })?;
        self.stage.on_node("nft", &[UNTRACKED])?;
        self.stage.until("the log tells of a full table", || {
            Ok(self.stage.has_said("connection tracking's table is full"))
        })?;
        self.is_full_everywhere()?;
        if let Some(words) = self.compare()? {
            bail!("while there was no room: {words}");
        }
        let no_more = ["delete", "table", "inet", "soak"];
        self.stage.on_node("nft", &no_more)
    }

    /// Metrics and the doctor say that the table is full.
    fn is_full_everywhere(&self) -> anyhow::Result<()> {
        let stage = self.stage;
        let flows = stage.metric("ferrovia_conntrack_flows")?;
        let limit = stage.metric("ferrovia_conntrack_flows_limit")?;
        ensure!(
            flows >= 0.95 * limit && limit > 0.0,
            "the metrics tell of {flows} flows of {limit}"
        );
        let failures = stage.metric("ferrovia_conntrack_failures_total")?;
        ensure!(failures > 0.0, "the metrics tell of no failures");
        let doctor = stage
            .world
            .exec(Role::Node, FERROVIA)
            .args(["doctor", "--no-self-test", "--output=json"])
            .output()
            .context("cannot run ferrovia doctor")?;
        let report: serde_json::Value =
            serde_json::from_slice(&doctor.stdout).context("the doctor's report is no JSON")?;
        let findings = report["findings"].as_array().into_iter().flatten();
        let is_found = |check: &str, severity: &str| {
            let mut findings = findings.clone();
            findings.any(|found| found["check"] == check && found["severity"] == severity)
        };
        ensure!(
            is_found("conntrack/fill", "problem") && is_found("conntrack/drops", "warning"),
            "the doctor finds nothing: {report}"
        );
        Ok(())
    }

    /// The wall clock jumps, as when a machine wakes up or its clock is set.
    pub(crate) fn clock_jumps(&self) -> anyhow::Result<String> {
        self.limited(Limits::OwnClock, || {
            for hours in [7, -9, 0] {
                self.stage.files.set_clock(&format!("{hours:+}h"))?;
                self.stage.until("the daemon has another time", || {
                    let ahead = self.ahead()?.as_secs();
                    Ok((ahead - hours * 3600).abs() < 600)
                })?;
                self.wait(6);
                self.is_sane_about_time()
                    .with_context(|| format!("{hours} hours ahead"))?;
            }
            Ok("the time of day jumps 7 hours ahead, 16 back, and 9 ahead".to_owned())
        })
    }

    /// How far the daemon's clock is ahead.
    fn ahead(&self) -> anyhow::Result<SignedDuration> {
        let answer = self.stage.get(HEALTH, "/healthz")?;
        let answer = answer.context("no answer to a health check")?;
        let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
        let body: serde_json::Value = serde_json::from_str(body).context(answer.clone())?;
        let theirs: Timestamp = body["currentTime"]
            .as_str()
            .with_context(|| answer.clone())?
            .parse()?;
        Ok(theirs.duration_since(Timestamp::now()))
    }

    /// Everything that uses the monotonic clock continues unaffected.
    fn is_sane_about_time(&self) -> anyhow::Result<()> {
        const OLD: f64 = 600.0;
        let stage = self.stage;
        self.settle()?;
        ensure!(stage.is_healthy()?, "the daemon is not healthy");
        let age = stage.metric("ferrovia_data_age_seconds")?;
        ensure!(age < OLD, "the data are said to be {age} s old");
        let status = stage.get(METRICS, "/statusz")?.unwrap_or_default();
        ensure!(
            status.contains("Up: 0 hr"),
            "it was up for longer: {status}"
        );
        // Who waits for a time that never comes, or is long past, may go round in circles.
        self.churn.pause();
        let (before, begin) = (stage.usage()?.cpu, Instant::now());
        thread::sleep(Duration::from_secs(1));
        let (busy, time) = (stage.usage()?.cpu - before, begin.elapsed());
        self.churn.go_on();
        ensure!(
            busy < time / 2,
            "with nothing to do it was busy for {busy:?} of {time:?}"
        );
        Ok(())
    }
}
