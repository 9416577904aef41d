//! How to switch, and how to go back. The switch is a start in another mode; nothing here does it.

use super::OldMode;
use crate::inspect::wrap::hanging;

/// The steps, as text.
pub fn steps(from: OldMode) -> String {
    let old = from.name();
    let removed = from.migration.removed;
    let steps = [
        format!(
            "See what would change, and prepare for it first: `ferrovia migrate --from {old} --to nftables --check --config FILE` and `ferrovia doctor --config FILE`."
        ),
        "Set mode: nftables in the configuration (kubectl -n kube-system edit configmap kube-proxy), and what step 1 asked for.".to_owned(),
        format!(
            "Restart the proxy on one node: delete its pod. It writes all its rules in one transaction; until then the old ones are in force. {removed} Open connections go on."
        ),
        "Look whether all is well (`ferrovia doctor --config FILE`), then go on with the next node.".to_owned(),
    ];
    let numbered = steps.into_iter().enumerate();
    let numbered = numbered.map(|(before, step)| hanging(&format!("{}. ", before + 1), &step));
    format!(
        "{}\n{}\n{}",
        hanging(
            "",
            &format!(
                "The switch from {old} to nftables is a restart with another mode; this command changes nothing."
            )
        ),
        numbered.collect::<String>(),
        hanging(
            "",
            &format!(
                "To go back, set mode: {old} again and restart the proxy: it removes our nftables tables once its own rules are in force. A kube-proxy does not know them: after going back to one, run `ferrovia cleanup` on the node, which removes them at once."
            )
        ),
    )
}
