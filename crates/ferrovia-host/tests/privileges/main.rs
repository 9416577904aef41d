//! Giving up capabilities, in real processes: capabilities are a thread's, cannot be taken back, and a test harness runs tests in threads.
//!
//! So this program has no harness. Called without an order it runs itself once for every scenario, with the scenario's name as order; the
//! scenario is then the main thread of a process of its own, in a network namespace of its own. Needs root and the tools of nft and iptables;
//! without them it fails and reports it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

/// What each process does.
mod scenarios;
/// What the kernel says about a thread.
mod status;

use std::env;
use std::process::{Command, ExitCode};

use ferrovia_lab::Folder;

/// Says which scenario a process is to be.
const ORDER: &str = "FERROVIA_PRIVILEGES_SCENARIO";

fn main() -> ExitCode {
    if let Ok(order) = env::var(ORDER) {
        let (_, run) = scenarios::ALL
            .iter()
            .find(|(name, _)| *name == order)
            .expect("the order is the name of a scenario");
        run();
        return ExitCode::SUCCESS;
    }
    // `cargo test --test privileges word` runs those with the word in their name; options are the harness's, which is not here.
    let words: Vec<String> = env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let mut failed = 0;
    for (name, _) in scenarios::ALL {
        if words.is_empty() || words.iter().any(|word| name.contains(word.as_str())) {
            let result = if succeeds(name) { "ok" } else { "FAILED" };
            failed += usize::from(result == "FAILED");
            println!("scenario {name} ... {result}");
        }
    }
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn succeeds(name: &str) -> bool {
    let itself = env::current_exe().expect("the test's own path is known");
    // The legacy tools have one lock for all namespaces; this machine's own is not ours to hold.
    let folder = Folder::new();
    let status = Command::new(itself)
        .env(ORDER, name)
        .env("XTABLES_LOCKFILE", folder.join("lock"))
        .status();
    status.expect("the test can run itself").success()
}
