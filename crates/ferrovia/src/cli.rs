//! What people type. Without a command, and called as `kube-proxy`, the program is the daemon, whose flags are in
//! [`config::flags`](crate::config::flags); the other commands' are here.

mod cleanup;
mod completions;
mod counters;
mod daemon;
mod diff;
mod doctor;
mod flags;
mod help;
mod man;
mod migrate;
mod objects;
mod output;
mod plan;
mod run;
mod top;
mod trace;
mod tree;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
pub use flags::ShapeFlags;

use crate::config::flags::FlagError;
use crate::logging::{self, LogSettings};

const ABOUT: &str = "A service proxy for Kubernetes nodes, and a layer 4 load balancer for machines without Kubernetes";

const LONG_ABOUT: &str = "\
Ferrovia makes connections to a Service's stable address reach one of its pods, by programming this node's kernel. It does \
kube-proxy's job, with kube-proxy's flags and configuration file, from the objects of an API server or of a folder of manifests, and follows \
them as they change.

Try it without touching anything:
    ferrovia plan --manifests examples/ --node-name node-1

Run it (needs CAP_NET_ADMIN):
    ferrovia --config /etc/kube-proxy/config.conf        in a cluster, in the place of kube-proxy
    ferrovia --manifests /etc/ferrovia/manifests         without Kubernetes

Rules stay in the kernel when ferrovia ends, so that a restart or an upgrade interrupts nothing; `ferrovia cleanup` removes them.";

/// The commands and what each is for.
const COMMANDS: [(&str, &str); 12] = [
    ("run", "Run the proxy; the same as no command"),
    ("trace", "Say where a packet goes, and why"),
    (
        "plan",
        "Print the ruleset that the daemon, a folder or an API server asks for",
    ),
    (
        "diff",
        "Show how the kernel differs from what is wanted, or one folder from another",
    ),
    (
        "verify",
        "Say in one line whether the kernel has what is wanted",
    ),
    (
        "counters",
        "Show how many connections each service and each endpoint got",
    ),
    (
        "top",
        "Show services and endpoints with their connections, live",
    ),
    (
        "doctor",
        "Look for what is wrong with this node, and say what to do",
    ),
    (
        "migrate",
        "Say what would change with another mode, and how to switch",
    ),
    ("cleanup", "Remove our rules from the kernel"),
    (
        "completions",
        "Print what a shell needs to complete commands and flags",
    ),
    ("man", "Write manual pages into a folder"),
];

/// The name the program goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Itself, with commands.
    Ferrovia,
    /// Somebody put it in the place of a kube-proxy.
    KubeProxy,
}

impl Program {
    fn called(name: &OsString) -> Self {
        let name = Path::new(name).file_name();
        if name.is_some_and(|name| name == "kube-proxy") {
            Self::KubeProxy
        } else {
            Self::Ferrovia
        }
    }

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ferrovia => "ferrovia",
            Self::KubeProxy => "kube-proxy",
        }
    }
}

/// The commands that are not the daemon.
#[derive(Debug, Parser)]
#[command(name = "ferrovia", about = ABOUT, long_about = LONG_ABOUT, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// How much to log: 0 for what matters, 4 for every sync, 6 for single steps (FERROVIA_LOG overrides it)
    #[arg(
        short,
        long,
        alias = "v",
        value_name = "LEVEL",
        default_value_t = 0,
        display_order = 100,
        global = true
    )]
    verbosity: u32,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Say where a packet goes, and why; touches nothing. Ends with 0 if it is delivered, 10 if refused, 11 if dropped, 12 if no Service is
    /// addressed, 1 on an error
    Trace(Box<trace::TraceArgs>),
    /// Print the ruleset that the daemon, a folder or an API server asks for; touches nothing, needs no privileges but to ask the daemon
    Plan(Box<plan::PlanArgs>),
    /// Compare what is wanted with what is in the kernel, or two folders with each other; touches nothing. Ends with 0 if they are the same, 1
    /// if they differ, 2 on an error
    Diff(Box<diff::DiffArgs>),
    /// Say in one line whether the kernel has what is wanted, for monitoring. Ends with 0 if it has, 1 if not, 2 on an error
    Verify(Box<diff::VerifyArgs>),
    /// Show how many connections each service and each endpoint got, as the nftables mode's rules count them; needs no daemon. In other
    /// modes see `ferrovia top` and the metrics
    Counters(counters::CountersArgs),
    /// Show services and endpoints with their connections, live, from the running daemon
    Top(top::TopArgs),
    /// Look for what is wrong with this node as far as Services are concerned, and say what to do; changes nothing. Ends with 0 if nothing
    /// is worse than a note, 1 for warnings, 2 for problems, 3 if it could not look
    Doctor(Box<doctor::DoctorArgs>),
    /// Say which Services and settings would behave differently in another mode, and how to switch; changes nothing. With --check it ends
    /// with 0 if nothing changes, 1 if something does, 2 on an error
    Migrate(Box<migrate::MigrateArgs>),
    /// Remove the rules of every mode from the kernel; Services stop working on this node until a proxy runs again. Refuses while a
    /// Ferrovia runs here. What a kube-proxy wrote, or has taken over from us and uses, stays and is listed
    Cleanup(cleanup::CleanupArgs),
    /// Print what a shell needs to complete commands and flags, as in `ferrovia completions bash > /etc/bash_completion.d/ferrovia`
    Completions(completions::CompletionsArgs),
    /// Write manual pages into a folder, for `man -M` or a package
    Man(man::ManArgs),
}

