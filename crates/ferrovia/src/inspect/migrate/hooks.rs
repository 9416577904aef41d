//! Rules of others that count on kube-proxy's chains.

use ferrovia_core::dialect::iptables::{SavedRule, SavedTable, parse};

use super::{Change, Node};

/// What kube-proxy's own jumps from built-in chains have in their comment.
const OWN_COMMENT: &str = "kubernetes ";
/// The chains that stay: the kubelet's.
const KUBELET: [&str; 4] = [
    "KUBE-FIREWALL",
    "KUBE-MARK-DROP",
    "KUBE-IPTABLES-HINT",
    "KUBE-KUBELET-CANARY",
];
/// How much of a rule is shown, and how many rules.
const LONGEST: usize = 120;
const MOST: usize = 5;

pub(super) fn changes(node: &Node<'_>) -> Vec<Change> {
    let rules = &node.evidence.hooks;
    if rules.is_empty() {
        return Vec::new();
    }
    let shown: Vec<_> = rules.iter().take(MOST).cloned().collect();
    let more = match rules.len().saturating_sub(MOST) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    vec![Change {
        change: "rules-of-others",
        setting: None,
        services: Vec::new(),
        what: format!(
            "Rules of others use kube-proxy's chains, which go or become empty, and have no effect then: {}{more}.",
            shown.join("; ")
        ),
        remedy: "Find out who wrote them (a CNI plugin's portmap with externalSetMarkChain, a script) and let it masquerade by itself, or use a chain of its own.".to_owned(),
    }]
}

/// The rules of a saved ruleset that lead from foreign chains into kube-proxy's, or out of them.
pub(super) fn hooks(tool: &str, save: &str) -> Vec<String> {
    let tables = parse(save);
    let hooked = tables.iter().flat_map(|table| {
        let rules = table.rules.iter().filter(|rule| is_hook(table, rule));
        rules.map(|rule| shown(tool, table, rule))
    });
    hooked.collect()
}

fn is_hook(table: &SavedTable<'_>, rule: &SavedRule<'_>) -> bool {
    if is_proxys(rule.chain) {
        // A foreign chain that a rule in kube-proxy's own leads to.
        let is_chain = |target: &str| {
            let mut chains = table.chains.iter();
            chains.any(|chain| !chain.built_in && chain.name == target)
        };
        return rule
            .targets()
            .any(|target| !target.starts_with("KUBE-") && is_chain(&target));
    }
    let leads_in = rule.targets().any(|target| is_proxys(&target));
    leads_in && !rule.args.contains(OWN_COMMENT)
}

fn is_proxys(chain: &str) -> bool {
    let is_routers = ["KUBE-ROUTER-", "KUBE-NWPLCY-", "KUBE-POD-FW-"]
        .iter()
        .any(|prefix| chain.starts_with(prefix));
    chain.starts_with("KUBE-") && !is_routers && !KUBELET.contains(&chain)
}

fn shown(tool: &str, table: &SavedTable<'_>, rule: &SavedRule<'_>) -> String {
    let text = format!("{tool} -t {} -A {} {}", table.name, rule.chain, rule.args);
    let safe = |c: char| if c.is_control() { '?' } else { c };
    let mut cut: String = text.chars().take(LONGEST).map(safe).collect();
    if text.chars().count() > LONGEST {
        cut.push('…');
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rules_of_others_count() {
        let save = "\
*nat
:PREROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-SVC-X - [0:0]
:CNI-HOSTPORT-SETMARK - [0:0]
:LOGGED - [0:0]
-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A CNI-HOSTPORT-SETMARK -j KUBE-MARK-MASQ
-A KUBE-SERVICES -d 10.96.0.1/32 -j KUBE-SVC-X
-A KUBE-SVC-X -j LOGGED
-A KUBE-SVC-X -m comment --comment -j -j LOGGED
-A KUBE-SVC-X -j DNAT --to-destination 10.0.0.1:80
COMMIT
*filter
:INPUT ACCEPT [0:0]
:KUBE-FIREWALL - [0:0]
:KUBE-ROUTER-INPUT - [0:0]
-A INPUT -j KUBE-FIREWALL
-A INPUT -j KUBE-ROUTER-INPUT
COMMIT
";
        assert_eq!(
            hooks("iptables-nft", save),
            [
                "iptables-nft -t nat -A CNI-HOSTPORT-SETMARK -j KUBE-MARK-MASQ",
                "iptables-nft -t nat -A KUBE-SVC-X -j LOGGED",
                "iptables-nft -t nat -A KUBE-SVC-X -m comment --comment -j -j LOGGED",
            ]
        );
    }
}
