//! The commands, in the syntax of `ip -batch`, and the kernel settings that set up the hosts of [`crate::layout`].
//!
//! Links have no subnets of their own: routes are written out one by one, with their source
//! address, so that a source address never depends on the link a packet takes.
//!
//! Everything here is a pure function that returns text; [`crate::world`] executes it through [`crate::iproute`].

use crate::layout::{Pod, Role};

/// Kernel settings, below `/proc/sys/net`, of every namespace. They are written before there are
/// links, because a link takes the `default` values when it is made.
pub(crate) const SYSCTLS: [(&str, &str); 10] = [
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    // When pods share a bridge, packets leave by the link they arrived on; an ICMP redirect would
    // make them bypass the node.
    ("ipv4/conf/all/send_redirects", "0"),
    ("ipv4/conf/default/send_redirects", "0"),
    ("ipv6/conf/default/accept_redirects", "0"),
    // Addresses must work at once, without a second of duplicate address detection.
    ("ipv6/conf/all/accept_dad", "0"),
    ("ipv6/conf/default/accept_dad", "0"),
    // Rejections are ICMP messages. The kernel limits their rate, and the rest would look like drops.
    ("ipv4/icmp_ratelimit", "0"),
    ("ipv4/icmp_ratemask", "0"),
    ("ipv6/icmp/ratelimit", "0"),
];

/// Kernel settings of the nodes only: a pod or the outside must not forward packets that reach it by mistake.
pub(crate) const SYSCTLS_OF_NODES: [(&str, &str); 2] =
    [("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1")];

/// A limit of all ICMP messages, which only some kernels have per namespace.
pub(crate) const SYSCTLS_IF_THERE: [(&str, &str); 2] = [
    ("ipv4/icmp_msgs_burst", "1000000"),
    ("ipv4/icmp_msgs_per_sec", "1000000"),
];

/// The links, as lines for `ip -batch`; `name` gives a role's namespace.
///
/// The order matters in the node: where a link has no address, the kernel masquerades with the
/// first one it finds in the order of creation, which must be that of `eth0`.
pub(crate) fn links(name: impl Fn(Role) -> String) -> String {
    let pair = |a: Role, a_link: &str, b: Role, b_link: &str| {
        let (a, b) = (name(a), name(b));
        format!("link add {a_link} netns {a} type veth peer name {b_link} netns {b}\n")
    };
    let mut lines = pair(Role::Node, "eth0", Role::Outside, "eth0");
    lines += &pair(Role::Node, "eth1", Role::Node2, "eth0");
    lines += &pair(Role::Node, "uplink", Role::Outside, "sink");
    lines += &pair(Role::Node2, "eth1", Role::Far, "eth0");
    for pod in Pod::LOCAL {
        lines += &pair(Role::Node, &veth(pod), pod.role(), "eth0");
    }
    lines
}

/// Addresses and routes of one namespace, as lines for `ip -batch`.
pub(crate) fn configuration(role: Role, bridge: bool) -> String {
    let lines = match role {
        Role::Node => node(bridge),
        Role::Node2 => NODE2.to_owned(),
        Role::Far => far(),
        Role::Outside => OUTSIDE.to_owned(),
        Role::PodA => local_pod(Pod::A, bridge),
        Role::PodB => local_pod(Pod::B, bridge),
        Role::PodC => local_pod(Pod::C, bridge),
        Role::PodD => local_pod(Pod::D, bridge),
    };
    format!("link set lo up\n{lines}")
}

/// The links of a namespace that have a peer.
pub(crate) fn links_of(role: Role) -> Vec<String> {
    let fixed: &[&str] = match role {
        Role::Node => &["eth0", "eth1", "uplink"],
        Role::Node2 => &["eth0", "eth1"],
        Role::Outside => &["eth0", "sink"],
        _ => &["eth0"],
    };
    let pods = Pod::LOCAL.into_iter().filter(|_| role == Role::Node);
    let fixed = fixed.iter().map(|&link| link.to_owned());
    fixed.chain(pods.map(veth)).collect()
}

/// The node without its pods.
///
/// Unknown destinations go to `uplink`, to a neighbour that does not exist behind a link that is
/// up: they pass every hook of a forwarded packet and are then dropped. If they were routed back to
/// their source, the client could not distinguish a rejected packet from a lost one.
///
/// The second IPv6 address is deprecated so that it is never chosen as a source; the second IPv4
/// address is a secondary one, which is never chosen.
const NODE: &str = "\
link set eth0 up
link set eth1 up
link set uplink up
addr add 198.51.100.10/24 dev eth0
addr add 198.51.100.11/24 dev eth0
addr add 2001:db8:51::10/64 dev eth0 nodad
addr add 2001:db8:51::11/64 dev eth0 nodad preferred_lft 0
addr add fe80::1/64 dev eth0 nodad
addr add fe80::1/64 dev eth1 nodad
route add 192.0.2.0/24 dev eth0 src 198.51.100.10
route add 203.0.113.200/32 dev eth0 src 198.51.100.10
route add 2001:db8:2::/64 via fe80::2 dev eth0 src 2001:db8:51::10
route add 2001:db8:113::200/128 via fe80::2 dev eth0 src 2001:db8:51::10
route add 198.51.100.20/32 dev eth1 src 198.51.100.10
route add 2001:db8:51::20/128 via fe80::2 dev eth1 src 2001:db8:51::10
route add 10.244.2.0/24 via 198.51.100.20 dev eth1 src 198.51.100.10
route add fd00:10:244:2::/64 via fe80::2 dev eth1 src 2001:db8:51::10
neigh add 169.254.1.1 lladdr 02:00:00:00:00:01 dev uplink nud permanent
neigh add fe80::9 lladdr 02:00:00:00:00:01 dev uplink nud permanent
route add default via 169.254.1.1 dev uplink onlink src 198.51.100.10
route add default via fe80::9 dev uplink src 2001:db8:51::10
";

