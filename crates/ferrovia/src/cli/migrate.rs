//! `ferrovia migrate`

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use ferrovia_core::desired::Builder;
use ferrovia_core::family::Family;

use super::objects::{SourceFlags, WHERE, read};
use super::output::{Format, print};
use crate::inspect::migrate::text::Text;
use crate::inspect::migrate::{Node, OldMode, changes, gather, steps, to_json};
use crate::mode;

/// The exit codes if something changes, and if that could not be determined.
const CHANGES: u8 = 1;
const TROUBLE: u8 = 2;

/// Flags of `ferrovia migrate`.
#[derive(Debug, Args)]
pub(super) struct MigrateArgs {
    /// The mode that the node is in
    #[arg(long, value_name = "MODE", value_parser = old_mode())]
    from: OldMode,

    /// The mode to change to
    #[arg(long, value_name = "MODE", default_value = mode::DEFAULT.name(), value_parser = new_mode())]
    to: String,

    /// List the Services and settings that would behave differently; without it, the steps are printed
    #[arg(long)]
    check: bool,

    #[command(flatten)]
    source: SourceFlags,

    /// Name of this node [default: the host name]
    #[arg(long, value_name = "NAME", alias = "hostname-override")]
    node_name: Option<String>,

    /// How to print the changes
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Format,
}

/// Prints what would change, or how to switch.
pub(super) fn migrate(args: &MigrateArgs) -> anyhow::Result<ExitCode> {
    if !args.check {
        print(steps::steps(args.from))?;
        return Ok(ExitCode::SUCCESS);
    }
    check(args, args.from).or_else(|error| {
        eprintln!("ferrovia: {error:#}");
        Ok(ExitCode::from(TROUBLE))
    })
}

fn old_mode() -> impl TypedValueParser<Value = OldMode> {
    let names = OldMode::all().map(OldMode::name);
    PossibleValuesParser::new(names.collect::<Vec<_>>()).try_map(|name| {
        let mode = mode::find(&name).and_then(OldMode::of);
        mode.ok_or("it cannot be left")
    })
}

fn new_mode() -> impl TypedValueParser<Value = String> {
    PossibleValuesParser::new([mode::DEFAULT.name()])
}

fn check(args: &MigrateArgs, from: OldMode) -> anyhow::Result<ExitCode> {
    if !args.source.is_known() {
        bail!("where are the objects? {WHERE}");
    }
    let configuration = |mode| {
        let node_name = args.node_name.as_deref();
        args.source.configuration(node_name, Vec::new(), Some(mode))
    };
    let (old, new) = (configuration(from.mode)?, configuration(mode::DEFAULT)?);
    let mut store = read(&old)?.checked()?;
    let mut touched = store.take_touched();
    touched.node = true;
    let services: Vec<_> = touched
        .services
        .iter()
        .filter_map(|key| store.service(key).cloned())
        .collect();
    let mut builder = Builder::new(old.settings.clone());
    let addresses = ferrovia_host::addr::local_addresses()?;
    builder.update(&store, touched, &addresses);
    let changes = changes(&Node {
        from,
        old: &old,
        new: &new,
        services: &services,
        desired: &Family::ALL.map(|family| builder.desired(family)),
        evidence: &gather(),
    });
    match args.output {
        Format::Json => print(format_args!("{:#}\n", to_json(from, &changes)))?,
        Format::Text => print(Text {
            from,
            changes: &changes,
        })?,
    }
    Ok(ExitCode::from(if changes.is_empty() { 0 } else { CHANGES }))
}
