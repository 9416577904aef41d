//! `ferrovia counters` against connections that the test has counted itself.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

use ferrovia_lab::client::{Caller, PATIENCE};
use ferrovia_lab::daemon::TestNode;
use ferrovia_lab::daemon::manifests::{service, web};
use ferrovia_lab::waiting::wait;
use ferrovia_lab::{ClientHost, Outcome, Pod, Protocol, Role};

use crate::FERROVIA;

/// Counts by what they are of, as the command prints it.
pub(crate) type Counts = BTreeMap<String, u64>;

/// How often each place calls each address.
const CALLS: u64 = 6;

/// What the command says.
fn listing(node: &TestNode, name: &str) -> String {
    let output = node.ferrovia().args(["counters", name]).output();
    let output = output.expect("ferrovia can be started");
    let text = String::from_utf8(output.stdout).expect("it writes text");
    assert!(output.status.success(), "{text}");
    text
}

/// What it says of a service in one family: counts of frontends and of endpoints.
pub(crate) fn counts(node: &TestNode, name: &str, family: &str) -> Counts {
    let text = listing(node, name);
    let title = format!("{name} ({family})");
    let lines = text.lines().skip_while(|line| *line != title).skip(1);
    let counts: Counts = lines
        .take_while(|line| line.starts_with(' '))
        .map(count_in)
        .collect();
    assert!(!counts.is_empty(), "no {title:?} in\n{text}");
    counts
}

/// `  10.96.0.10:80/tcp    124  connections`: the label, and the first number that stands alone behind it.
fn count_in(line: &str) -> (String, u64) {
    let line = line.trim();
    let (label, rest) = line.split_once("  ").unwrap_or_else(|| {
        // A long label leaves one space.
        line.rsplit_once(' ')
            .unwrap_or_else(|| panic!("no count in {line:?}"))
    });
    let count = rest.split_whitespace().next().and_then(|n| n.parse().ok());
    let count = count.unwrap_or_else(|| panic!("no count in {line:?}"));
    (label.trim_start_matches("→ ").to_owned(), count)
}

/// Calls some times; adds what must be counted to `counts`, under the frontend's label and the endpoint that answered.
pub(crate) fn call(
    node: &TestNode,
    from: ClientHost,
    to: &str,
    protocol: Protocol,
    label: &str,
    counts: &mut Counts,
) {
    let to: SocketAddr = to.parse().expect("an address and port");
    let caller = Caller::enter(&node.world, from.role()).expect("the place can be entered");
    for _ in 0..CALLS {
        let outcome = caller.connect(protocol, from.source(to.ip()), to, PATIENCE);
        let Outcome::Answer(answer) = outcome else {
            panic!("{from} > {to}: {outcome}");
        };
        *counts.entry(label.to_owned()).or_default() += 1;
        *counts.entry(answer.endpoint.to_string()).or_default() += 1;
    }
}

const FRONTENDS: &str = r#"
kind: Service
metadata: { name: mixed }
spec:
  type: LoadBalancer
  clusterIPs: [10.96.0.20, "fd00:10:96::20"]
  clusterIP: 10.96.0.20
  ipFamilies: [IPv4, IPv6]
  ports:
  - { name: t, port: 80, nodePort: 30080, targetPort: 8080 }
  - { name: u, port: 80, protocol: UDP, targetPort: 8080 }
  - { name: s, port: 80, protocol: SCTP, targetPort: 8080 }
status:
  loadBalancer: { ingress: [{ ip: 203.0.113.20 }, { ip: "2001:db8:113::20" }] }
---
kind: EndpointSlice
metadata: { name: mixed-4, labels: { kubernetes.io/service-name: mixed } }
addressType: IPv4
ports: [{ name: t, port: 8080 }, { name: u, port: 8080, protocol: UDP }, { name: s, port: 8080, protocol: SCTP }]
endpoints:
- { addresses: [10.244.1.10], nodeName: node-1 }
- { addresses: [10.244.2.10], nodeName: node-2 }
---
kind: EndpointSlice
metadata: { name: mixed-6, labels: { kubernetes.io/service-name: mixed } }
addressType: IPv6
ports: [{ name: t, port: 8080 }, { name: u, port: 8080, protocol: UDP }, { name: s, port: 8080, protocol: SCTP }]
endpoints:
- { addresses: ["fd00:10:244:1::10"], nodeName: node-1 }
- { addresses: ["fd00:10:244:2::10"], nodeName: node-2 }
"#;

