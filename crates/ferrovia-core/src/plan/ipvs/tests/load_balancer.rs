//! One service in every detail: a load balancer with source ranges, affinity and a health check, and `externalTrafficPolicy: Local`.

use super::*;

/// The service on a node with one address, and one of its two endpoints.
fn example(family: Family) -> IpvsHarness {
    let mut lab = IpvsHarness::on(IpvsSim::default(), family, IpvsOptions::default());
    let [pods, own, cluster_ip, vip, here, there, range] = match family {
        Family::V4 => [
            "10.244.0.0/16",
            "192.168.1.10",
            "10.96.0.10:80",
            "203.0.113.10:80",
            "10.244.1.5",
            "10.244.2.7",
            "198.51.100.0/24",
        ],
        Family::V6 => [
            "fd00:10:244::/56",
            "fd00:1::10",
            "[fd00:10:96::a]:80",
            "[2001:db8:113::10]:80",
            "fd00:10:244:1::5",
            "fd00:10:244:2::7",
            "2001:db8:100::/64",
        ],
    };
    let endpoint = |address: &str, is_local| Endpoint {
        ip: ip(address),
        port: 8080,
        weight: 1,
        is_local,
    };
    let port = ServicePort {
        frontends: Box::new([
            Frontend::ClusterIp(cluster_ip.parse().unwrap()),
            Frontend::LoadBalancer(vip.parse().unwrap()),
            Frontend::NodePort(30010),
        ]),
        affinity: Some(600),
        external_policy: TrafficPolicy::Local,
        source_ranges: Box::new([range.parse().unwrap()]),
        ..local(service(10, &[endpoint(here, true), endpoint(there, false)]))
    };
    let check = HealthCheck {
        port: 31000,
        local_endpoints: 1,
    };
    lab.desired.health_checks = Arc::new([(port.key.service.clone(), check)].into());
    lab.desired.ports = [(port.key.clone(), Arc::new(port))].into();
    lab.desired.node = Arc::new(NodeRules {
        local: LocalDetector::Source(pods.parse().unwrap()),
        addresses: BTreeSet::from([ip(own)]),
        ..node()
    });
    lab
}

#[test]
fn all_of_it_is_written() {
    let mut lab = example(Family::V4);
    let plan = lab.full(ObservedPolicy::Adopt);
    assert_eq!(plan.to_string(), include_str!("worked/ipv4.plan"));
    assert!(lab.restart().is_empty());
}

#[test]
fn under_policy_cluster_servers_get_all_endpoints_and_clients_are_masqueraded() {
    let mut lab = example(Family::V4);
    lab.full(ObservedPolicy::Adopt);
    let (_, before) = lab.desired.ports.first_key_value().unwrap();
    let before = ServicePort::clone(before);
    let plan = lab.set(ServicePort {
        external_policy: TrafficPolicy::Cluster,
        local: Arc::default(),
        ..before.clone()
    });
    assert_eq!(
        plan.to_string(),
        "del KUBE-NODE-PORT-LOCAL-TCP 30010\n\
         del KUBE-LOAD-BALANCER-LOCAL 203.0.113.10,tcp:80\n\
         -a -t 192.168.1.10:30010 -r 10.244.2.7:8080 -m -w 1\n\
         -a -t 203.0.113.10:80 -r 10.244.2.7:8080 -m -w 1\n"
    );
    assert_eq!(lab.meaning(), lab.fresh().meaning());
    // And back: an endpoint elsewhere must not get a client's own address at any moment.
    let plan = lab.set(before);
    assert_eq!(
        plan.to_string(),
        "-d -t 192.168.1.10:30010 -r 10.244.2.7:8080 drain\n\
         -d -t 203.0.113.10:80 -r 10.244.2.7:8080 drain\n\
         add KUBE-LOAD-BALANCER-LOCAL 203.0.113.10,tcp:80\n\
         add KUBE-NODE-PORT-LOCAL-TCP 30010\n"
    );
    assert!(lab.restart().is_empty());
}

#[test]
fn ipv6_is_the_same_under_other_names() {
    let mut lab = example(Family::V6);
    let plan = lab.full(ObservedPolicy::Adopt);
    assert_eq!(plan.to_string(), include_str!("worked/ipv6.plan"));
    assert!(lab.restart().is_empty());
}

/// The state a kube-proxy has in the kernel for the same service, less its rules.
fn kube_proxys() -> IpvsSim {
    let mut lab = example(Family::V4);
    lab.full(ObservedPolicy::Adopt);
    let mut sim = IpvsSim {
        state: lab.sim.state,
        ..IpvsSim::default()
    };
    for ours in [
        IpvsSetId::NoLocal,
        IpvsSetId::NoneAllowed,
        IpvsSetId::NoEndpoints,
    ] {
        sim.state.sets.remove(&ours.name(Family::V4));
    }
    for set in sim.state.sets.values_mut() {
        set.max = set.max.min(65536);
    }
    sim.rules
        .restore(include_str!("worked/kube-proxy.restore"))
        .unwrap();
    sim
}

#[test]
fn state_of_a_kube_proxy_is_adopted_and_only_rules_are_written() {
    let mut lab = example(Family::V4);
    lab.sim = kube_proxys();
    let plan = lab.full(ObservedPolicy::Adopt);
    let [IpvsStep::Sets(sets), IpvsStep::Rules(rules)] = &plan.steps[..] else {
        panic!("{plan}");
    };
    let made: Vec<String> = sets.iter().map(SetOp::to_string).collect();
    let max = crate::dialect::ipset::MAX_ENTRIES;
    assert_eq!(
        made,
        ["NO-LOCAL", "NONE-ALLOWED", "NO-ENDPOINTS"].map(|name| format!(
            "create KUBE-{name} hash:ip,port family inet hashsize 1024 maxelem {max}"
        ))
    );
    // The chains whose rules are the same stay as they are, jumps too.
    let rules = rules.to_string();
    for same in [
        "KUBE-FORWARD",
        "KUBE-MARK-MASQ",
        "KUBE-POSTROUTING",
        "KUBE-LOAD-BALANCER",
        "KUBE-PROXY-FIREWALL",
        "KUBE-IPVS-FILTER",
        "KUBE-IPVS-OUT-FILTER",
    ] {
        assert!(!rules.contains(&format!(":{same} ")), "{rules}");
    }
    let (_, chains) = lab.meaning();
    assert_eq!(chains, lab.fresh().meaning().1);
    assert!(lab.restart().is_empty());
}

#[test]
fn a_kube_proxys_state_can_be_cleaned_up() {
    let mut sim = kube_proxys();
    let plan = cleanup(
        Family::V4,
        &sim.observed(),
        &BTreeSet::from([ip("192.168.1.10")]),
    );
    sim.apply(&plan)
        .unwrap_or_else(|why| panic!("{why}\n{plan}"));
    assert_eq!(sim.state, IpvsObserved::default());
    let nothing = cleanup(Family::V4, &sim.observed(), &BTreeSet::new());
    assert!(nothing.is_empty(), "{nothing}");
}
