//! Tests that run inside: the same binary boots the guest and, inside, runs its tests.
//!
//! ```no_run
//! fn something_holds() {
//!     assert_eq!(1 + 1, 2);
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     ferrovia_lab::uml::suite::main(&[("something holds", something_holds)])
//! }
//! ```
//!
//! The test target needs `harness = false`. Words on the command line choose the tests whose names contain one of them.

use std::io;
use std::panic;
use std::process::ExitCode;
use std::time::Instant;

use super::{Job, Machine, become_init_if_asked};

/// A test's name and what it does; it fails by a panic.
pub type Test = (&'static str, fn());

/// Tells a process that it is inside.
const INSIDE: &str = "FERROVIA_UML_INSIDE";

/// Whether this process runs in a guest that this module booted.
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// The `main` of a test binary whose tests need a kernel of their own. One boot serves all of them, one after the other.
pub fn main(tests: &[Test]) -> ExitCode {
    become_init_if_asked();
    if is_inside() {
        return run(tests);
    }
    if boot_and_run_inside(&[]) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs this program once more, inside, with the same arguments and these environment variables besides the caller's. Says whether that
/// went well; if not, why has been printed.
pub fn boot_and_run_inside(environment: &[(&str, &str)]) -> bool {
    match boot(environment) {
        Ok(code) => code == 0,
        Err(error) => {
            eprintln!("{error}");
            false
        }
    }
}

fn boot(environment: &[(&str, &str)]) -> Result<i32, Box<dyn std::error::Error>> {
    let mut job = Job::new(std::env::current_exe()?, std::env::args().skip(1))?.env(INSIDE, "1");
    for (name, value) in environment {
        job = job.env(name, value);
    }
    Ok(Machine::default().run(&job, &mut io::stdout())?)
}

fn run(tests: &[Test]) -> ExitCode {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let is_chosen =
        |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    let mut failed = Vec::new();
    let mut passed = 0;
    for (name, test) in tests.iter().filter(|(name, _)| is_chosen(name)) {
        let start = Instant::now();
        // The panic's words were printed by then.
        let is_ok = panic::catch_unwind(test).is_ok();
        let word = if is_ok { "ok" } else { "FAILED" };
        println!("test {name} ... {word} ({:.1?})", start.elapsed());
        if is_ok {
            passed += 1;
        } else {
            failed.push(*name);
        }
    }
    println!("\n{passed} passed, {} failed {failed:?}", failed.len());
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
