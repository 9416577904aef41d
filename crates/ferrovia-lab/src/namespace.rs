//! A fresh network namespace for one test, for those that need no [world](crate::world), and programs that run in it.

use std::io::Write as _;
use std::panic::resume_unwind;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::rootless;
use crate::sys;

/// A test that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(600);

/// Runs a test in a fresh network namespace and answers with what it returns. The namespace belongs to a thread made for it and goes with
/// it, and with the threads it started, so there is nothing to clean up.
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
        Err(RecvTimeoutError::Timeout) => panic!("the test hangs"),
        // The thread panicked: so do we, with its words.
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => resume_unwind(panic),
            Ok(()) => panic!("a test ended without a result"),
        },
    }
}

/// Moves this thread, and no other, into a fresh network namespace.
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

/// Makes this thread, and no other, an ordinary user's.
///
/// # Panics
/// If it is one already.
pub fn give_up_rights() {
    if let Err(error) = sys::become_nobody() {
        panic!("cannot change the user: {error}");
    }
}

/// Runs a command in this thread's namespace; answers with what it printed. Words are separated by spaces; there is no quoting.
///
/// # Panics
/// With the command's words, if it fails.
pub fn run(command: &str) -> String {
    feed(command, "")
}

/// The same with an input.
///
/// # Panics
/// With the command's words, if it fails.
pub fn feed(command: &str, input: &str) -> String {
    let mut words = command.split_whitespace();
    let program = words.next().unwrap_or_default();
    succeed(Command::new(program).args(words), input)
}

/// Runs a command with an input, and answers with what it printed.
///
/// # Panics
/// With the command's words, if it fails.
pub fn succeed(command: &mut Command, input: &str) -> String {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stdin = child.stdin.take();
    let text = input.to_owned();
    // In a thread of its own: the command may be busy complaining meanwhile. If it stops reading, its status says why.
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
