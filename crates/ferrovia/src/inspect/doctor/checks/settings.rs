//! Kernel settings that services depend on.

use ferrovia_core::family::Family;

use super::super::facts::Facts;
use super::super::finding::{Area, Finding, In, Severity};
use super::some_of;

const SETTINGS: In = In(Area::Settings);
/// The device that holds the addresses of Services in ipvs mode.
pub(super) const SERVICE_DEVICE: &str = "kube-ipvs0";
/// The value of `rp_filter` that only takes packets by the way that answers would go.
const STRICT: &str = "1";
/// From so many packets on, it is worth a word that conntrack could not place them.
const MANY_INVALID: u64 = 1000;

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let findings = [
        forwarding(facts),
        ipv6_forwarding(facts),
        router_announcements(facts),
        reverse_path(facts),
        route_localnet(facts),
        bridge(facts),
        arp(facts),
        invalid(facts),
        helpers(facts),
    ];
    findings.into_iter().flatten().collect()
}

fn forwarding(facts: &Facts) -> Option<Finding> {
    let check = "settings/ip-forward";
    Some(match facts.setting("net/ipv4/ip_forward")? {
        "0" => SETTINGS.problem(
            check,
            "IPv4 packets are not forwarded (net.ipv4.ip_forward is 0)",
            "Connections of pods, and from outside to node ports, go no further than this node.",
            "sysctl -w net.ipv4.ip_forward=1, and keep it in /etc/sysctl.d",
        ),
        _ => SETTINGS.ok(check, "IPv4 packets are forwarded"),
    })
}

fn ipv6_forwarding(facts: &Facts) -> Option<Finding> {
    let check = "settings/ipv6-forwarding";
    if !facts.families.contains(&Family::V6) {
        return None;
    }
    let severity = if facts.uses_ipv6 {
        Severity::Warning
    } else {
        Severity::Note
    };
    Some(match facts.setting("net/ipv6/conf/all/forwarding")? {
        "0" => SETTINGS.finding(
            severity,
            check,
            "IPv6 packets are not forwarded (net.ipv6.conf.all.forwarding is 0)",
            "Services with an IPv6 address work only from this node to itself.",
            "If the cluster has IPv6: sysctl -w net.ipv6.conf.all.forwarding=1, and keep it in /etc/sysctl.d",
        ),
        _ => SETTINGS.ok(check, "IPv6 packets are forwarded"),
    })
}

/// A node that forwards does not listen to routers unless it is told to with a 2.
fn router_announcements(facts: &Facts) -> Option<Finding> {
    if !facts.uses_ipv6 || facts.setting("net/ipv6/conf/all/forwarding")? == "0" {
        return None;
    }
    let deaf: Vec<&str> = facts
        .accept_ra
        .iter()
        .filter(|(_, value)| value == "1")
        .map(|(interface, _)| interface.as_str())
        .collect();
    let first = deaf.first()?;
    Some(SETTINGS.note(
        "settings/accept-ra",
        format!("{} no longer takes IPv6 routes from routers", some_of(&deaf, 3)),
        "With forwarding on, accept_ra=1 means no; if the default route came that way it goes when it expires.",
        format!("If it did: sysctl -w net.ipv6.conf.{first}.accept_ra=2"),
    ))
}

/// Strict only hurts where an answer may go by another way than the question came.
fn reverse_path(facts: &Facts) -> Option<Finding> {
    let check = "settings/rp-filter";
    let value_of = |name: &str| {
        let mut all = facts.rp_filter.iter();
        all.find(|(interface, _)| interface == name)
            .map_or("0", |(_, value)| value.as_str())
    };
    let strict: Vec<&str> = facts
        .uplinks
        .iter()
        .map(String::as_str)
        // The kernel takes the greater of the two.
        .filter(|uplink| value_of(uplink).max(value_of("all")) == STRICT)
        .collect();
    if facts.uplinks.len() < 2 || strict.is_empty() {
        return None;
    }
    Some(SETTINGS.warning(
        check,
        format!(
            "{} only take packets from where answers would go (rp_filter is 1), and there are {} ways out",
            some_of(&strict, 3),
            facts.uplinks.len()
        ),
        "Packets to node ports and load balancers' addresses that come in by one way and whose answers leave by another are dropped without a word.",
        "sysctl -w net.ipv4.conf.all.rp_filter=2, which only asks that there is a way back at all",
    ))
}

