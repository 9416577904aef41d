//! Running another program: input in, output back, and never longer than a time limit.
//!
//! The program runs in the calling thread's network namespace and inherits its environment.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use crate::signal;

/// Why a program did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not be started, or not be talked to.
    #[error("cannot run {}: {cause}", program.display())]
    Run { program: PathBuf, cause: io::Error },
    /// It was still running at its time limit, and was killed.
    #[error("cannot run {}: it did not exit within {limit:?}", program.display())]
    TimedOut { program: PathBuf, limit: Duration },
    /// It ended with a failure.
    #[error("{} failed ({status}): {stderr}", program.display())]
    Failed {
        program: PathBuf,
        status: ExitStatus,
        /// What it complained about.
        stderr: String,
    },
}

/// How much a program may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long it may run.
    pub time: Duration,
    /// How many bytes it may print on each of its two ways out.
    pub bytes: usize,
}

/// Runs a program with a text as its standard input; its standard output, if it ends well and in time.
///
/// # Errors
/// If it cannot be run, fails, or takes too long.
pub fn run<A: AsRef<OsStr>>(
    program: &Path,
    args: &[A],
    input: String,
    limit: Duration,
) -> Result<Vec<u8>, Error> {
    let limits = Limits {
        time: limit,
        bytes: usize::MAX,
    };
    let output = output(program, args, input, limits)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::Failed {
        program: program.to_owned(),
        status: output.status,
        stderr,
    })
}

/// The same for programs that report failures in their own way: all they printed and their exit status, which is left to the caller to
/// judge.
///
/// # Errors
/// If it cannot be run, takes too long, or prints too much.
pub fn output<A: AsRef<OsStr>>(
    program: &Path,
    args: &[A],
    input: String,
    limits: Limits,
) -> Result<Output, Error> {
    let mut command = Command::new(program);
    command.args(args);
    output_of(command, input, limits)
}

/// The same for a command with an environment of its own.
///
/// # Errors
/// If it cannot be run, takes too long, or prints too much.
pub fn output_of(mut command: Command, input: String, limits: Limits) -> Result<Output, Error> {
    let program = PathBuf::from(command.get_program());
    let failed = |cause| Error::Run {
        program: program.clone(),
        cause,
    };
    detach(&mut command);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let outcome = converse(&mut child, input, limits);
    if !matches!(outcome, Ok(Some(_))) {
        // Whatever went wrong, no process of ours stays behind, nor one that it started.
        kill(&mut child);
        let _ = child.wait();
    }
    outcome.map_err(failed)?.ok_or_else(|| Error::TimedOut {
        program: program.clone(),
        limit: limits.time,
    })
}

#[cfg(target_os = "linux")]
fn detach(command: &mut Command) {
    signal::detach(command);
}

#[cfg(not(target_os = "linux"))]
fn detach(_command: &mut Command) {}

/// Before it is waited for.
#[cfg(target_os = "linux")]
fn kill(child: &mut Child) {
    signal::kill_group(child.id());
}

#[cfg(not(target_os = "linux"))]
fn kill(child: &mut Child) {
    // That it ended by itself just now is no matter.
    let _ = child.kill();
}

/// Feeds the program and listens to it until it ends; `None` at the deadline.
fn converse(child: &mut Child, input: String, limits: Limits) -> io::Result<Option<Output>> {
    let deadline = Instant::now() + limits.time;
    // A thread for each pipe: a program may fill one while we are busy with another, and neither would go on.
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends without having read everything says why by its status, so a broken pipe is not worth reporting.
        spawn(move || drop(stdin.write_all(input.as_bytes())))?;
    }
    let stdout = child.stdout.take().map(|pipe| read_all(pipe, limits.bytes));
    let stderr = child.stderr.take().map(|pipe| read_all(pipe, limits.bytes));
    let (stdout, stderr) = (stdout.transpose()?, stderr.transpose()?);
    let Some(stdout) = until(deadline, stdout)? else {
        return Ok(None);
    };
    let Some(stderr) = until(deadline, stderr)? else {
        return Ok(None);
    };
    // Pipes are closed as a rule because the process ends, so there is nearly nothing left to wait for.
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(Output {
                status,
                stdout,
                stderr,
            }));
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(None)
}

/// Reads a pipe to its end in a thread of its own; that it has more than `most` bytes is a failure.
///
/// The thread is not joined: a grandchild may hold the pipe open forever, and that shall not hold us.
fn read_all(pipe: impl Read + Send + 'static, most: usize) -> io::Result<OutputReader> {
    let (sender, receiver) = mpsc::sync_channel(1);
    spawn(move || {
        let mut bytes = Vec::new();
        let one_more = (most as u64).saturating_add(1);
        let read = match pipe.take(one_more).read_to_end(&mut bytes) {
            Ok(length) if length > most => Err(io::Error::other(format!(
                "it printed more than {most} bytes"
            ))),
            read => read.map(|_| bytes),
        };
        // The receiver is gone after a timeout.
        let _ = sender.send(read);
    })?;
    Ok(receiver)
}

