//! How to switch, and how to go back. The switch is a start in another mode; nothing here does it.

use super::From;
use crate::doctor::text::hanging;

/// The steps, as text.
pub fn steps(from: From) -> String {
    let old = from.name();
    let removed = match from {
        From::Iptables => {
            "It then removes kube-proxy's iptables chains, in both of the kernel's rulesets."
        }
        From::Ipvs => {
            "It then removes kube-proxy's iptables chains. Virtual servers and the device kube-ipvs0 stay: see step 5."
        }
    };
    let steps = [
        format!(
            "See what would change, and mend it first: `ferrovia migrate --from {old} --to nftables --check --config FILE` and `ferrovia doctor --config FILE`."
        ),
        "Set mode: nftables in the configuration (kubectl -n kube-system edit configmap kube-proxy), and what step 1 asked for.".to_owned(),
        format!(
            "Restart the proxy on one node: delete its pod. It writes all its rules in one transaction; until then the old ones are in force. {removed} Open connections go on: connection tracking keeps where each was sent."
        ),
        "Look whether all is well (`ferrovia doctor --config FILE`), then go on with the next node.".to_owned(),
    ];
    let ipvs = "Remove what is left of ipvs, if nobody else uses it: `ip link delete kube-ipvs0; ipvsadm --clear`.".to_owned();
    let last = (from == From::Ipvs).then_some(ipvs);
    let numbered = steps.into_iter().chain(last).enumerate();
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
                "To go back, set mode: {old} again and restart the proxy. It removes our nftables tables once its own rules are in force. Should the proxy itself not start, `ferrovia cleanup` removes our rules at once."
            )
        ),
    )
}
