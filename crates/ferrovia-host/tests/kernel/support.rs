//! Namespaces, the `nft` tool, and short names for common steps.

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use ferrovia_core::dialect::nft::{Observed, Op, Transaction};
use ferrovia_core::family::Family;
use ferrovia_host::nft::Nft;

/// The table the tests write.
pub(crate) const TABLE: &str = "ferrovia";

/// A test that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs a closure in a fresh network namespace and returns what it returns.
///
/// The namespace belongs to a thread made for it and goes with that thread, so nothing needs to be
/// cleaned up.
pub(crate) fn in_namespace<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        // SAFETY: no pointers; affects this thread only.
        let made = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        assert_eq!(
            made,
            0,
            "cannot make a network namespace ({}): run as root",
            std::io::Error::last_os_error()
        );
        let value = test();
        sender.send(value).ok();
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

/// Makes this thread an ordinary user's. The system call itself, because the library's function
/// would change all threads.
pub(crate) fn give_up_rights() {
    const NOBODY: libc::uid_t = 65534;
    // SAFETY: no pointers; affects this thread only, which ends with its test.
    let changed = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
    assert_eq!(
        changed,
        0,
        "cannot change the user: {}",
        std::io::Error::last_os_error()
    );
}

/// A transaction on the test table.
pub(crate) fn transaction(family: Family, ops: Vec<Op>) -> Transaction {
    Transaction {
        family,
        table: TABLE.into(),
        ops,
        notes: Vec::new(),
    }
}

/// Applies operations through netlink.
pub(crate) fn apply(nft: &mut Nft, family: Family, ops: Vec<Op>) {
    let transaction = transaction(family, ops);
    nft.apply(&transaction)
        .unwrap_or_else(|error| panic!("{error}\n{transaction}"));
}

/// Reads the test table.
pub(crate) fn observe(nft: &mut Nft, family: Family) -> Observed {
    nft.observe(family, TABLE, &[]).unwrap()
}

/// Runs a command in this thread's namespace; it must succeed.
pub(crate) fn run(command: &str) -> String {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output();
    succeed(
        command,
        output.unwrap_or_else(|error| panic!("{command}: {error}")),
    )
}

/// Lets the tool load a text; it must succeed.
pub(crate) fn load(text: &str) {
    let mut child = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the nft tool is needed");
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    succeed(text, child.wait_with_output().unwrap());
}

/// What the tool says about the test table.
pub(crate) fn list(family: Family) -> String {
    run(&format!("nft list table {} {TABLE}", keyword(family)))
}

/// The tool's word for a family.
pub(crate) fn keyword(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    }
}

fn succeed(what: &str, output: Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{what}\nfailed ({}): {errors}",
        output.status
    );
    String::from_utf8(output.stdout).unwrap()
}