const NODE2: &str = "\
link set eth0 up
link set eth1 up
addr add 198.51.100.20/32 dev eth0
addr add 2001:db8:51::20/128 dev eth0 nodad
addr add fe80::2/64 dev eth0 nodad
addr add fe80::1/64 dev eth1 nodad
route add default via 198.51.100.10 dev eth0 onlink
route add default via fe80::1 dev eth0 src 2001:db8:51::20
route add 10.244.2.0/24 dev eth1 src 198.51.100.20
route add fd00:10:244:2::/64 dev eth1 src 2001:db8:51::20
";

/// Routes everything to the node: cluster IPs, VIPs and pods, too.
const OUTSIDE: &str = "\
link set eth0 up
link set sink up
addr add 192.0.2.9/32 dev eth0
addr add 192.0.2.77/32 dev eth0
addr add 203.0.113.200/32 dev eth0
addr add 2001:db8:2::9/128 dev eth0 nodad
addr add 2001:db8:2::77/128 dev eth0 nodad preferred_lft 0
addr add 2001:db8:113::200/128 dev eth0 nodad preferred_lft 0
addr add fe80::2/64 dev eth0 nodad
route add default via 198.51.100.10 dev eth0 onlink src 192.0.2.9
route add default via fe80::1 dev eth0 src 2001:db8:2::9
";

fn node(bridge: bool) -> String {
    let mut lines = NODE.to_owned();
    if bridge {
        lines += "link add cbr0 type bridge\n\
            link set cbr0 up\n\
            addr add 10.244.1.1/24 dev cbr0\n\
            addr add fd00:10:244:1::1/64 dev cbr0 nodad\n\
            addr add fe80::1/64 dev cbr0 nodad\n";
    }
    for pod in Pod::LOCAL {
        let veth = veth(pod);
        if bridge {
            // Bridges of clusters run in hairpin mode: with bridge netfilter, a pod that reaches
            // itself through a service leaves by the port it came in on.
            lines += &format!(
                "link set {veth} master cbr0\n\
                link set {veth} type bridge_slave hairpin on\n\
                link set {veth} up\n"
            );
        } else {
            lines += &format!(
                "link set {veth} up\n\
                addr add fe80::1/64 dev {veth} nodad\n\
                route add {}/32 dev {veth} src 198.51.100.10\n\
                route add {}/128 dev {veth} src 2001:db8:51::10\n",
                pod.v4(),
                pod.v6()
            );
        }
    }
    lines
}

fn local_pod(pod: Pod, bridge: bool) -> String {
    // The node answers ARP for any of its addresses on any of its links.
    let gateway = if bridge {
        "10.244.1.1"
    } else {
        "198.51.100.10"
    };
    pod_lines(&[pod], gateway)
}

fn far() -> String {
    pod_lines(&Pod::REMOTE, "198.51.100.20")
}

/// Host addresses and only a default route, so that traffic between pods passes a node.
fn pod_lines(pods: &[Pod], gateway: &str) -> String {
    let mut lines = "link set eth0 up\n".to_owned();
    for pod in pods {
        lines += &format!(
            "addr add {}/32 dev eth0\naddr add {}/128 dev eth0 nodad\n",
            pod.v4(),
            pod.v6()
        );
    }
    lines += &format!("route add default via {gateway} dev eth0 onlink\n");
    lines += "route add default via fe80::1 dev eth0\n";
    lines
}

/// The node's end of a local pod's link.
fn veth(pod: Pod) -> String {
    pod.name().replace("pod", "veth")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_link_of_the_node_is_eth0() {
        let links = links(|role| format!("fv-{}", role.name()));
        let first = links
            .lines()
            .find(|line| line.contains("netns fv-node "))
            .unwrap();
        assert!(first.starts_with("link add eth0 netns fv-node "), "{first}");
    }

    #[test]
    fn local_pods_are_routed_or_bridged() {
        let routed = configuration(Role::Node, false);
        assert!(routed.contains("route add 10.244.1.13/32 dev veth-d"));
        assert!(!routed.contains("cbr0"));
        let bridged = configuration(Role::Node, true);
        assert!(bridged.contains("link set veth-d master cbr0"));
        assert!(!bridged.contains("/32 dev veth-d"));
    }
}
