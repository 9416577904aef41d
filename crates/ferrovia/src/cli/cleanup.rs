//! `ferrovia cleanup`, and `--cleanup`

use clap::Args;
use ferrovia_host::iptables;

use super::output::print;
use crate::mode;

/// Ours have the names of kube-proxy's on purpose.
const WHY_CHAINS_STAY: &str = "\
these iptables chains are of our iptables, ipvs or userspace mode or of a kube-proxy, which cannot be told apart; \
`ferrovia cleanup --kube-proxy` removes them\n";
const NO_TOOLS: &str = "\
no iptables tools that work were found on PATH, so iptables chains were not looked for; \
if the iptables mode or a kube-proxy was in use here, run this where the tools are\n";

/// Flags of `ferrovia cleanup`.
#[derive(Debug, Args)]
pub(super) struct CleanupArgs {
    /// Remove what a kube-proxy left behind as well, and what our modes iptables, ipvs and userspace wrote under its names: nftables
    /// tables, iptables chains, virtual servers, sets and the device kube-ipvs0
    #[arg(long)]
    pub(super) kube_proxy: bool,
}

/// Removes our rules, and those of a kube-proxy if asked to.
pub(super) fn cleanup(kube_proxy: bool) -> anyhow::Result<()> {
    let removed = mode::remove_all(kube_proxy).map_err(anyhow::Error::from_boxed)?;
    if kube_proxy {
        return report(&removed.in_words, &[], removed.no_tools);
    }
    // They are not asked for, so that they cannot be looked at is no failure.
    let chains = iptables::find_leftovers().unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot tell whether there are iptables chains");
        error.removed
    });
    let left = mode::in_words(&chains);
    report(&removed.in_words, &left, chains.tools.is_empty())
}

fn report(removed: &[String], left: &[String], no_tools: bool) -> anyhow::Result<()> {
    for what in removed {
        print(format_args!("removed {what}\n"))?;
    }
    for what in left {
        print(format_args!("left {what}\n"))?;
    }
    if !left.is_empty() {
        print(WHY_CHAINS_STAY)?;
    }
    if no_tools {
        print(NO_TOOLS)?;
    } else if removed.is_empty() && left.is_empty() {
        print("nothing to remove in this network namespace\n")?;
    }
    Ok(())
}
