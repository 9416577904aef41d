//! Running another program: input in, output back, and never longer than a time limit.
//!
//! The program runs in the calling thread's network namespace and inherits its environment.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// Why a program did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not be started, or not be talked to.
    #[error("cannot run {}: {cause}", program.display())]
    Run {
        /// The program.
        program: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// It was still running at its time limit, and was killed.
    #[error("{} did not end within {limit:?}", program.display())]
    TimedOut {
        /// The program.
        program: PathBuf,
        /// How long it was given.
        limit: Duration,
    },
    /// It ended with a failure.
    #[error("{} failed ({status}): {stderr}", program.display())]
    Failed {
        /// The program.
        program: PathBuf,
        /// How it ended.
        status: ExitStatus,
        /// What it complained about.
        stderr: String,
    },
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
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|cause| Error::Run {
            program: program.to_owned(),
            cause,
        })?;
    let outcome = converse(&mut child, input, Instant::now() + limit);
    if !matches!(outcome, Ok(Some(_))) {
        // Whatever went wrong, no process of ours stays behind. That it ended by itself just now is no matter.
        let _ = child.kill();
        let _ = child.wait();
    }
    match outcome {
        Ok(Some(Outcome { status, stdout, .. })) if status.success() => Ok(stdout),
        Ok(Some(Outcome { status, stderr, .. })) => {
            let stderr = String::from_utf8_lossy(&stderr).trim().to_owned();
            Err(Error::Failed {
                program: program.to_owned(),
                status,
                stderr,
            })
        }
        Ok(None) => Err(Error::TimedOut {
            program: program.to_owned(),
            limit,
        }),
        Err(cause) => Err(Error::Run {
            program: program.to_owned(),
            cause,
        }),
    }
}

struct Outcome {
    status: ExitStatus,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

/// Feeds the program and listens to it until it ends; `None` at the deadline.
fn converse(child: &mut Child, input: String, deadline: Instant) -> io::Result<Option<Outcome>> {
    // A thread for each pipe: a program may fill one while we are busy with another, and neither would go on.
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends without having read everything says why by its status, so a broken pipe is not worth reporting.
        thread::spawn(move || stdin.write_all(input.as_bytes()));
    }
    let stdout = child.stdout.take().map(read_all);
    let stderr = child.stderr.take().map(read_all);
    let Some(stdout) = until(deadline, stdout)? else {
        return Ok(None);
    };
    let Some(stderr) = until(deadline, stderr)? else {
        return Ok(None);
    };
    // Pipes are closed as a rule because the process ends, so there is nearly nothing left to wait for.
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(Outcome {
                status,
                stdout,
                stderr,
            }));
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(None)
}

/// Reads a pipe to its end in a thread of its own.
///
/// The thread is not joined: a grandchild may hold the pipe open for ever, and that shall not hold us.
fn read_all(mut pipe: impl Read + Send + 'static) -> Receiver<io::Result<Vec<u8>>> {
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = pipe.read_to_end(&mut bytes).map(|_| bytes);
        // Nobody listens any more after a time-out.
        let _ = sender.send(read);
    });
    receiver
}

/// What a reading thread has read, if it is done by the deadline. A pipe that was never there gives nothing.
fn until(
    deadline: Instant,
    reader: Option<Receiver<io::Result<Vec<u8>>>>,
) -> io::Result<Option<Vec<u8>>> {
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
    fn input_nobody_reads_is_no_failure() {
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
    fn a_program_that_is_not_there_is_an_error() {
        let error = run::<&str>(Path::new("/nonexistent/tool"), &[], String::new(), LONG);
        assert!(matches!(error, Err(Error::Run { .. })));
    }
}
