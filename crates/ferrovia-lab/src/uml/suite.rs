//! Test binaries whose tests need a kernel of their own: the binary boots a guest and runs its tests inside.
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
//! The test target needs `harness = false`. Arguments select the tests whose names contain one of them.

use std::io;
use std::panic;
use std::process::ExitCode;
use std::time::Instant;

use super::{Job, Machine, become_init_if_asked};

/// A test's name and function, which panics if the test fails.
pub type Test = (&'static str, fn());

/// The environment variable that is set inside a guest.
const INSIDE: &str = "FERROVIA_UML_INSIDE";

/// Whether this process runs in a guest that this module booted.
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// The `main` of a test binary whose tests need a kernel of their own. They run one after the other in one guest.
pub fn main(tests: &[Test]) -> ExitCode {
    main_with_host_tests(&[], tests)
}

/// Like [`main`], with tests that run on the machine's own kernel before the guest is booted.
pub fn main_with_host_tests(on_host: &[Test], inside: &[Test]) -> ExitCode {
    become_init_if_asked();
    let is_ok = if is_inside() {
        run(inside)
    } else {
        let is_ok = on_host.is_empty() || run(on_host);
        boot_and_run_inside(&[]) && is_ok
    };
    if is_ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs this program in a guest, with the same arguments and these additional environment variables. Returns whether it succeeded;
/// if not, the reason has been printed.
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

fn run(tests: &[Test]) -> bool {
    let filters: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let is_chosen = |name: &str| {
        filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()))
    };
    let mut failed = Vec::new();
    let mut passed = 0;
    for (name, test) in tests.iter().filter(|(name, _)| is_chosen(name)) {
        let start = Instant::now();
        // The panic hook has printed the reason.
        let is_ok = panic::catch_unwind(test).is_ok();
        let result = if is_ok { "ok" } else { "FAILED" };
        println!("test {name} ... {result} ({:.1?})", start.elapsed());
        if is_ok {
            passed += 1;
        } else {
            failed.push(*name);
        }
    }
    println!("\n{passed} passed, {} failed {failed:?}", failed.len());
    failed.is_empty()
}
