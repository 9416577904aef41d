//! A fresh network namespace for one test, for those that need no [world](crate::world), and programs that run in it.

use std::io::Write as _;
use std::panic::resume_unwind;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::rootless;
use crate::sys;

/// A test that takes longer fails.
const PATIENCE: Duration = Duration::from_secs(600);

/// Runs a test in a new network namespace and returns its result. The namespace belongs to a new thread and is removed with it, and with
/// the threads that it started.
///
/// # Panics
/// With the test's message, if it panics; if it hangs; or without root and user namespaces.
pub fn in_namespace<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::spawn(move || {
        enter_new();
        sender.send(test()).ok();
    });
    match receiver.recv_timeout(PATIENCE) {
        Ok(value) => value,
        Err(RecvTimeoutError::Timeout) => panic!("the test timed out"),
        // The thread panicked: propagate its panic.
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => resume_unwind(panic),
            Ok(()) => panic!("the test returned no result"),
        },
    }
}

/// Moves only this thread into a new network namespace.
///
/// # Panics
/// Without root and user namespaces.
pub fn enter_new() {
    if let Err(error) = sys::enter_new_network() {
        panic!(
            "cannot create a network namespace ({error}): {}",
            rootless::advice()
        );
    }
}

/// Changes only this thread to an unprivileged user.
///
/// # Panics
/// If the thread is unprivileged already.
pub fn drop_privileges() {
    if let Err(error) = sys::become_nobody() {
        panic!("cannot change the user: {error}");
    }
}

/// Runs a command in this thread's namespace; returns its standard output. Arguments are separated by spaces, without quoting.
///
/// # Panics
/// With the command's standard error, if it fails.
pub fn run(command: &str) -> String {
    feed(command, "")
}

/// Like [`run`], with standard input.
///
/// # Panics
/// With the command's standard error, if it fails.
pub fn feed(command: &str, input: &str) -> String {
    let mut words = command.split_whitespace();
    let program = words.next().unwrap_or_default();
    succeed(Command::new(program).args(words), input)
}

/// Runs a command with standard input; returns its standard output.
///
/// # Panics
/// With the command's standard error, if it fails.
pub fn succeed(command: &mut Command, input: &str) -> String {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stdin = child.stdin.take();
    let text = input.to_owned();
    // In its own thread: the command may write errors before it has read everything. If it stops reading, its status shows why.
    let feeder = thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(text.as_bytes())));
    let output = child
        .wait_with_output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    feeder.join().ok();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}\n{input}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_run_in_the_namespace_and_may_be_fed() {
        let links = in_namespace(|| run("cat /proc/net/dev"));
        let names = links.lines().filter_map(|line| line.split_once(':'));
        let names: Vec<&str> = names.map(|(name, _)| name.trim()).collect();
        assert_eq!(names, ["lo"], "{links}");
        assert_eq!(feed("cat -", "text"), "text");
    }

    #[test]
    #[should_panic(expected = "nonsense")]
    fn a_command_that_fails_says_why() {
        run("cat /nonsense");
    }
}
