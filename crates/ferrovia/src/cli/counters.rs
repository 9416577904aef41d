//! `ferrovia counters`

use clap::Args;
use ferrovia_core::family::Family;
use ferrovia_host::nft::Nft;

use super::output::print;
use crate::counters::report::{Report, read};

/// Flags of `ferrovia counters`.
#[derive(Debug, Args)]
pub(super) struct CountersArgs {
    /// Show only services whose `namespace/name` or `namespace/name:port` begins so
    #[arg(value_name = "SERVICE")]
    service: Option<String>,
}

pub(super) fn counters(args: &CountersArgs) -> anyhow::Result<()> {
    let mut nft = Nft::open()?;
    for family in Family::ALL {
        let report: Report = read(&mut nft, family)?;
        print(report.of(args.service.as_deref()))?;
    }
    Ok(())
}
