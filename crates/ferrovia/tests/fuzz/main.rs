//! Every parser of the program against inputs that nobody would send, from corpora of inputs that somebody did. What reads the kernel's
//! messages and the API server's answers is tried beside the code (`hostile`).
//!
//! - `manifests`: files of objects, and what becomes of those objects down to the rules
//! - `texts`: configuration files, and what `iptables-save` and `ipset save` print
//! - `requests`: the daemon's servers
//!
//! `FUZZ_SECONDS=60 cargo test -p ferrovia --test fuzz` tries for longer; a failure says how to repeat it.

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
