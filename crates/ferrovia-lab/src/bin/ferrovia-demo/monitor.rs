//! Hears what is written to the node's nftables, whoever writes it.
//!
//! `nft monitor` does not say when it begins to listen, nor whether it has told everything yet. So a
//! table of the demo's own comes and goes at both ends: what was written lies between the two.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use ferrovia_lab::{Role, World};

/// What the names of the marking tables begin with.
const MARK: &str = "demo-mark-";

/// How long to wait for a mark before setting another one.
const MARK_WAIT: Duration = Duration::from_millis(100);

/// The table by which a daemon shows that it is the one that writes here.
const OWNER: &str = "ferrovia-owner";

/// A monitor that hears no mark for this long is broken.
const LIMIT: Duration = Duration::from_secs(5);

/// A running `nft monitor`.
pub(crate) struct Monitor {
    world: Arc<World>,
    child: Child,
    lines: Receiver<String>,
    marks: u32,
}

impl Monitor {
    /// Starts to listen, and returns when it does.
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
            thread::spawn(move || pass_on(BufReader::new(stdout), &heard));
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

    /// What was written since the start, or since this was asked last.
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
                // Lines with a hash only number the transactions, and the owner's table has no rules.
                let is_rule = !line.contains(MARK) && !line.contains(OWNER);
                if is_rule && !line.starts_with('#') {
                    written.push(line);
                }
            }
        }
        bail!("nft monitor hears nothing")
    }

    /// Makes a table come and go; its name.
    fn set_mark(&mut self) -> anyhow::Result<String> {
        self.marks += 1;
        let mark = format!("{MARK}{}", self.marks);
        let status = self
            .world
            .exec(Role::Node, "nft")
            .arg(format!("add table ip {mark}; delete table ip {mark}"))
            .status()
            .context("cannot run nft")?;
        ensure!(status.success(), "nft cannot add a table");
        Ok(mark)
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // Both fail only if it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pass_on(stdout: impl BufRead, heard: &Sender<String>) {
    for line in stdout.lines().map_while(Result::ok) {
        if heard.send(line).is_err() {
            return;
        }
    }
}