/// What is to come of reading a pipe.
type OutputReader = Receiver<io::Result<Vec<u8>>>;

/// Starts a thread, if the system has another one: the standard library's shorter way panics if it has not.
fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().spawn(work).map(drop)
}

/// What a reading thread has read, if it is done by the deadline. A pipe that was never there gives nothing.
fn until(deadline: Instant, reader: Option<OutputReader>) -> io::Result<Option<Vec<u8>>> {
    let Some(reader) = reader else {
        return Ok(Some(Vec::new()));
    };
    let left = deadline.saturating_duration_since(Instant::now());
    reader.recv_timeout(left).ok().transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, input: &str, limit: Duration) -> Result<String, Error> {
        let output = run(
            Path::new("/bin/sh"),
            &["-c", script],
            input.to_owned(),
            limit,
        )?;
        Ok(String::from_utf8(output).unwrap())
    }

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn input_goes_in_and_output_comes_back() {
        // More than any pipe buffers, both ways at once.
        let input = "line\n".repeat(200_000);
        assert_eq!(shell("cat", &input, LONG).unwrap(), input);
    }

    #[test]
    fn a_failure_says_what_the_program_said() {
        let error = shell("echo fine; echo oh no >&2; exit 3", "", LONG).unwrap_err();
        assert!(
            matches!(&error, Error::Failed { status, stderr, .. } if status.code() == Some(3) && stderr == "oh no")
        );
    }

    #[test]
    fn unread_input_is_no_failure() {
        assert_eq!(
            shell("echo done", &"x".repeat(1 << 20), LONG).unwrap(),
            "done\n"
        );
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        let scripts = [
            "exec sleep 1000",
            // The shell goes, its child keeps the pipes open; what it holds open ends with this test's process or its own time.
            "sleep 20 & exit 0",
            // All pipes closed, still running.
            "exec >&- 2>&- <&-; exec sleep 1000",
        ];
        for script in scripts {
            let started = Instant::now();
            let error = shell(script, "", Duration::from_millis(200)).unwrap_err();
            assert!(matches!(error, Error::TimedOut { .. }), "{script}: {error}");
            assert!(started.elapsed() < Duration::from_secs(10), "{script}");
        }
    }

    #[test]
    fn what_a_hanging_program_started_is_killed_too() {
        let folder = std::env::temp_dir().join(format!("ferrovia-exec-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let number = folder.join("number");
        let script = format!("sleep 1000 & echo $! > {}; wait", number.display());
        let error = shell(&script, "", Duration::from_secs(2)).unwrap_err();
        assert!(matches!(error, Error::TimedOut { .. }), "{error}");
        let grandchild = std::fs::read_to_string(&number).unwrap();
        let process = PathBuf::from(format!("/proc/{}/stat", grandchild.trim()));
        let is_gone = || match std::fs::read_to_string(&process) {
            // A process that is dead and was not waited for.
            Ok(state) => state.contains(") Z "),
            Err(_) => true,
        };
        let started = Instant::now();
        while !is_gone() {
            assert!(started.elapsed() < Duration::from_secs(60));
            thread::sleep(Duration::from_millis(10));
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_program_gets_signals_that_we_hold_back() {
        let masks = thread::spawn(|| {
            signal::Termination::block().unwrap();
            shell("grep SigBlk /proc/self/status", "", LONG).unwrap()
        });
        let masks = masks.join().unwrap();
        assert_eq!(masks.trim(), "SigBlk:\t0000000000000000");
    }

    #[test]
    fn a_program_that_prints_without_end_is_ended() {
        let limits = Limits {
            time: LONG,
            bytes: 1000,
        };
        let print = |script| output(Path::new("/bin/sh"), &["-c", script], String::new(), limits);
        for script in ["yes", "yes >&2"] {
            let error = print(script).unwrap_err();
            assert!(
                error.to_string().contains("more than 1000 bytes"),
                "{script}: {error}"
            );
        }
        let enough = print("head -c 1000 /dev/zero; exit 3").unwrap();
        assert_eq!((enough.stdout.len(), enough.status.code()), (1000, Some(3)));
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let error = run::<&str>(Path::new("/nonexistent/tool"), &[], String::new(), LONG);
        assert!(matches!(error, Err(Error::Run { .. })));
    }
}
