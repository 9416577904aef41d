//! All parsers of the program with mutated inputs of a corpus. Parsers of kernel messages and API server responses are fuzzed beside their
//! code (`hostile`).
//!
//! - `manifests`: manifest files, and the rules of their objects
//! - `texts`: configuration files, and the output of `iptables-save` and `ipset save`
//! - `requests`: the daemon's servers
//!
//! `FUZZ_SECONDS=60 cargo test -p ferrovia --test fuzz` runs longer; a failure prints how to reproduce it.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on should fail there"
)]

mod manifests;
mod requests;
mod texts;

/// The program under test.
const FERROVIA: &str = env!("CARGO_BIN_EXE_ferrovia");

use std::path::{Path, PathBuf};

/// A folder of seeds.
fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(name)
}
