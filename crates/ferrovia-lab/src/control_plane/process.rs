//! A process with its log in a file.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::Error;
use crate::sys;

/// How much of a log an error shows.
const TAIL_LINES: usize = 25;

/// How a process is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// By SIGTERM: gracefully.
    Term,
    /// By SIGKILL, as by the OOM killer.
    Kill,
}

/// A running process. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program; its log is appended to a file in the folder. The kernel kills it when the calling thread exits.
    pub(super) fn start(name: &str, mut command: Command, folder: &Path) -> Result<Self, Error> {
        let log = folder.join(format!("{name}.log"));
        let action = || format!("start {name}");
        let file = File::options().create(true).append(true).open(&log);
        let file = file.map_err(|source| Error::io(action(), source))?;
        let again = file
            .try_clone()
            .map_err(|source| Error::io(action(), source))?;
        command.stdin(Stdio::null()).stdout(again).stderr(file);
        sys::lead_a_group_and_die_with_us(&mut command);
        let child = command
            .spawn()
            .map_err(|source| Error::io(action(), source))?;
        Ok(Self { child, log })
    }

    /// Stops it and waits for its exit.
    pub(super) fn stop(mut self, how: Stop) -> Result<(), Error> {
        let stopped = match how {
            Stop::Kill => self.child.kill(),
            Stop::Term => self.terminate(),
        };
        stopped
            .and_then(|()| self.child.wait().map(|_| ()))
            .map_err(|source| Error::io("stop a program".to_owned(), source))
    }

    fn terminate(&self) -> io::Result<()> {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args(["-TERM", &pid]).status()?;
        match status.success() {
            true => Ok(()),
            false => Err(io::Error::other(format!("kill -TERM {pid}: {status}"))),
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs.
    pub(super) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The last lines of its log.
    pub(super) fn tail(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        let first = lines.len().saturating_sub(TAIL_LINES);
        lines.get(first..).unwrap_or_default().join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if it has exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
