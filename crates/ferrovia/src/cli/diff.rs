//! `ferrovia diff` and `ferrovia verify`: what is wanted against what is in the kernel, or two folders against each other.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use ferrovia_core::difference::Difference;
use ferrovia_core::difference::services::{delta, in_words};
use serde_json::json;

use super::daemon;
use super::objects::{Answerer, Families, Loaded, ObjectFlags};
use super::output::{Format, is_coloured, print};
use crate::inspect::query::diff::Compared;

/// As diff(1) has it.
const SAME: u8 = 0;
const DIFFERS: u8 = 1;
/// Something could not be read.
pub(super) const TROUBLE: u8 = 2;

/// Flags of `ferrovia diff`.
#[derive(Debug, Args)]
pub(super) struct DiffArgs {
    /// Two folders of manifests: say what going from the first to the second would change, without looking at the kernel
    #[arg(value_name = "DIR", num_args = 0..=2)]
    folders: Vec<PathBuf>,

    #[command(flatten)]
    objects: ObjectFlags,

    /// Which family to compare
    #[arg(long, value_name = "FAMILY", default_value = "both")]
    family: Families,

    /// How to print it
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Format,
}

/// Flags of `ferrovia verify`.
#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    #[command(flatten)]
    objects: ObjectFlags,

    /// Which family to compare
    #[arg(long, value_name = "FAMILY", default_value = "both")]
    family: Families,

    /// Say nothing; the exit code tells
    #[arg(short, long)]
    quiet: bool,
}

pub(super) fn diff(args: &DiffArgs) -> anyhow::Result<ExitCode> {
    match args.folders.as_slice() {
        [] => with_kernel(args),
        [old, new] => {
            let (old, new) = (
                args.objects.load_folder(old)?,
                args.objects.load_folder(new)?,
            );
            old.print_warnings();
            new.print_warnings();
            between(args, &old, &new)
        }
        _ => bail!(
            "one folder alone cannot be compared: give two, or --manifests DIR to compare it with the kernel"
        ),
    }
}

pub(super) fn verify(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let (compared, loaded, wanted) = match args.objects.answerer()? {
        Answerer::Daemon(client) => {
            let wanted = format!("what the daemon at {} wants", client.path().display());
            let compared = daemon::ask_quietly(&client, &question(args.family))?;
            (compared, None, wanted)
        }
        Answerer::Objects => {
            let loaded = args.objects.load()?;
            let compared = compare(&loaded, args.family)?;
            (compared, Some(loaded), "what is wanted".to_owned())
        }
    };
    if !args.quiet {
        print(compared.in_one_line(&wanted))?;
    }
    loaded.iter().try_for_each(check_complete)?;
    Ok(code(compared.same))
}

fn code(same: bool) -> ExitCode {
    ExitCode::from(if same { SAME } else { DIFFERS })
}

fn check_complete(loaded: &Loaded) -> anyhow::Result<()> {
    if loaded.is_complete {
        return Ok(());
    }
    bail!("some objects could not be read; the comparison is without them")
}

/// What the daemon is asked.
fn question(families: Families) -> String {
    let family = families.parameter();
    family.map_or_else(|| "diff".to_owned(), |family| format!("diff?{family}"))
}

/// What differs, family by family; families this machine does not have are left out.
fn compare(loaded: &Loaded, families: Families) -> anyhow::Result<Compared> {
    let supported = ferrovia_host::probe::supported_families();
    let families = families.list().iter();
    let families = families.filter(|family| supported.contains(family));
    let desired = families.map(|family| loaded.desired(*family));
    (loaded.kernel.compare(desired)).map_err(anyhow::Error::from_boxed)
}

fn with_kernel(args: &DiffArgs) -> anyhow::Result<ExitCode> {
    let (compared, loaded) = match args.objects.answerer()? {
        Answerer::Daemon(client) => (daemon::ask(&client, &question(args.family))?, None),
        Answerer::Objects => {
            let loaded = args.objects.load()?;
            loaded.print_warnings();
            (compare(&loaded, args.family)?, Some(loaded))
        }
    };
    match args.output {
        Format::Json => print(format_args!("{:#}\n", json!(compared)))?,
        Format::Text => {
            let paint = Paint::for_stdout();
            for family in &compared.families {
                print(paint.unified(&family.family, &family.differences))?;
            }
        }
    }
    loaded.iter().try_for_each(check_complete)?;
    Ok(code(compared.same))
}

fn between(args: &DiffArgs, old: &Loaded, new: &Loaded) -> anyhow::Result<ExitCode> {
    let mut same = true;
    let mut families = Vec::new();
    for family in args.family.list() {
        let (before, after) = (old.desired(*family), new.desired(*family));
        let changes = delta(before, after);
        same &= changes.is_empty();
        let (words, plan) = if changes.is_empty() {
            (Vec::new(), String::new())
        } else {
            (
                in_words(&changes),
                new.mode().plan_change(before, after, &changes),
            )
        };
        if args.output == Format::Text && !changes.is_empty() {
            let words: String = words.iter().map(|line| format!("# {line}\n")).collect();
            print(format_args!("# {family}\n{words}{plan}"))?;
        }
        families.push(json!({"family": family.name(), "changes": words, "plan": plan}));
    }
    if args.output == Format::Json {
        let answer = json!({"mode": new.mode().name(), "same": same, "families": families});
        print(format_args!("{answer:#}\n"))?;
    }
    check_complete(old)?;
    check_complete(new)?;
    Ok(code(same))
}

/// Colours, for terminals only.
struct Paint {
    is_on: bool,
}

impl Paint {
    fn for_stdout() -> Self {
        Self {
            is_on: is_coloured(),
        }
    }

    fn unified(&self, family: &str, differences: &[Difference]) -> String {
        let mut text = String::new();
        if differences.is_empty() {
            return text;
        }
        let _ = write!(text, "--- {family} in the kernel\n+++ {family} as wanted\n");
        let mut last = None;
        for difference in differences {
            let head = (difference.kind, difference.place.as_str());
            if last != Some(head) {
                let head = format!("@@ {} {} @@", difference.kind.name(), difference.place);
                let _ = writeln!(text, "{}", self.coloured(36, &head));
                last = Some((difference.kind, difference.place.as_str()));
            }
            for line in &difference.found {
                let _ = writeln!(text, "{}", self.coloured(31, &format!("-{line}")));
            }
            for line in &difference.wanted {
                let _ = writeln!(text, "{}", self.coloured(32, &format!("+{line}")));
            }
        }
        text
    }

    fn coloured(&self, colour: u8, line: &str) -> String {
        if self.is_on {
            format!("\x1b[{colour}m{line}\x1b[0m")
        } else {
            line.to_owned()
        }
    }
}