#[test]
fn every_connection_is_counted_once_by_frontend_and_by_endpoint() {
    let node = TestNode::new(FERROVIA);
    node.write("mixed.yaml", FRONTENDS);
    node.start();
    let local = ClientHost::Pod(Pod::C);
    for (family, addresses) in [
        (
            "IPv4",
            [
                "10.96.0.20",
                "203.0.113.20",
                "198.51.100.10",
                "198.51.100.11",
            ],
        ),
        (
            "IPv6",
            [
                "[fd00:10:96::20]",
                "[2001:db8:113::20]",
                "[2001:db8:51::10]",
                "[2001:db8:51::11]",
            ],
        ),
    ] {
        let [cluster_ip, load_balancer, first, second] =
            addresses.map(|ip| move |port: u16| format!("{ip}:{port}"));
        let mut expected = Counts::new();
        let mut tcp = |from, to: &str, label: &str| {
            call(&node, from, to, Protocol::Tcp, label, &mut expected);
        };
        let (at, node_port) = (cluster_ip(80), "node port 30080/tcp");
        tcp(local, &at, &format!("{at}/tcp"));
        tcp(ClientHost::Node, &at, &format!("{at}/tcp"));
        tcp(ClientHost::Outside, &at, &format!("{at}/tcp"));
        tcp(ClientHost::Outside, &first(30080), node_port);
        tcp(ClientHost::Node, &first(30080), node_port);
        tcp(local, &second(30080), node_port);
        tcp(
            ClientHost::Outside,
            &load_balancer(80),
            &format!("{}/tcp", load_balancer(80)),
        );
        assert_eq!(
            counts(&node, "default/mixed:t", family),
            expected,
            "{family}"
        );

        for (protocol, port, word) in [(Protocol::Udp, "u", "udp"), (Protocol::Sctp, "s", "sctp")] {
            let mut expected = Counts::new();
            let label = format!("{at}/{word}");
            call(&node, local, &at, protocol, &label, &mut expected);
            let counts = counts(&node, &format!("default/mixed:{port}"), family);
            let used: Counts = counts.into_iter().filter(|(_, count)| *count > 0).collect();
            assert_eq!(used, expected, "{family} {word}");
        }
    }
}

/// An endpoint in the node's own network: packets to it are delivered and never leave.
#[test]
fn an_endpoint_on_the_node_itself_is_counted() {
    let node = TestNode::new(FERROVIA);
    let listeners: Vec<TcpListener> = {
        let _inside = node.world.enter(Role::Node).expect("it can be entered");
        ["198.51.100.10:9100", "[2001:db8:51::10]:9100"]
            .map(|at| TcpListener::bind(at).expect("the node has the address"))
            .into()
    };
    // The external address is the endpoint's own, so translating changes nothing.
    node.write(
        "host.yaml",
        r#"
kind: Service
metadata: { name: host }
spec:
  type: NodePort
  clusterIPs: [10.96.0.30, "fd00:10:96::30"]
  clusterIP: 10.96.0.30
  ipFamilies: [IPv4, IPv6]
  externalIPs: [198.51.100.10, "2001:db8:51::10"]
  ports: [{ port: 9100, nodePort: 30090 }]
---
kind: EndpointSlice
metadata: { name: host-4, labels: { kubernetes.io/service-name: host } }
addressType: IPv4
ports: [{ port: 9100 }]
endpoints: [{ addresses: [198.51.100.10], nodeName: node-1 }]
---
kind: EndpointSlice
metadata: { name: host-6, labels: { kubernetes.io/service-name: host } }
addressType: IPv6
ports: [{ port: 9100 }]
endpoints: [{ addresses: ["2001:db8:51::10"], nodeName: node-1 }]
"#,
    );
    node.start();
    for (family, cluster_ip, own) in [
        ("IPv4", "10.96.0.30", "198.51.100.10"),
        ("IPv6", "fd00:10:96::30", "2001:db8:51::10"),
    ] {
        let at = |ip: &str, port| SocketAddr::new(ip.parse::<IpAddr>().expect("an address"), port);
        let mut expected = Counts::new();
        for (place, to, label) in [
            (
                Role::PodC,
                at(cluster_ip, 9100),
                at(cluster_ip, 9100).to_string() + "/tcp",
            ),
            (
                Role::Node,
                at(cluster_ip, 9100),
                at(cluster_ip, 9100).to_string() + "/tcp",
            ),
            (
                Role::Outside,
                at(own, 30090),
                "node port 30090/tcp".to_owned(),
            ),
            (
                Role::Outside,
                at(own, 9100),
                at(own, 9100).to_string() + "/tcp",
            ),
        ] {
            let _inside = node.world.enter(place).expect("it can be entered");
            for _ in 0..CALLS {
                TcpStream::connect_timeout(&to, PATIENCE).expect("the node answers");
            }
            *expected.entry(label).or_default() += CALLS;
            *expected.entry(at(own, 9100).to_string()).or_default() += CALLS;
        }
        assert_eq!(counts(&node, "default/host", family), expected, "{family}");
    }
    drop(listeners);
}

