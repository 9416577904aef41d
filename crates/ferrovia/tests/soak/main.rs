//! `make soak`: the daemon under fault and load, and a table of what came of it.
//!
//! The real program runs in a node of the lab against the lab's API server, while Services and endpoints change at random, clients connect
//! from several places and long connections stay open. Then one fault after the other is thrown. After each of them: no connection was lost
//! that should live, none led to an endpoint that was gone for longer than a bound, and the kernel has what a full sync would write. At the
//! end nothing has grown.
//!
//! - `stage`: the node, the API server, and the daemon; `limits`: the circumstances it is started in
//! - `model`: which endpoints there are, and were; who may be reached
//! - `objects`: the same as the API server has it
//! - `traffic`: clients and their connections, judged by the model
//! - `churn`: changes while nothing else happens
//! - `faults`: what is thrown, one after the other; `many`: large clusters; `system`: what the kernel and the clock do wrong, with the help
//!   of `injected` and `flows`; `scene`: what must be so after each
//! - `report`: the table
//!
//! As a test it takes half a minute. `SOAK_SECONDS=200` makes it longer, `SOAK_MODE=iptables` tries the other mode, and `SOAK_BIG=1` has
//! clusters of 10,000 Services and of 250,000 endpoints. `SOAK_ONLY=API` throws only faults with such a name.
//!
//! The machine is left as it is: failing system calls and the wrong time of day are the daemon's alone, and the connection tracking table that
//! is full is the node's.

mod churn;
mod faults;
mod flows;
mod injected;
mod limits;
mod many;
mod model;
mod objects;
mod report;
mod scene;
mod stage;
mod system;
mod traffic;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;

/// How long a test may throw faults.
const SHORT: Duration = Duration::from_secs(15);

/// What is to be done.
#[derive(Clone, Debug)]
struct Options {
    /// Only faults whose names contain this.
    only: Option<String>,
    /// How long all faults together last, about. What it takes to recover comes on top.
    time: Duration,
    /// All faults, not only those that a test has time for.
    is_long: bool,
    /// The mode, as the configuration calls it.
    mode: Mode,
    /// Large clusters, too.
    is_big: bool,
}

/// The modes that work on any kernel and keep connections when the daemon is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Nftables,
    Iptables,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::Nftables => "nftables",
            Self::Iptables => "iptables",
        }
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("soak: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<bool> {
    // `cargo test some_name` means other tests.
    let words: Vec<String> = std::env::args().skip(1).collect();
    let is_named = |word: &&String| !word.starts_with('-');
    if words.iter().any(|word| word == "--list")
        || words
            .iter()
            .find(is_named)
            .is_some_and(|word| !"soak".contains(word.as_str()))
    {
        return Ok(true);
    }
    let options = options()?;
    let report = scene::play(&options)?;
    print!("{report}");
    Ok(report.is_well())
}

fn options() -> anyhow::Result<Options> {
    let seconds = match std::env::var("SOAK_SECONDS") {
        Ok(text) => {
            let seconds = text.parse();
            Some(seconds.with_context(|| format!("SOAK_SECONDS={text} is no number"))?)
        }
        Err(_) => None,
    };
    let mode = match std::env::var("SOAK_MODE").as_deref() {
        Ok("iptables") => Mode::Iptables,
        Ok("nftables") | Err(_) => Mode::Nftables,
        Ok(other) => anyhow::bail!("SOAK_MODE={other} is neither nftables nor iptables"),
    };
    let is_big = std::env::var_os("SOAK_BIG").is_some_and(|value| value == "1");
    let only = std::env::var("SOAK_ONLY").ok();
    Ok(Options {
        only,
        time: seconds.map_or(SHORT, Duration::from_secs),
        is_long: seconds.is_some(),
        mode,
        is_big,
    })
}
