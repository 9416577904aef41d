//! Node ports that somebody else uses.

use std::ops::RangeInclusive;

use ferrovia_host::survey::sockets::ListeningSocket;

use super::super::facts::{Facts, NodePort};
use super::super::finding::{Area, Finding, In};
use super::some_of;

const PORTS: In = In(Area::Ports);
/// Processes that listen on a node port for us.
const OURS: [&str; 2] = ["ferrovia ", "kube-proxy "];

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    if facts.node_ports.is_empty() {
        return Vec::new();
    }
    let mut findings = listeners(facts);
    findings.extend(ephemeral(facts));
    if findings.is_empty() && facts.listeners.is_some() {
        let what = format!(
            "node ports looked at: {}; nobody else listens on one",
            facts.node_ports.len()
        );
        findings.push(PORTS.ok("ports/listeners", what));
    }
    findings
}

fn listeners(facts: &Facts) -> Vec<Finding> {
    let listeners = facts.listeners.as_deref().unwrap_or_default();
    let clashes = listeners.iter().filter_map(|listener| {
        let node_port = clash(facts, listener)?;
        let owner = facts.owners.get(&listener.inode);
        let owner = owner.map_or("somebody", String::as_str);
        (!OURS.iter().any(|ours| owner.starts_with(ours)))
            .then(|| finding(listener, node_port, owner))
    });
    let mut clashes: Vec<_> = clashes.collect();
    // One that listens in both families is told once.
    clashes.dedup_by(|a, b| a.what == b.what);
    clashes
}

fn clash<'f>(facts: &'f Facts, listener: &ListeningSocket) -> Option<&'f NodePort> {
    // What only loopback reaches is not reached by a node port.
    if listener.address.is_loopback() {
        return None;
    }
    let mut node_ports = facts.node_ports.iter();
    node_ports.find(|one| one.port == listener.port && one.protocol == listener.protocol)
}

fn finding(listener: &ListeningSocket, node_port: &NodePort, owner: &str) -> Finding {
    let NodePort {
        port,
        protocol,
        service,
    } = node_port;
    let at = if listener.address.is_unspecified() {
        "all addresses".to_owned()
    } else {
        listener.address.to_string()
    };
    PORTS.warning(
        "ports/listeners",
        format!("{owner} listens on port {port}/{protocol} of {at}, which is the node port of {service}"),
        "Connections to this port of the node go to the Service; the program is reached on 127.0.0.1 only, and may seem dead.",
        "Give the Service another nodePort, or let the program listen elsewhere.",
    )
}

fn ephemeral(facts: &Facts) -> Option<Finding> {
    let range = parse_range(facts.setting("net/ipv4/ip_local_port_range")?)?;
    let reserved = parse_list(
        facts
            .setting("net/ipv4/ip_local_reserved_ports")
            .unwrap_or_default(),
    );
    let mut open: Vec<u16> = facts
        .node_ports
        .iter()
        .map(|node_port| node_port.port)
        .filter(|port| range.contains(port) && !reserved.iter().any(|range| range.contains(port)))
        .collect();
    open.sort_unstable();
    open.dedup();
    if open.is_empty() {
        return None;
    }
    let ports: Vec<String> = open.iter().map(u16::to_string).collect();
    let (first, last) = (range.start(), range.end());
    Some(PORTS.warning(
        "ports/ephemeral",
        format!("node ports lie in the range that outgoing connections take theirs from ({first} to {last}): {}", some_of(&ports, 6)),
        "Now and then a connection of this node gets such a port, and its answers are taken for calls of the Service: it hangs, and nobody knows why.",
        "Reserve the range of node ports: sysctl -w net.ipv4.ip_local_reserved_ports=30000-32767 (or what --service-node-port-range says)",
    ))
}

fn parse_range(text: &str) -> Option<RangeInclusive<u16>> {
    let mut numbers = text.split_whitespace().map(str::parse);
    Some(numbers.next()?.ok()?..=numbers.next()?.ok()?)
}

/// `80,30000-32767`; what is no number is left out.
fn parse_list(text: &str) -> Vec<RangeInclusive<u16>> {
    let range = |item: &str| {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    text.split(',').filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use ferrovia_core::model::Protocol;

    use super::super::super::finding::Severity;
    use super::super::tests::found;
    use super::*;

    fn facts(port: u16, protocol: Protocol, address: &str) -> Facts {
        Facts {
            node_ports: vec![NodePort {
                port: 30080,
                protocol: Protocol::Tcp,
                service: "default/web:http".into(),
            }],
            listeners: Some(vec![ListeningSocket {
                protocol,
                address: address.parse::<IpAddr>().unwrap(),
                port,
                inode: 7,
            }]),
            owners: [(7, "nginx (pid 812)".to_owned())].into(),
            ..Facts::default()
        }
    }

    fn severity(facts: &Facts, name: &str) -> Option<Severity> {
        found(&check(facts), name).map(|finding| finding.severity)
    }

    #[test]
    fn a_listener_on_a_node_port_is_a_clash() {
        let name = "ports/listeners";
        let clashing = facts(30080, Protocol::Tcp, "0.0.0.0");
        assert_eq!(severity(&clashing, name), Some(Severity::Warning));
        let what = &check(&clashing)[0].what;
        assert!(
            what.contains("nginx (pid 812)") && what.contains("default/web:http"),
            "{what}"
        );
        assert_eq!(
            severity(&facts(30080, Protocol::Tcp, "::"), name),
            Some(Severity::Warning)
        );
        for harmless in [
            facts(30080, Protocol::Tcp, "127.0.0.1"),
            facts(30080, Protocol::Udp, "0.0.0.0"),
            facts(30081, Protocol::Tcp, "0.0.0.0"),
        ] {
            assert_eq!(severity(&harmless, name), Some(Severity::Ok));
        }
    }

    #[test]
    fn a_proxy_may_hold_a_node_port_open() {
        let mut facts = facts(30080, Protocol::Tcp, "0.0.0.0");
        facts.owners.insert(7, "ferrovia (pid 9)".into());
        assert_eq!(severity(&facts, "ports/listeners"), Some(Severity::Ok));
    }

    #[test]
    fn node_ports_among_those_of_outgoing_connections_have_to_be_reserved() {
        let name = "ports/ephemeral";
        let mut facts = facts(1, Protocol::Tcp, "0.0.0.0");
        facts
            .settings
            .insert("net/ipv4/ip_local_port_range", "32768\t60999".into());
        assert_eq!(severity(&facts, name), None);
        facts
            .settings
            .insert("net/ipv4/ip_local_port_range", "1024\t60999".into());
        assert_eq!(severity(&facts, name), Some(Severity::Warning));
        facts.settings.insert(
            "net/ipv4/ip_local_reserved_ports",
            "8080,30000-32767".into(),
        );
        assert_eq!(severity(&facts, name), None);
        facts
            .settings
            .insert("net/ipv4/ip_local_port_range", "nonsense".into());
        assert_eq!(severity(&facts, name), None);
    }
}
