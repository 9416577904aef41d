//! The outer side: boots a guest, streams the output of its program, and removes everything afterwards.

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

/// The name of the kernel in Debian's package.
const KERNEL: &str = "linux.uml";
/// A boot takes three seconds on an idle machine.
const BOOT_LIMIT: Duration = Duration::from_secs(120);
/// How long a guest may take to power off once its program has exited.
const END_LIMIT: Duration = Duration::from_secs(20);
/// How many of the kernel's last lines an error shows.
const LOG_LINES: usize = 60;

/// Why there is no exit code.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An operation on the outer side failed.
    #[error("cannot {action}: {source}")]
    Io {
        action: &'static str,
        source: io::Error,
    },
    /// The kernel is not installed.
    #[error(
        "cannot start user-mode Linux ({KERNEL}): {0}; install the package user-mode-linux, as scripts/install-tools does"
    )]
    NotInstalled(io::Error),
    /// It did not start the program.
    #[error("user-mode Linux did not boot; its last output:\n{log}")]
    NotBooted {
        /// The kernel's last lines.
        log: String,
    },
    /// It exited before the program.
    #[error("user-mode Linux exited before the program; its last output:\n{log}")]
    Crashed {
        /// The kernel's last lines.
        log: String,
    },
    /// The program was still running at the limit.
    #[error("the program did not exit within {limit:?}; the kernel's last output:\n{log}")]
    TimedOut {
        limit: Duration,
        /// The kernel's last lines.
        log: String,
    },
}

/// The options of a guest.
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
    /// Sets the memory, in the kernel's syntax: `512M`, `2G`.
    #[must_use]
    pub fn memory(mut self, memory: &str) -> Self {
        memory.clone_into(&mut self.memory);
        self
    }

    /// Sets how long the program may run.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Boots, runs the job and powers off. Streams the job's output to `output`; returns its exit code.
    ///
    /// # Errors
    /// If it does not boot, exits too early or takes too long.
    pub fn run(&self, job: &Job, output: &mut dyn Write) -> Result<i32, Error> {
        let folder = Folder::make().map_err(failed("create a folder for the guest"))?;
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

/// The state of a guest when its output ended.
enum Heard {
    /// The program's exit code.
    End(i32),
    /// Its output ended before the program started.
    Nothing,
    /// Its output ended after the program started.
    Middle,
    /// It still produces output.
    TooLate,
}

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

    /// Forwards the output between the two markers.
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

    /// Waits for its exit, and kills it after a while; returns the kernel's last output.
    fn end(mut self, by_itself: bool) -> String {
        let deadline = Instant::now() + END_LIMIT;
        while by_itself && Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(5));
        }
        // The processes of a guest are processes of the host, all in one group; none of them may remain.
        sys::kill_group(self.child.id());
        // The process has exited; its status does not matter.
        let _ = self.child.wait();
        let lines = self.log.join().unwrap_or_default();
        Vec::from(lines).join("\n")
    }
}

/// Extracts the output of the program.
struct Filter {
    ready: Vec<u8>,
    end: Vec<u8>,
    started: bool,
    /// The incomplete last line. It is held back while it may still become a marker.
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

    /// Processes bytes; returns the exit code once its marker has arrived.
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

/// Whether an incomplete line may still become this marker.
fn could_become(line: &[u8], marker: &[u8]) -> bool {
    marker.starts_with(line) || line.starts_with(marker)
}

/// A token that no program prints by chance at the beginning of a line.
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
        // For any size of chunks.
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
