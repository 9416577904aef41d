//! `ferrovia plan`

use std::net::IpAddr;

use anyhow::bail;
use clap::{Args, ValueEnum};
use ferrovia_core::desired::Builder;
use ferrovia_core::family::Family;
use ferrovia_core::store::Store;

use super::flags::ShapeFlags;
use super::output::print;
use crate::mode::Mode;
use crate::source::manifest::{Folder, Severity};

/// Flags of `ferrovia plan`.
#[derive(Debug, Args)]
pub(super) struct PlanArgs {
    #[command(flatten)]
    shape: ShapeFlags,

    /// Which family's ruleset to print
    #[arg(long, value_name = "FAMILY", default_value = "both")]
    family: Families,

    /// An address of the node the plan is for, instead of this machine's; may be given several times
    #[arg(long, value_name = "IP")]
    local_address: Vec<IpAddr>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Families {
    Ipv4,
    Ipv6,
    Both,
}

impl Families {
    fn list(self) -> &'static [Family] {
        match self {
            Self::Ipv4 => &[Family::V4],
            Self::Ipv6 => &[Family::V6],
            Self::Both => &Family::ALL,
        }
    }
}

pub(super) fn plan(args: &PlanArgs) -> anyhow::Result<()> {
    let settings = args.shape.settings()?;
    let mut folder = Folder::open(&args.shape.manifests)?;
    let batch = folder.rescan();
    let mut store = Store::new(&settings.node_name);
    let warnings: Vec<_> = batch
        .events
        .into_iter()
        .flat_map(|event| store.handle(event))
        .collect();
    let mut builder = Builder::new(settings);
    let mut touched = store.take_touched();
    touched.node = true;
    let update = builder.update(&store, touched, &local_addresses(args)?);
    for problem in &batch.problems {
        eprintln!("{problem}");
    }
    for warning in warnings.iter().chain(&update.warnings) {
        eprintln!("warning: {warning}");
    }
    for family in args.family.list() {
        print(Mode::default().plan(builder.desired(*family)))?;
    }
    if batch
        .problems
        .iter()
        .any(|problem| problem.severity == Severity::Error)
    {
        bail!("some files could not be read; the ruleset above is without them");
    }
    Ok(())
}

fn local_addresses(args: &PlanArgs) -> anyhow::Result<Vec<IpAddr>> {
    if args.local_address.is_empty() {
        return Ok(ferrovia_host::addr::local_addresses()?);
    }
    Ok(args.local_address.clone())
}
