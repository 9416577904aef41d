//! Proxies on the services' own addresses.

use super::*;
use crate::desired::LocalDetector;

/// Where the proxies of a plan listen, each with its name.
fn listeners(plan: &UserspacePlan) -> Vec<String> {
    let text = plan.to_string();
    let proxies = text.lines().filter(|line| line.starts_with("proxy "));
    proxies.map(ToOwned::to_owned).collect()
}

#[test]
fn bind_portals_need_no_rules() {
    let mut lab = UserspaceHarness::new(BIND, &[service(1, &[1])]);
    assert_eq!(lab.saved("nat"), ["-A PREROUTING -j ACCEPT"]);
    assert_eq!(lab.addresses.len(), 3);
    // The address stays while another port has it.
    let other = ServicePort {
        key: service(2, &[]).key,
        frontends: Box::new([Frontend::ClusterIp(at("172.30.0.1:81"))]),
        ..service(2, &[2])
    };
    let plan = lab.change(std::slice::from_ref(&other), &[]);
    assert_eq!(
        plan.to_string(),
        "proxy ns1/svc2:p80/tcp at 172.30.0.1:81\n  to 10.244.1.2:8080 weight 1\n"
    );
    lab.change(&[], &[service(1, &[]).key]);
    assert_eq!(lab.addresses, [IpAddr::from([172, 30, 0, 1])]);
    lab.change(&[], &[other.key]);
    assert!(lab.addresses.is_empty() && lab.open.is_empty());
}

#[test]
fn bind_portals_leave_node_address_frontends_to_their_service() {
    let mut lab = UserspaceHarness::new(BIND, &[]);
    let bound = |n: u8, frontend| ServicePort {
        frontends: Box::new([frontend]),
        ..service(n, &[1])
    };
    let node_port = bound(1, Frontend::NodePort(30080));
    lab.set_node(addressed());
    let plan = lab.change(&[node_port], &[]);
    assert_eq!(
        listeners(&plan),
        ["proxy ns1/svc1:p80/tcp at 127.0.0.1:30080 at 192.168.0.2:30080 at 192.168.0.3:30080"]
    );
    let node_address_frontends = bound(2, Frontend::ExternalIp(at("192.168.0.3:30080")));
    let plan = lab.change(&[node_address_frontends], &[]);
    assert_eq!(
        listeners(&plan),
        [
            "proxy ns1/svc1:p80/tcp at 127.0.0.1:30080 at 192.168.0.2:30080",
            "proxy ns1/svc2:p80/tcp at 192.168.0.3:30080",
        ]
    );
    lab.assert_settled();
    // Other numbers and addresses are not in the way, nor are other protocols.
    let mut udp = bound(4, Frontend::ExternalIp(at("192.168.0.2:30080")));
    udp.key.protocol = Protocol::Udp;
    let others = [
        bound(3, Frontend::ExternalIp(at("203.0.113.1:30080"))),
        bound(5, Frontend::ExternalIp(at("192.168.0.2:30081"))),
        udp,
    ];
    let plan = lab.change(&others, &[]);
    assert!(!plan.to_string().contains("svc1"), "{plan}");
    // The address passes from one to the other when the service goes, and when the node loses it.
    let plan = lab.change(&[], &[service(2, &[]).key]);
    assert!(
        listeners(&plan)[0].ends_with(" at 192.168.0.3:30080"),
        "{plan}"
    );
    let plan = lab.set_node(NodeRules {
        addresses: [IpAddr::from([192, 168, 0, 9])].into(),
        ..node()
    });
    assert_eq!(
        listeners(&plan),
        ["proxy ns1/svc1:p80/tcp at 127.0.0.1:30080 at 192.168.0.9:30080"]
    );
    lab.assert_settled();
}

#[test]
fn bind_portals_apply_source_ranges() {
    let mut lab = UserspaceHarness::new(BIND, &[]);
    lab.set_node(addressed());
    let ranged = |range: &str| ServicePort {
        source_ranges: Box::new([range.parse().unwrap()]),
        ..service(1, &[1])
    };
    let client_filters = |plan: &UserspacePlan| -> Vec<String> {
        let text = plan.to_string();
        let client_filters = text.lines().filter(|line| line.contains(" for "));
        client_filters.map(|line| line.trim().to_owned()).collect()
    };
    let plan = lab.change(&[ranged("198.51.100.0/24")], &[]);
    assert!(plan.notes().is_empty());
    assert!(listeners(&plan)[0].contains(" at 1.2.3.1:80"), "{plan}");
    assert_eq!(
        client_filters(&plan),
        ["at 1.2.3.1:80 only for 198.51.100.0/24"]
    );
    let plan = lab.change(&[ranged("192.168.0.0/16")], &[]);
    assert_eq!(
        client_filters(&plan),
        ["at 1.2.3.1:80 only for 192.168.0.0/16, this node"]
    );
    // A range with the load balancer's address says nothing of the node.
    let plan = lab.change(&[ranged("1.2.3.0/24")], &[]);
    assert_eq!(client_filters(&plan), ["at 1.2.3.1:80 only for 1.2.3.0/24"]);
    lab.assert_settled();
}

#[test]
fn under_policy_local_bind_portals_filter_clients() {
    let mut lab = UserspaceHarness::new(BIND, &[]);
    let port = |numbers: &[u8]| ServicePort {
        internal_policy: TrafficPolicy::Local,
        external_policy: TrafficPolicy::Local,
        frontends: Box::new([
            Frontend::ClusterIp(at("172.30.0.1:80")),
            Frontend::LoadBalancer(at("1.2.3.1:80")),
        ]),
        source_ranges: Box::new(["198.51.100.0/24".parse().unwrap()]),
        ..service(1, numbers)
    };
    let inside = "10.244.0.0/16, 192.168.0.2/32, 192.168.0.3/32, this node";
    lab.set_node(NodeRules {
        local: LocalDetector::Source("10.244.0.0/16".parse().unwrap()),
        ..addressed()
    });
    // Pods may use any endpoint, so there is a proxy for those, though it listens nowhere.
    let plan = lab.change(&[port(&[1, 2])], &[]);
    assert_eq!(
        plan.to_string(),
        format!(
            "add address 1.2.3.1
add address 172.30.0.1
proxy ns1/svc1:p80/tcp
  to 10.244.1.2:8080 weight 1
  to 10.244.2.1:8080 weight 1
proxy ns1/svc1:p80/tcp/local at 1.2.3.1:80 at 172.30.0.1:80
  at 1.2.3.1:80 only for 198.51.100.0/24
  at 1.2.3.1:80 to any endpoint for {inside}
  to 10.244.1.2:8080 weight 1
"
        )
    );
    // Without a local endpoint all other clients are refused.
    let plan = lab.change(&[port(&[1])], &[]);
    assert_eq!(
        plan.to_string(),
        format!(
            "proxy ns1/svc1:p80/tcp at 1.2.3.1:80
  at 1.2.3.1:80 only for 198.51.100.0/24
  at 1.2.3.1:80 only for {inside}
  to 10.244.2.1:8080 weight 1
close ns1/svc1:p80/tcp/local
"
        )
    );
    lab.assert_settled();
}