fn route_localnet(facts: &Facts) -> Option<Finding> {
    let check = "settings/route-localnet";
    let interfaces = &facts.localnet_routed;
    if interfaces.is_empty() {
        return None;
    }
    // The plugin sets it for the interfaces that lead to pods, never for all.
    if facts.has_portmap && !interfaces.iter().any(|name| name == "all") {
        return Some(SETTINGS.note(
            check,
            format!(
                "packets to 127.0.0.0/8 are routed on {} (route_localnet is 1)",
                some_of(interfaces, 3)
            ),
            "The CNI plugin portmap, whose rules are here (CNI-HOSTPORT), sets this so that host ports of pods answer on 127.0.0.1.",
            "Nothing, as long as host ports are used on 127.0.0.1. Else see the plugin's option snat.",
        ));
    }
    let what = format!(
        "packets to 127.0.0.0/8 are routed (route_localnet is 1 for {})",
        some_of(interfaces, 3)
    );
    let mode = facts.mode.map(|mode| mode.properties());
    Some(if mode.is_some_and(|mode| mode.sets_route_localnet) {
        SETTINGS.note(
            check,
            what,
            "The iptables mode needs this for node ports on 127.0.0.1, and has a rule that keeps neighbours out.",
            "If nobody uses node ports on 127.0.0.1, set iptables.localhostNodePorts: false and the setting to 0.",
        )
    } else {
        SETTINGS.warning(
            check,
            what,
            "A neighbour on the same network can reach what listens on 127.0.0.1 only (CVE-2020-8558), unless a rule forbids it. The nftables mode neither needs nor sets it; an earlier kube-proxy may have.",
            format!("sysctl -w net.ipv4.conf.{}.route_localnet=0", interfaces[0]),
        )
    })
}

/// Without it, packets between pods on one bridge do not meet our rules.
fn bridge(facts: &Facts) -> Option<Finding> {
    let check = "settings/bridge-nf-call-iptables";
    let bridges: Vec<&str> = facts
        .links
        .iter()
        .filter(|link| link.kind == "bridge" && link.is_up)
        .map(|link| link.name.as_str())
        .collect();
    let has_pods = facts
        .links
        .iter()
        .any(|link| link.kind == "veth" && link.has_master);
    if bridges.is_empty() || !has_pods {
        return None;
    }
    let what = match facts.setting("net/bridge/bridge-nf-call-iptables") {
        Some("0") => "bridge-nf-call-iptables is 0",
        None => "br_netfilter is not loaded",
        Some(_) => {
            return Some(SETTINGS.ok(check, "packets between ports of a bridge meet the rules"));
        }
    };
    Some(SETTINGS.warning(
        check,
        format!("{what}, and there are pods on {}", some_of(&bridges, 3)),
        "If a pod calls a Service whose endpoint is on the same bridge, the answer goes straight back with the endpoint's address, and the pod does not know it.",
        "modprobe br_netfilter; sysctl -w net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1 (not needed if the bridge is not for pods)",
    ))
}

fn arp(facts: &Facts) -> Option<Finding> {
    facts
        .links
        .iter()
        .find(|link| link.name == SERVICE_DEVICE)?;
    let ignore = facts.setting("net/ipv4/conf/all/arp_ignore")?;
    let announce = facts.setting("net/ipv4/conf/all/arp_announce")?;
    if ignore != "0" && announce == "2" {
        return None;
    }
    Some(SETTINGS.warning(
        "settings/arp",
        format!("{SERVICE_DEVICE} holds addresses of Services, and this node answers ARP for them (arp_ignore is {ignore}, arp_announce is {announce})"),
        "On a network with MetalLB or the like every node claims every load balancer's address, and traffic goes to the wrong one.",
        "Set ipvs.strictARP: true. If the ipvs mode is not used any more, remove the device: ip link delete kube-ipvs0",
    ))
}

fn invalid(facts: &Facts) -> Option<Finding> {
    let invalid = facts.conntrack?.totals?.invalid;
    let is_strict = facts.setting("net/netfilter/nf_conntrack_tcp_be_liberal")? == "0";
    (is_strict && invalid >= MANY_INVALID).then(|| {
        SETTINGS.note(
            "settings/tcp-be-liberal",
            format!("{invalid} packets fitted into no connection, and conntrack is strict about TCP windows (tcp_be_liberal is 0)"),
            "Such packets are not translated. One that reaches a client under the endpoint's own address makes it reset the connection (\"connection reset by peer\"); the iptables mode drops them, which breaks routes that differ by direction.",
            "If clients see resets, set conntrack.tcpBeLiberal: true",
        )
    })
}

fn helpers(facts: &Facts) -> Option<Finding> {
    (facts.setting("net/netfilter/nf_conntrack_helper")? == "1").then(|| {
        SETTINGS.warning(
            "settings/conntrack-helper",
            "connection tracking looks into FTP, SIP and the like by itself (nf_conntrack_helper is 1)",
            "Anyone who can send packets of these protocols can open ways through the firewall, and helpers rewrite what they take for addresses.",
            "sysctl -w net.netfilter.nf_conntrack_helper=0, and assign helpers by rule where they are needed",
        )
    })
}

#[cfg(test)]
mod tests;