/// A command line that cannot be read, with a word on where to look.
#[derive(Debug, thiserror::Error)]
#[error("{what}\nSee '{program} --help'.{hint}")]
pub struct UsageError {
    what: String,
    program: &'static str,
    hint: String,
}

impl UsageError {
    fn new(program: Program, error: &FlagError) -> Self {
        let hint = match (error, program) {
            (FlagError::Positional(word), Program::Ferrovia) => {
                if is_command(word) {
                    format!(" A command comes before its flags: ferrovia {word} ...")
                } else {
                    let names: Vec<_> = COMMANDS.iter().map(|(name, _)| *name).collect();
                    format!(" Commands are {}.", names.join(", "))
                }
            }
            _ => String::new(),
        };
        let what = match error {
            FlagError::Positional(_) => format!("{error} for {:?}", program.name()),
            _ => error.to_string(),
        };
        Self {
            what,
            program: program.name(),
            hint,
        }
    }
}

/// Does what the arguments ask for. The first is the name the program was called by.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> anyhow::Result<ExitCode> {
    let mut arguments = arguments.into_iter();
    let name = arguments.next().unwrap_or_default();
    let program = Program::called(&name);
    // A path that is not UTF-8 is told as one that does not exist, which is near enough.
    let mut arguments: Vec<String> = arguments
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    if program == Program::KubeProxy {
        return run::run(program, arguments).map(|()| ExitCode::SUCCESS);
    }
    command_first(&mut arguments);
    match arguments.first().map(String::as_str) {
        Some("help") => {
            arguments.remove(0);
            arguments.push("--help".to_owned());
            main(std::iter::once(name).chain(arguments.into_iter().map(Into::into)))
        }
        Some("run") => run::run(program, arguments.split_off(1)).map(|()| ExitCode::SUCCESS),
        Some(word) if is_command(word) => other_command(arguments),
        _ => run::run(program, arguments).map(|()| ExitCode::SUCCESS),
    }
}

fn is_command(word: &str) -> bool {
    COMMANDS.iter().any(|(name, _)| *name == word)
}

/// The verbosity may stand before the command, which then changes places with it.
fn command_first(arguments: &mut [String]) {
    let takes_next = |argument: &str| matches!(argument, "-v" | "--v" | "--verbosity");
    let is_verbosity = |argument: &str| {
        ["-v", "--v=", "--verbosity="]
            .iter()
            .any(|start| argument.starts_with(start))
    };
    let mut position = 0;
    while let Some(argument) = arguments.get(position) {
        position += match argument.as_str() {
            argument if takes_next(argument) => 2,
            argument if is_verbosity(argument) => 1,
            argument if is_command(argument) => break,
            _ => return,
        };
    }
    if let Some(through) = arguments.get_mut(..=position) {
        through.rotate_right(1);
    }
}

fn other_command(mut arguments: Vec<String>) -> anyhow::Result<ExitCode> {
    // An arrow of its own would be taken for a flag.
    arguments
        .iter_mut()
        .filter(|argument| *argument == "->")
        .for_each(|arrow| "to".clone_into(arrow));
    let cli = Cli::parse_from(std::iter::once("ferrovia".to_owned()).chain(arguments));
    let _ = logging::init(&LogSettings {
        verbosity: cli.verbosity,
        ..LogSettings::default()
    });
    let done = match cli.command {
        Command::Trace(args) => return trace::trace(&args),
        Command::Diff(args) => return Ok(or_trouble(diff::diff(&args))),
        Command::Verify(args) => return Ok(or_trouble(diff::verify(&args))),
        Command::Doctor(args) => return doctor::doctor(&args),
        Command::Migrate(args) => return migrate::migrate(&args),
        Command::Plan(args) => plan::plan(&args),
        Command::Counters(args) => counters::counters(&args),
        Command::Top(args) => top::top(args),
        Command::Cleanup(args) => cleanup::cleanup(&args),
        Command::Completions(args) => completions::completions(&args),
        Command::Man(args) => man::man(&args),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// Commands that compare have another code for errors: 1 says that there are differences.
fn or_trouble(result: anyhow::Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        eprintln!("ferrovia: {error:#}");
        ExitCode::from(diff::TROUBLE)
    })
}
