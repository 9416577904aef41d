//! How to switch, and how to go back. The switch is a start in another mode; nothing here does it.

use super::From;
use crate::inspect::wrap::hanging;

/// The steps, as text.
pub fn steps(from: From) -> String {
    let old = from.name();
    let removed = match from {
        From::Iptables => {
            "It then removes kube-proxy's iptables chains, in both of the kernel's rulesets."
        }
        From::Ipvs => {
            "It then removes the old mode's virtual servers, the device kube-ipvs0, sets and chains, as soon as no connection goes through them, and after an hour at the latest."
        }
    };
    let steps = [
        format!(
            "See what would change, and mend it first: `ferrovia migrate --from {old} --to nftables --check --config FILE` and `ferrovia doctor --config FILE`."
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
