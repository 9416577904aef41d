//! How to switch, and how to go back. The switch is a start in another mode; nothing here does it.

use super::From;

/// The steps, as text.
pub fn steps(from: From) -> String {
    let old = from.name();
    let takeover = match from {
        From::Iptables => {
            "When its rules are in force it removes kube-proxy's iptables chains, in both of the kernel's rulesets."
        }
        From::Ipvs => {
            "When its rules are in force it removes kube-proxy's iptables chains. Virtual servers and the device kube-ipvs0 stay: see step 5."
        }
    };
    let ipvs = match from {
        From::Iptables => "",
        From::Ipvs => {
            "\n5. Remove what is left of ipvs, if nobody else uses it:\n     \
             ip link delete kube-ipvs0; ipvsadm --clear\n"
        }
    };
    format!(
        "\
The switch from {old} to nftables is a restart with another mode; this command changes nothing.

1. See what would change, and mend it first:
     ferrovia migrate --from {old} --to nftables --check --config FILE
     ferrovia doctor --config FILE
2. Set mode: nftables in the configuration (kubectl -n kube-system edit configmap kube-proxy), and what step 1
   asked for.
3. Restart the proxy on one node: delete its pod. It writes all its rules in one transaction; until then the old
   ones are in force. {takeover}
   Open connections go on: connection tracking keeps where each was sent.
4. Look whether all is well, then go on with the next node:
     ferrovia doctor --config FILE
{ipvs}
To go back: set mode: {old} again and restart the proxy. It removes our nftables tables once its own rules are in
force. Should the proxy itself not start, `ferrovia cleanup` removes our rules at once.
"
    )
}
