//! System calls of the daemon that fail, in one thread or in all of them, because strace says so.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, ensure};

use crate::stage::Stage;

/// Whose system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Of the thread with this name.
    Thread(&'static str),
    Everyone,
}

/// The thread that writes the rules: the process's first one.
pub(crate) const WRITER: Whose = Whose::Thread("ferrovia");
/// The thread that hears of others' changes to them.
pub(crate) const LISTENER: Whose = Whose::Thread("rules");
/// The thread that reads the node's addresses.
pub(crate) const ADDRESSES: Whose = Whose::Thread("addresses");

/// As long as this lives, system calls fail.
pub(crate) struct Injection {
    tracer: Child,
    record: PathBuf,
}

impl Injection {
    /// From now on calls fail: which, how, and how often in strace's words.
    pub(crate) fn begin(stage: &Stage, whose: Whose, what: &str) -> anyhow::Result<Self> {
        let record = stage.files.folder().join("calls");
        let daemon = stage.pid()?;
        let calls = what.split(':').next().unwrap_or_default();
        let mut strace = Command::new("strace");
        strace
            .args(["-qq", "-e", &format!("trace={calls}"), "-e", "signal=none"])
            .args(["-e", &format!("inject={what}"), "-o"])
            .arg(&record);
        let thread = match whose {
            Whose::Everyone => {
                strace.arg("-f");
                daemon
            }
            Whose::Thread(name) => thread_of(daemon, name)?,
        };
        let tracer = strace
            .args(["-p", &thread.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot run strace")?;
        let injection = Self { tracer, record };
        let status = format!("/proc/{daemon}/task/{thread}/status");
        stage.until("strace traces the daemon", || {
            let status = fs::read_to_string(&status).context("the daemon's thread is gone")?;
            let tracer = status
                .lines()
                .find_map(|line| line.strip_prefix("TracerPid:"));
            Ok(tracer.is_some_and(|pid| pid.trim() != "0"))
        })?;
        Ok(injection)
    }

    /// How many calls have failed so far.
    pub(crate) fn failed(&self) -> usize {
        let record = fs::read(&self.record).unwrap_or_default();
        String::from_utf8_lossy(&record)
            .lines()
            .filter(|line| line.contains("(INJECTED)"))
            .count()
    }

    /// From now on all is as it should be. Answers with how many calls have failed.
    pub(crate) fn end(mut self) -> anyhow::Result<usize> {
        // It lets go of the daemon properly if it is asked to, and not in the middle of a call.
        let asked = Command::new("kill")
            .args(["-INT", &self.tracer.id().to_string()])
            .status()
            .context("cannot run kill")?;
        ensure!(asked.success(), "strace ended before its time");
        self.tracer.wait().context("cannot wait for strace")?;
        Ok(self.failed())
    }
}

impl Drop for Injection {
    fn drop(&mut self) {
        // As a rule it has ended already.
        let _ = self.tracer.kill();
        let _ = self.tracer.wait();
    }
}

fn thread_of(process: u32, name: &str) -> anyhow::Result<u32> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).context("the daemon is gone")?;
    let is_it = |thread: &fs::DirEntry| {
        let comm = fs::read_to_string(thread.path().join("comm"));
        comm.is_ok_and(|comm| comm.trim() == name)
    };
    let thread = threads
        .filter_map(Result::ok)
        .find(is_it)
        .with_context(|| format!("the daemon has no thread {name}"))?;
    let number = thread.file_name();
    let number = number.to_str().and_then(|number| number.parse().ok());
    number.context("a thread's number is none")
}
