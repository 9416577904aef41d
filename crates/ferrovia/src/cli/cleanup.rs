//! `ferrovia cleanup`, and `--cleanup`

use clap::Args;

use super::output::print;
use crate::mode::Mode;

/// Flags of `ferrovia cleanup`.
#[derive(Debug, Args)]
pub(super) struct CleanupArgs {
    /// Remove what a kube-proxy left behind as well: its nftables tables and its iptables chains
    #[arg(long)]
    pub(super) kube_proxy: bool,
}

/// Removes our rules, and those of a kube-proxy if asked to.
pub(super) fn cleanup(kube_proxy: bool) -> anyhow::Result<()> {
    let mut removed = Vec::new();
    for mode in Mode::all() {
        removed.extend(mode.remove(kube_proxy).map_err(anyhow::Error::from_boxed)?);
    }
    if kube_proxy {
        let leftovers = ferrovia_host::iptables::remove_leftovers()?;
        let tools = leftovers.tools.iter().filter(|tool| !tool.is_empty());
        removed.extend(tools.map(ToString::to_string));
    }
    if removed.is_empty() {
        print("nothing to remove in this network namespace\n")?;
    }
    for what in removed {
        print(format_args!("removed {what}\n"))?;
    }
    Ok(())
}
