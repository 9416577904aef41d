//! Observes all writes to the node's nf_tables.
//!
//! `nft monitor` reports neither when it begins to listen nor whether it has printed everything. So a
//! table is created and deleted before and after: the lines in between are the writes.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use ferrovia_lab::{Role, World};

/// The prefix of marker tables.
const MARK: &str = "demo-mark-";

/// How long to wait for a marker before creating another one.
const MARK_WAIT: Duration = Duration::from_millis(100);

/// The table that shows which daemon owns the node.
const OWNER: &str = "ferrovia-owner";

/// A monitor that prints no marker for this long is broken.
const LIMIT: Duration = Duration::from_secs(5);

/// A running `nft monitor`.
pub(crate) struct NftMonitor {
    world: Arc<World>,
    child: Child,
    lines: Receiver<String>,
    marks: u32,
}

impl NftMonitor {
    /// Starts the monitor, and returns when it listens.
    pub(crate) fn start(world: Arc<World>) -> anyhow::Result<Self> {
        let mut child = world
            .exec(Role::Node, "nft")
            .arg("monitor")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot run nft monitor")?;
        let (heard, lines) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            thread::spawn(move || forward_lines(BufReader::new(stdout), &heard));
        }
        let mut monitor = Self {
            world,
            child,
            lines,
            marks: 0,
        };
        monitor.written()?;
        Ok(monitor)
    }

    /// The writes since the start, or since the last call.
    pub(crate) fn written(&mut self) -> anyhow::Result<Vec<String>> {
        let mut written = vec![];
        let begin = Instant::now();
        while begin.elapsed() < LIMIT {
            let mark = self.set_mark()?;
            let last = format!("delete table ip {mark}");
            while let Ok(line) = self.lines.recv_timeout(MARK_WAIT) {
                if line == last {
                    return Ok(written);
                }
                // Lines with a hash only number the transactions, and the owner table has no rules.
                let is_rule = !line.contains(MARK) && !line.contains(OWNER);
                if is_rule && !line.starts_with('#') {
                    written.push(line);
                }
            }
        }
        bail!("nft monitor prints nothing")
    }

    /// Creates and deletes a table; returns its name.
    fn set_mark(&mut self) -> anyhow::Result<String> {
        self.marks += 1;
        let mark = format!("{MARK}{}", self.marks);
        let status = self
            .world
            .exec(Role::Node, "nft")
            .arg(format!("add table ip {mark}; delete table ip {mark}"))
            .status()
            .context("cannot run nft")?;
        ensure!(status.success(), "nft failed to add a table");
        Ok(mark)
    }
}

impl Drop for NftMonitor {
    fn drop(&mut self) {
        // Both fail only if it has exited by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn forward_lines(stdout: impl BufRead, heard: &Sender<String>) {
    for line in stdout.lines().map_while(Result::ok) {
        if heard.send(line).is_err() {
            return;
        }
    }
}
