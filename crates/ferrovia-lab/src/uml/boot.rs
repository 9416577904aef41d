//! The outer side: boots a guest, streams what its program prints, and makes sure that nothing of it stays.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::job::{Job, VARIABLE};
use super::xstate;
use crate::folder::Folder;
use crate::sys::{self, Readiness};

/// The kernel, as Debian's package calls it.
const KERNEL: &str = "linux.uml";
/// A boot takes three seconds on an idle machine.
const BOOT_LIMIT: Duration = Duration::from_secs(120);
/// How long a guest may take to power off once its program has ended.
const END_LIMIT: Duration = Duration::from_secs(20);
/// How many of the kernel's last lines are kept to be shown.
const LOG_LINES: usize = 60;

/// Why there is no exit code.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something on this side.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel is not installed.
    #[error(
        "cannot start user-mode Linux ({KERNEL}), install the package user-mode-linux (scripts/install-tools does): {0}"
    )]
    NotInstalled(io::Error),
    /// It did not come so far as to start the program.
    #[error("user-mode Linux did not boot; its last words:\n{log}")]
    NotBooted {
        /// The kernel's last lines.
        log: String,
    },
    /// It ended before the program did.
    #[error("user-mode Linux ended in the middle; its last words:\n{log}")]
    Crashed {
        /// The kernel's last lines.
        log: String,
    },
    /// The program was still running at the limit.
    #[error("the program did not end within {limit:?}; the kernel's last words:\n{log}")]
    TimedOut {
        /// How long it was given.
        limit: Duration,
        /// The kernel's last lines.
        log: String,
    },
}

/// A guest to be booted.
#[derive(Clone, Debug)]
pub struct Machine {
    memory: String,
    limit: Duration,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            memory: "1G".to_owned(),
            limit: Duration::from_secs(1500),
        }
    }
}

impl Machine {
    /// With so much memory, in the kernel's words: `512M`, `2G`.
    #[must_use]
    pub fn memory(mut self, memory: &str) -> Self {
        memory.clone_into(&mut self.memory);
        self
    }

    /// The program may run so long.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Boots, runs the job and powers off. What the job prints goes to `output` as it comes; the answer is its exit code.
    ///
    /// # Errors
    /// If it does not boot, ends too early or takes too long.
    pub fn run(&self, job: &Job, output: &mut dyn Write) -> Result<i32, Error> {
        let folder = Folder::make().map_err(failed("make a folder for the guest"))?;
        let token = token(&folder);
        let file = folder.join("job");
        job.write(&file, &token).map_err(failed("write the job"))?;
        let mut guest = Guest::start(self, folder.path(), &file)?;
        let listened = guest.listen(&token, self.limit, output);
        let log = guest.end(matches!(listened, Ok(Heard::End(_))));
        match listened.map_err(failed("read the guest's output"))? {
            Heard::End(code) => Ok(code),
            Heard::Nothing => Err(Error::NotBooted { log }),
            Heard::Middle => Err(Error::Crashed { log }),
            Heard::TooLate => Err(Error::TimedOut {
                limit: self.limit,
                log,
            }),
        }
    }
}

/// How far a guest came.
enum Heard {
    /// The program's exit code.
    End(i32),
    /// Silence before the program started.
    Nothing,
    /// Silence after it had started.
    Middle,
    /// It talks still.
    TooLate,
}

/// A running guest.
struct Guest {
    child: Child,
    log: JoinHandle<VecDeque<String>>,
}

