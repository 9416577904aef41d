//! Packets that are too large for where they have to go.

use ferrovia_host::survey::links::Link;

use super::super::facts::Facts;
use super::super::finding::{Area, Finding, In};
use super::some_of;

const INTERFACES: In = In(Area::Interfaces);
/// Bytes that tunnels add to each packet, at least.
const TUNNELS: [(&str, u32); 8] = [
    ("vxlan", 50),
    ("geneve", 50),
    ("ipip", 20),
    ("sit", 20),
    ("ip6tnl", 40),
    ("gre", 24),
    ("gretap", 38),
    ("wireguard", 60),
];

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let Some(smallest) = smallest_uplink(facts) else {
        return Vec::new();
    };
    let findings = [
        tunnels(facts, smallest),
        pods(facts, smallest),
        mixed(facts),
    ];
    let mut findings: Vec<_> = findings.into_iter().flatten().collect();
    if findings.is_empty() {
        findings.push(INTERFACES.ok("interfaces/mtu", "packets of pods fit through the way out"));
    }
    findings
}

/// The interface with default routes that takes the smallest packets.
fn smallest_uplink(facts: &Facts) -> Option<&Link> {
    let uplinks = facts.links.iter();
    uplinks
        .filter(|link| facts.uplinks.contains(&link.name) && link.mtu > 0)
        .min_by_key(|link| link.mtu)
}

fn overhead(link: &Link) -> Option<u32> {
    let known = TUNNELS.iter().find(|(kind, _)| *kind == link.kind);
    known.map(|(_, bytes)| *bytes)
}

/// The kernel makes fall-back devices of some kinds by itself, which are down.
fn is_tunnel(facts: &Facts, link: &Link) -> bool {
    link.is_up && overhead(link).is_some() && !facts.uplinks.contains(&link.name)
}

fn tunnels(facts: &Facts, uplink: &Link) -> Option<Finding> {
    let tunnels = facts.links.iter().filter(|link| is_tunnel(facts, link));
    let large: Vec<String> = tunnels
        .filter(|link| link.mtu + overhead(link).unwrap_or(0) > uplink.mtu)
        .map(|link| format!("{} ({}, {})", link.name, link.kind, link.mtu))
        .collect();
    (!large.is_empty()).then(|| {
        INTERFACES.warning(
            "interfaces/tunnel-mtu",
            format!("packets through {} do not fit through {} ({}) once they are wrapped", some_of(&large, 3), uplink.name, uplink.mtu),
            "Small requests work and large answers hang: what does not fit is cut in pieces, or dropped where that is forbidden.",
            "Give the network plugin an MTU that leaves room for its header: 50 bytes less than the way out for VXLAN, 20 for IP in IP, 60 for WireGuard.",
        )
    })
}

fn pods(facts: &Facts, uplink: &Link) -> Option<Finding> {
    let tunnels = facts.links.iter().filter(|link| is_tunnel(facts, link));
    let narrowest = tunnels
        .chain([uplink])
        .min_by_key(|link| link.mtu)
        .unwrap_or(uplink);
    let large: Vec<String> = pod_links(facts)
        .filter(|link| link.mtu > narrowest.mtu)
        .map(|link| format!("{} ({})", link.name, link.mtu))
        .collect();
    (!large.is_empty()).then(|| {
        INTERFACES.warning(
            "interfaces/pod-mtu",
            format!("pods send larger packets than {} ({}) takes: {}", narrowest.name, narrowest.mtu, some_of(&large, 3)),
            "Connections to endpoints on other nodes open and then hang with the first large packet, where messages that it was too large are lost.",
            "Set the network plugin's MTU to that of the way out, or less.",
        )
    })
}

fn mixed(facts: &Facts) -> Option<Finding> {
    let mut sizes: Vec<u32> = pod_links(facts).map(|link| link.mtu).collect();
    sizes.sort_unstable();
    sizes.dedup();
    (sizes.len() > 1).then(|| {
        let sizes: Vec<String> = sizes.iter().map(u32::to_string).collect();
        INTERFACES.note(
            "interfaces/mixed-mtu",
            format!("pods' interfaces take packets of different sizes: {}", some_of(&sizes, 4)),
            "Older pods keep the MTU they were born with; between pods of different ones large packets may be lost.",
            "Restart the pods that were made before the network plugin's MTU changed.",
        )
    })
}

fn pod_links(facts: &Facts) -> impl Iterator<Item = &Link> {
    let links = facts.links.iter();
    links.filter(|link| link.is_up && link.kind == "veth" && !facts.uplinks.contains(&link.name))
}

#[cfg(test)]
mod tests {
    use super::super::super::finding::Severity;
    use super::super::tests::found;
    use super::*;

    fn facts(links: &[(&str, &str, u32)]) -> Facts {
        let link = |(name, kind, mtu): &(&str, &str, u32)| Link {
            name: (*name).to_owned(),
            kind: (*kind).to_owned(),
            mtu: *mtu,
            is_up: true,
            is_loopback: false,
            has_master: false,
        };
        Facts {
            links: links.iter().map(link).collect(),
            uplinks: ["eth0".to_owned()].into(),
            ..Facts::default()
        }
    }

    fn severity(links: &[(&str, &str, u32)], name: &str) -> Option<Severity> {
        found(&check(&facts(links)), name).map(|finding| finding.severity)
    }

    #[test]
    fn a_tunnel_needs_room_for_its_header() {
        let name = "interfaces/tunnel-mtu";
        let of = |mtu| severity(&[("eth0", "", 1500), ("flannel.1", "vxlan", mtu)], name);
        assert_eq!(of(1450), None);
        assert_eq!(of(1500), Some(Severity::Warning));
    }

    #[test]
    fn pods_must_not_send_more_than_fits() {
        let name = "interfaces/pod-mtu";
        let of = |mtu| {
            severity(
                &[
                    ("eth0", "", 1500),
                    ("flannel.1", "vxlan", 1450),
                    ("veth1", "veth", mtu),
                ],
                name,
            )
        };
        assert_eq!(of(1450), None);
        assert_eq!(of(1500), Some(Severity::Warning));
        let jumbo = [("eth0", "", 1400), ("veth1", "veth", 1500)];
        assert_eq!(severity(&jumbo, name), Some(Severity::Warning));
    }

    #[test]
    fn different_sizes_are_worth_a_word() {
        let name = "interfaces/mixed-mtu";
        let links = [
            ("eth0", "", 9000),
            ("veth1", "veth", 1500),
            ("veth2", "veth", 1450),
        ];
        assert_eq!(severity(&links, name), Some(Severity::Note));
        assert_eq!(severity(&links[..2], name), None);
    }

    #[test]
    fn without_a_way_out_nothing_can_be_compared() {
        let mut facts = facts(&[("veth1", "veth", 1500)]);
        assert_eq!(check(&facts), []);
        facts.uplinks.clear();
        assert_eq!(check(&facts), []);
    }

    #[test]
    fn a_node_in_a_container_has_a_veth_for_its_way_out() {
        assert_eq!(
            severity(&[("eth0", "veth", 1500)], "interfaces/mtu"),
            Some(Severity::Ok)
        );
    }
}
