//! The ipvs mode's kernel half on a real IPVS kernel: user-mode Linux, booted once for all tests. Tests of sets run on the machine's own
//! kernel, too. Needs root, and the `ipset`, `iptables` and `ipvsadm` tools.
//!
//! `cargo test -p ferrovia-host --test ipvs -- drain` runs the tests whose names contain a word.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

/// The whole applier: steps, what is read back, failures in the middle.
mod applier;
/// Destinations that wait for their connections.
mod drain;
/// How long much of everything takes, beside the tools.
mod figures;
/// The dummy device and its addresses.
mod link;
/// IPVS's timeouts and schedulers, kernel settings.
mod node;
/// The planner and the applier together.
mod planner;
/// Virtual servers, compared with what ipvsadm prints.
mod servers;
/// Sets, compared with what ipset prints.
mod sets;
/// Namespaces, commands and short names for values.
mod support;

use std::process::ExitCode;

use ferrovia_lab::uml::suite::{self, Test};

fn main() -> ExitCode {
    let all: [&[Test]; 8] = [
        &servers::TESTS,
        &node::TESTS,
        &link::TESTS,
        &SETS,
        &applier::TESTS,
        &planner::TESTS,
        &drain::TESTS,
        &figures::TESTS,
    ];
    suite::main_with_host_tests(&SETS, &all.concat())
}

/// These run on the machine's own kernel, too.
const SETS: [Test; 4] = [
    (
        "sets are as the tool prints them",
        sets::sets_are_as_the_tool_prints_them,
    ),
    ("sets of the tool are read", sets::sets_of_the_tool_are_read),
    (
        "a refused change of a set is named",
        sets::a_refused_change_is_named,
    ),
    (
        "a set is swapped and destroyed",
        sets::a_set_is_swapped_and_destroyed,
    ),
];