impl Guest {
    fn start(machine: &Machine, folder: &Path, job: &Path) -> Result<Self, Error> {
        let init = std::env::current_exe().map_err(failed("find this program's own file"))?;
        let mut command = Command::new(KERNEL);
        command
            .arg(format!("mem={}", machine.memory))
            .args(["root=none", "rootfstype=hostfs", "rootflags=/", "ro"])
            .arg(format!("init={}", init.display()))
            .arg(format!("{VARIABLE}={}", job.display()))
            // The program's terminal is our standard output, the kernel's console our standard error.
            .args(["con0=null,fd:1", "con=null"])
            .args(["console=ttyS0", "ssl0=null,fd:2", "ssl=null"])
            .arg(format!("uml_dir={}", folder.display()))
            .arg("umid=guest")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if xstate::is_needed() {
            let library = xstate::build(folder).map_err(failed("compile a library for ptrace"))?;
            command.env("LD_PRELOAD", library);
        }
        sys::lead_a_group_and_die_with_us(&mut command);
        let mut child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::NotInstalled(error),
            _ => failed("start user-mode Linux")(error),
        })?;
        let console = child.stderr.take();
        let log = thread::spawn(move || console.map(last_lines).unwrap_or_default());
        Ok(Self { child, log })
    }

    /// Passes on what stands between the two markers.
    fn listen(
        &mut self,
        token: &str,
        limit: Duration,
        output: &mut dyn Write,
    ) -> io::Result<Heard> {
        let Some(mut pipe) = self.child.stdout.take() else {
            return Ok(Heard::Nothing);
        };
        let mut filter = Filter::new(token);
        let mut deadline = Instant::now() + BOOT_LIMIT;
        let mut buffer = [0; 16 << 10];
        loop {
            let started = filter.started;
            if !sys::wait(pipe.as_raw_fd(), Readiness::Readable, deadline)? {
                return Ok(if started {
                    Heard::TooLate
                } else {
                    Heard::Nothing
                });
            }
            let len = pipe.read(&mut buffer)?;
            if len == 0 {
                return Ok(if started {
                    Heard::Middle
                } else {
                    Heard::Nothing
                });
            }
            if let Some(code) = filter.take(buffer.get(..len).unwrap_or_default(), output)? {
                return Ok(Heard::End(code));
            }
            if filter.started && !started {
                deadline = Instant::now() + limit;
            }
        }
    }

    /// Sees it end, by force if it does not of itself; what the kernel said last.
    fn end(mut self, by_itself: bool) -> String {
        let deadline = Instant::now() + END_LIMIT;
        while by_itself && Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(5));
        }
        // A guest's processes are processes of ours, all in one group; none of them may stay, whatever became of the first.
        sys::kill_group(self.child.id());
        // It is dead, or was before: there is nothing to wait for and nothing to learn.
        let _ = self.child.wait();
        let lines = self.log.join().unwrap_or_default();
        Vec::from(lines).join("\n")
    }
}

/// Lets through what the program prints.
struct Filter {
    ready: Vec<u8>,
    end: Vec<u8>,
    started: bool,
    /// The last line, as far as it has come. It is held back until it cannot be a marker any more.
    line: Vec<u8>,
}

impl Filter {
    fn new(token: &str) -> Self {
        Self {
            ready: format!("{token} ready").into_bytes(),
            end: format!("{token} end ").into_bytes(),
            started: false,
            line: Vec::new(),
        }
    }

    /// Takes bytes; the exit code once its marker is there.
    fn take(&mut self, bytes: &[u8], output: &mut dyn Write) -> io::Result<Option<i32>> {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.line.extend_from_slice(piece);
            let whole = self.line.ends_with(b"\n");
            if whole && let Some(code) = self.line.strip_prefix(&*self.end) {
                let code = String::from_utf8_lossy(code).trim().parse();
                return Ok(Some(code.unwrap_or(-1)));
            }
            if !whole && could_become(&self.line, &self.end) {
                continue;
            }
            if self.started {
                output.write_all(&self.line)?;
                output.flush()?;
            } else if !whole {
                continue;
            }
            self.started |= self.line.starts_with(&self.ready);
            self.line.clear();
        }
        Ok(None)
    }
}

/// Whether a line that has not ended yet may still turn out to be the marker that begins so.
fn could_become(line: &[u8], marker: &[u8]) -> bool {
    marker.starts_with(line) || line.starts_with(marker)
}

/// A word that no program prints by chance at the beginning of a line.
fn token(folder: &Folder) -> String {
    let name = folder.path().file_name().unwrap_or_default();
    format!("\u{1}{}", name.to_string_lossy())
}

fn last_lines(console: ChildStderr) -> VecDeque<String> {
    let mut lines = VecDeque::new();
    for line in BufReader::new(console).split(b'\n').map_while(Result::ok) {
        if lines.len() == LOG_LINES {
            lines.pop_front();
        }
        lines.push_back(String::from_utf8_lossy(&line).trim_end().to_owned());
    }
    lines
}

fn failed(action: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Io { action, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_markers_comes_through() {
        let text = b"noise\nT ready\nfirst\nT is fine\nlast without end\nT end 7\nmore\n";
        // However the pipe cuts it.
        for size in [1, 3, text.len()] {
            let mut filter = Filter::new("T");
            let mut output = Vec::new();
            let code = text
                .chunks(size)
                .find_map(|bytes| filter.take(bytes, &mut output).unwrap());
            assert_eq!(code, Some(7));
            assert_eq!(output, b"first\nT is fine\nlast without end\n", "{size}");
        }
    }

    #[test]
    fn a_word_without_an_end_is_passed_on_at_once() {
        let mut filter = Filter::new("T");
        let mut output = Vec::new();
        filter.take(b"T ready\ntest one ... ", &mut output).unwrap();
        assert_eq!(output, b"test one ... ");
    }
}
