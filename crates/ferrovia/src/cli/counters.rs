//! `ferrovia counters`

use anyhow::ensure;
use clap::Args;

use super::output::print;
use crate::mode;

const NOT_COUNTED: &str = "the nftables mode, whose rules count, has no table in this network namespace; in other modes ask the daemon, with `ferrovia top --once`";

/// Flags of `ferrovia counters`.
#[derive(Debug, Args)]
pub(super) struct CountersArgs {
    /// Show only services whose `namespace/name` or `namespace/name:port` begins so
    #[arg(value_name = "SERVICE")]
    service: Option<String>,
}

pub(super) fn counters(args: &CountersArgs) -> anyhow::Result<()> {
    let mut found = false;
    for mode in mode::ALL {
        let report = mode.counter_report(args.service.as_deref());
        if let Some(report) = report.map_err(anyhow::Error::from_boxed)? {
            found = true;
            print(report)?;
        }
    }
    ensure!(found, NOT_COUNTED);
    Ok(())
}
