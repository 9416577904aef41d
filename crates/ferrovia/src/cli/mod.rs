//! What people type. Flags as typed are in `flags.rs`; each command turns them into what it needs.

mod cleanup;
mod counters;
mod flags;
mod output;
mod plan;
mod run;

use clap::{Parser, Subcommand};
pub use flags::ShapeFlags;
use tracing_subscriber::EnvFilter;

const ABOUT: &str = "A service proxy for Kubernetes nodes, and a layer 4 load balancer for machines without Kubernetes";

const LONG_ABOUT: &str = "\
Ferrovia makes connections to a Service's stable address reach one of its pods, by programming this node's kernel. It does \
kube-proxy's job from the same objects, which it takes from a folder of manifests and follows as they change.

Try it without touching anything:
    ferrovia plan --manifests examples/

Run it (needs CAP_NET_ADMIN):
    ferrovia run --manifests /etc/ferrovia/manifests

Rules stay in the kernel when ferrovia ends, so that a restart or an upgrade interrupts nothing; `ferrovia cleanup` removes them.";

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "ferrovia", version, about = ABOUT, long_about = LONG_ABOUT, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,

    /// How much to log: 0 for what matters, 4 for every sync, 6 for every rule written (FERROVIA_LOG overrides it)
    #[arg(short, long, value_name = "LEVEL", default_value_t = 0, global = true)]
    verbosity: u8,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the proxy: read objects, program the kernel, follow every change
    Run(run::RunArgs),
    /// Print the ruleset for a folder of manifests as nft text; touches nothing, needs no privileges
    Plan(plan::PlanArgs),
    /// Show how many connections each service and each endpoint got, read from the kernel
    Counters(counters::CountersArgs),
    /// Remove our rules from the kernel
    Cleanup(cleanup::CleanupArgs),
}

impl Cli {
    /// Does what was asked for.
    pub fn run(self) -> anyhow::Result<()> {
        init_log(self.verbosity);
        match self.command {
            Command::Run(args) => run::run(args),
            Command::Plan(args) => plan::plan(&args),
            Command::Counters(args) => counters::counters(&args),
            Command::Cleanup(args) => cleanup::cleanup(&args),
        }
    }
}

/// Logs go to standard error, so that what commands print can be piped.
fn init_log(verbosity: u8) {
    let level = match verbosity {
        0..4 => "info",
        4..6 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_env("FERROVIA_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr());
    // Only the first call counts; a test binary may come by here twice.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(ansi)
        .with_target(false)
        .with_writer(std::io::stderr)
        .try_init();
}
