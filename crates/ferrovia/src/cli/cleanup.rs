//! `ferrovia cleanup`, and `--cleanup`

use std::time::Duration;

use anyhow::bail;
use clap::Args;
use ferrovia_host::owner::Ownership;

use super::output::print;
use crate::app::owner;
use crate::mode::{self, Removed};

const WHY_FOREIGN_STAYS: &str = "\
these iptables chains have no mark of Ferrovia, so a kube-proxy wrote them, or an older Ferrovia; \
`ferrovia cleanup --kube-proxy` removes them\n";
const WHY_LEGACY_STAYS: &str = "\
only the iptables-legacy tools can remove these rules, and they were not found on PATH; run this where they are\n";

/// Flags of `ferrovia cleanup`.
#[derive(Debug, Args)]
pub(super) struct CleanupArgs {
    /// Remove what a kube-proxy left behind as well: nftables tables, iptables chains, virtual servers, sets and the device kube-ipvs0
    #[arg(long)]
    pub(super) kube_proxy: bool,
    /// Remove them even while a Ferrovia runs here, which may write them again
    #[arg(long)]
    pub(super) force: bool,
}

/// Removes our rules, and those of a kube-proxy if asked to.
pub(super) fn cleanup(args: &CleanupArgs) -> anyhow::Result<()> {
    let _ownership = (!args.force).then(claim).transpose()?;
    let done = mode::remove_all(args.kube_proxy).map_err(anyhow::Error::from_boxed)?;
    report(&done)
}

/// How long a proxy that is just exiting may keep its claim.
const EXIT_GRACE: Duration = Duration::from_secs(2);

/// Keeps a proxy from writing what is being removed. None may be writing now.
fn claim() -> anyhow::Result<Option<Ownership>> {
    let me = owner::describe("cleanup");
    match ferrovia_host::owner::claim_within(EXIT_GRACE, &me) {
        Ok(Ok(ownership)) => Ok(Some(ownership)),
        Ok(Err(owner)) => bail!(
            "cannot remove the rules: a proxy uses them in this network namespace ({owner}); stop it first, or use --force"
        ),
        // Whatever is wrong with the kernel or our rights, the removal meets it too and says it better.
        Err(error) => {
            tracing::debug!(%error, "Failed to find out whether a proxy runs");
            Ok(None)
        }
    }
}

fn report(done: &Removed) -> anyhow::Result<()> {
    let proxy = done.in_use_by.as_deref().unwrap_or_default();
    let why_in_use =
        format!("these iptables chains are in use by a kube-proxy that runs here: {proxy}\n");
    for what in &done.removed {
        print(format_args!("removed {what}\n"))?;
    }
    for (left, why) in [
        (&done.in_use, why_in_use.as_str()),
        (&done.foreign, WHY_FOREIGN_STAYS),
        (&done.needs_tools, WHY_LEGACY_STAYS),
    ] {
        for what in left {
            print(format_args!("left {what}\n"))?;
        }
        if !left.is_empty() {
            print(why)?;
        }
    }
    let left = [&done.in_use, &done.foreign, &done.needs_tools];
    if done.removed.is_empty() && left.iter().all(|left| left.is_empty()) {
        print("nothing to remove in this network namespace\n")?;
    }
    Ok(())
}
