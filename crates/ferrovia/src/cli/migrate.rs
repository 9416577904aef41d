//! `ferrovia migrate`

use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, ValueEnum};
use ferrovia_core::desired::Builder;
use ferrovia_core::family::Family;

use super::objects::{SourceFlags, WHERE, read};
use super::output::{Format, print};
use crate::config::ModeName;
use crate::inspect::migrate::text::Text;
use crate::inspect::migrate::{From, Node, changes, gather, steps, to_json};

/// What the program ends with if something changes, and if it cannot tell.
const CHANGES: u8 = 1;
const TROUBLE: u8 = 2;

/// Flags of `ferrovia migrate`.
#[derive(Debug, Args)]
pub(super) struct MigrateArgs {
    /// The mode that the node is in
    #[arg(long, value_name = "MODE")]
    from: OldMode,

    /// The mode to change to
    #[arg(long, value_name = "MODE", default_value = "nftables")]
    to: NewMode,

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

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OldMode {
    Iptables,
    Ipvs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum NewMode {
    Nftables,
}

/// Says what would change, or how to switch.
pub(super) fn migrate(args: &MigrateArgs) -> anyhow::Result<ExitCode> {
    let (from, old) = match args.from {
        OldMode::Iptables => (From::Iptables, ModeName::Iptables),
        OldMode::Ipvs => (From::Ipvs, ModeName::Ipvs),
    };
    let NewMode::Nftables = args.to;
    if !args.check {
        print(steps::steps(from))?;
        return Ok(ExitCode::SUCCESS);
    }
    check(args, from, old).or_else(|error| {
        eprintln!("ferrovia: {error:#}");
        Ok(ExitCode::from(TROUBLE))
    })
}

fn check(args: &MigrateArgs, from: From, mode: ModeName) -> anyhow::Result<ExitCode> {
    if !args.source.is_known() {
        bail!("where are the objects? {WHERE}");
    }
    let configuration = |mode| {
        let node_name = args.node_name.as_deref();
        args.source.configuration(node_name, Vec::new(), Some(mode))
    };
    let (old, new) = (configuration(mode)?, configuration(ModeName::Nftables)?);
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
