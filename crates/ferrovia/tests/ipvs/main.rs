//! The daemon in the ipvs mode, on a real IPVS kernel: user-mode Linux, booted once for all of it. Needs root.
//!
//! - `schedulers`: each by its visible effect
//! - `connections`: affinity and its end, draining, a restart under a connection
//! - `switch`: from the iptables mode and back, under traffic
//! - `takeover`: from a kube-proxy's ipvs mode
//! - `settings`: what flags ask for, and metrics
//! - `others`: what belongs to others is left alone, or is in the way
//! - `stage`: a node with the daemon
//!
//! `cargo test -p ferrovia --test ipvs -- drain` runs the tests whose names contain a word.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod connections;
mod others;
mod schedulers;
mod settings;
mod stage;
mod switch;
mod takeover;

/// The program under test.
const FERROVIA: &str = env!("CARGO_BIN_EXE_ferrovia");

use std::process::ExitCode;

use ferrovia_lab::uml::suite::{self, Test};

fn main() -> ExitCode {
    let all: [&[Test]; 6] = [
        &schedulers::TESTS,
        &connections::TESTS,
        &switch::TESTS,
        &takeover::TESTS,
        &settings::TESTS,
        // The last of these takes IPVS away.
        &others::TESTS,
    ];
    suite::main(&all.concat())
}
