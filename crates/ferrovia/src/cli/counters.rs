//! `ferrovia counters`

use anyhow::ensure;
use clap::Args;
use ferrovia_core::family::Family;
use ferrovia_host::nft::Nft;

use super::output::print;
use crate::inspect::counters::report::read;

const NO_TABLE: &str = "the nftables mode, whose rules count, has no table in this network namespace; in other modes ask the daemon, with `ferrovia top --once`";

/// Flags of `ferrovia counters`.
#[derive(Debug, Args)]
pub(super) struct CountersArgs {
    /// Show only services whose `namespace/name` or `namespace/name:port` begins so
    #[arg(value_name = "SERVICE")]
    service: Option<String>,
}

pub(super) fn counters(args: &CountersArgs) -> anyhow::Result<()> {
    let mut nft = Nft::open()?;
    let mut has_table = false;
    for family in Family::ALL {
        let report = read(&mut nft, family)?;
        has_table |= report.has_table;
        print(report.of(args.service.as_deref()))?;
    }
    ensure!(has_table, NO_TABLE);
    Ok(())
}