#[test]
fn counts_outlive_slots_endpoints_and_the_daemon() {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["1.10", "1.11", "2.10"]));
    node.start();
    let mut expected = Counts::from([("node port 30080/tcp".to_owned(), 0)]);
    let calls = |expected: &mut Counts| {
        let (from, to) = (ClientHost::Pod(Pod::C), "10.96.0.10:80");
        for _ in 0..4 {
            call(
                &node,
                from,
                to,
                Protocol::Tcp,
                "10.96.0.10:80/tcp",
                expected,
            );
        }
    };
    calls(&mut expected);
    assert_eq!(counts(&node, "default/web", "IPv4"), expected);

    // The first goes: the last moves into its slot.
    node.write("web.yaml", &web(&["1.11", "2.10"]));
    wait(|| match listing(&node, "default/web") {
        text if text.contains("no longer an endpoint") => Ok(()),
        text => Err(text),
    });
    assert_eq!(counts(&node, "default/web", "IPv4"), expected);
    calls(&mut expected);
    assert_eq!(counts(&node, "default/web", "IPv4"), expected);

    // And nothing is forgotten by a restart.
    node.stop(libc::SIGKILL);
    node.start();
    assert_eq!(counts(&node, "default/web", "IPv4"), expected);
    calls(&mut expected);
    assert_eq!(counts(&node, "default/web", "IPv4"), expected);
}

/// The first chain that translates a source is the last to see the packet, and a network plugin's may be that one.
#[test]
fn counts_connections_that_a_network_plugin_masquerades() {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["2.10"]));
    node.start();
    // Of chains with the same priority, the one made last comes first.
    node.feed(
        "nft",
        &["-f", "-"],
        "table ip plugin { chain post { type nat hook postrouting priority 100; masquerade; }; }",
    );
    let mut expected = Counts::from([("node port 30080/tcp".to_owned(), 0)]);
    let (from, to) = (ClientHost::Pod(Pod::C), "10.96.0.10:80");
    call(
        &node,
        from,
        to,
        Protocol::Tcp,
        "10.96.0.10:80/tcp",
        &mut expected,
    );
    assert_eq!(counts(&node, "default/web", "IPv4"), expected);
}

#[test]
fn refusals_are_counted_by_packets() {
    let node = TestNode::new(FERROVIA);
    node.write("empty.yaml", &service("empty", 11, 30081, &[]));
    node.start();
    node.expect("pod-c > 10.96.0.11:80 => refused\noutside > 198.51.100.10:30081 => refused");
    let counts = counts(&node, "default/empty", "IPv4");
    assert!(counts["10.96.0.11:80/tcp"] >= 1, "{counts:?}");
    assert!(counts["node port 30081/tcp"] >= 1, "{counts:?}");
}

#[test]
fn lists_services_without_counters() {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["2.10"]));
    let output = node.once_with(&["--no-counters"]);
    assert!(output.status.success(), "{output:?}");
    node.expect("pod-c > 10.96.0.10:80 => 10.244.2.10:8080");
    let first = counts(&node, "default/web", "IPv4");
    assert_eq!(first["10.96.0.10:80/tcp"], 0);
    assert_eq!(first["10.244.2.10:8080"], 0);
    // Counting is switched on in place.
    node.start();
    node.expect("pod-c > 10.96.0.10:80 => 10.244.2.10:8080");
    wait(
        || match counts(&node, "default/web", "IPv4")["10.244.2.10:8080"] {
            0 => Err("nothing was counted".to_owned()),
            _ => Ok(()),
        },
    );
}

#[test]
fn suggests_top_where_rules_do_not_count() {
    let node = TestNode::new(FERROVIA);
    let output = node.ferrovia().arg("counters").output();
    let output = output.expect("ferrovia can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("ferrovia top"), "{said}");
}
