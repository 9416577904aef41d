//! Namespaces, commands and short names for values.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use ferrovia_core::dialect::ipset::{Entry, Kind, SetName};

/// A test that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(300);

/// Runs a closure in a fresh network namespace, which goes with the thread made for it.
pub(crate) fn in_namespace<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        // SAFETY: no pointers; affects this thread only.
        let made = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        let error = std::io::Error::last_os_error();
        assert_eq!(made, 0, "no network namespace ({error}): run as root");
        // Without any route the kernel takes no address for one that packets could be sent to.
        run("ip link set lo up");
        sender.send(test()).ok();
    });
    match receiver.recv_timeout(PATIENCE) {
        Ok(value) => value,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the test hangs"),
        // The thread panicked: so do we, with its words.
        Err(mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => panic!("a test ended without a result"),
        },
    }
}

/// Runs a command in this thread's namespace; it must succeed. What it printed.
pub(crate) fn run(command: &str) -> String {
    run_with(command, "")
}

/// The same with an input.
pub(crate) fn run_with(command: &str, input: &str) -> String {
    let mut words = command.split_whitespace();
    let mut child = Command::new(words.next().unwrap())
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command}: {error}"));
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    // In a thread of its own: the command may be busy complaining meanwhile. If it stops reading, its status says why.
    std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn name(text: &str) -> SetName {
    SetName::new(text).unwrap()
}

pub(crate) fn entry(kind: Kind, text: &str) -> Entry {
    Entry::parse(kind, text).unwrap()
}
