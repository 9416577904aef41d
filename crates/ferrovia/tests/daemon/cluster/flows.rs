//! UDP flows that lead nowhere any more, with real sockets that keep their port.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ferrovia_lab::client::{Call, Caller, DROP_WAIT, PATIENCE};
use ferrovia_lab::waiting::wait;
use ferrovia_lab::{Answer, ClientHost, Outcome, Pod, Protocol};

use super::Cluster;

/// Sockets of each client; enough that others' flows do not stay where they were by chance.
const SOCKETS: usize = 8;

/// A Service that speaks UDP, with these pods behind it.
fn udp(name: &str, ip: &str, node_port: u16, pods: &[&str]) -> String {
    let endpoints: Vec<_> = pods
        .iter()
        .map(|pod| format!("{{ addresses: ['{pod}'] }}"))
        .collect();
    format!(
        "kind: Service\napiVersion: v1\nmetadata: {{ name: {name} }}\nspec:\n  type: NodePort\n  clusterIP: {ip}\n  clusterIPs: [{ip}]\n  ports: [{{ port: 53, nodePort: {node_port}, protocol: UDP }}]\n---\nkind: EndpointSlice\napiVersion: discovery.k8s.io/v1\nmetadata:\n  name: {name}-1\n  labels: {{ kubernetes.io/service-name: {name} }}\naddressType: IPv4\nports: [{{ port: 53, protocol: UDP }}]\nendpoints: [{}]\n",
        endpoints.join(", ")
    )
}

/// Sockets of one client and what came back on each.
struct Sockets(Vec<(Call, Outcome)>);

impl Sockets {
    fn open(cluster: &Cluster, from: ClientHost, to: &str, patience: Duration) -> Self {
        let to: SocketAddr = to.parse().expect("an address and port");
        let caller = Caller::enter(&cluster.node.world, from.role()).expect("the place is there");
        let mut calls: Vec<_> = (0..SOCKETS)
            .map(|_| caller.start(Protocol::Udp, from.source(to.ip()), to))
            .collect::<Result<_, _>>()
            .expect("it can be sent");
        // Those that get no answer wait for it together.
        let deadline = Instant::now() + patience;
        let outcomes: Vec<_> = calls.iter_mut().map(|call| call.finish(deadline)).collect();
        Self(calls.into_iter().zip(outcomes).collect())
    }

    /// Who answered, socket by socket.
    fn answered(&self) -> Vec<String> {
        self.0
            .iter()
            .map(|(_, outcome)| match outcome {
                Outcome::Answer(Answer { endpoint, .. }) => endpoint.ip().to_string(),
                other => other.to_string(),
            })
            .collect()
    }

    /// Asks again on the same sockets, and waits so long for each answer.
    fn again(&mut self, patience: Duration) -> Vec<String> {
        self.0
            .iter_mut()
            .map(|(call, _)| match call.repeat(patience) {
                Ok(Some(answer)) => answer.endpoint.ip().to_string(),
                Ok(None) => "nobody".to_owned(),
                Err(error) => error.to_string(),
            })
            .collect()
    }

    /// All of them are answered by one pod soon.
    fn expect_soon(&mut self, pod: &str, log: impl Fn() -> String) {
        wait(|| match self.again(Duration::from_millis(200)) {
            answered if answered.iter().all(|by| by == pod) => Ok(()),
            answered => Err(format!("answered by {answered:?}; log:\n{}", log())),
        });
    }
}

#[test]
fn moves_flows_of_removed_endpoints_and_keeps_others() {
    let cluster = Cluster::new();
    let [old, new] = ["10.244.1.10", "10.244.2.10"];
    cluster.apply(&udp("dns", "10.96.0.53", 30053, &[old]));
    cluster.apply(&udp("log", "10.96.0.54", 30054, &[old, new]));
    cluster.start();
    let client = ClientHost::Pod(Pod::C);
    let mut inside = Sockets::open(&cluster, client, "10.96.0.53:53", PATIENCE);
    let mut outside = Sockets::open(
        &cluster,
        ClientHost::Outside,
        "198.51.100.10:30053",
        PATIENCE,
    );
    let mut others = Sockets::open(&cluster, client, "10.96.0.54:53", PATIENCE);
    assert_eq!(inside.answered(), [old; SOCKETS]);
    assert_eq!(outside.answered(), [old; SOCKETS]);
    let before = others.answered();

    cluster.apply(&udp("dns", "10.96.0.53", 30053, &[new]));
    inside.expect_soon(new, || cluster.node.log());
    outside.expect_soon(new, || cluster.node.log());
    assert_eq!(others.again(PATIENCE), before, "another service's flows");
    let removed = "kubeproxy_conntrack_reconciler_deleted_entries_total";
    cluster.wait_for_metric(removed, &[], (2 * SOCKETS) as f64);
    assert_eq!(cluster.metric(removed, &[]) as usize, 2 * SOCKETS);
}

#[test]
fn flows_from_before_the_service_and_from_before_its_first_endpoint_reach_it() {
    let cluster = Cluster::new();
    cluster.start();
    let client = ClientHost::Pod(Pod::C);
    // Forwarded to an unused address: conntrack records that these are not translated.
    let mut early = Sockets::open(&cluster, client, "10.96.0.53:53", DROP_WAIT);
    assert!(
        early.answered().iter().all(|by| !by.starts_with("10.")),
        "{:?}",
        early.answered()
    );
    cluster.apply(&udp("dns", "10.96.0.53", 30053, &[]));
    let mut later = Sockets::open(&cluster, client, "10.96.0.53:53", DROP_WAIT);
    cluster.apply(&udp("dns", "10.96.0.53", 30053, &["10.244.2.10"]));
    early.expect_soon("10.244.2.10", || cluster.node.log());
    later.expect_soon("10.244.2.10", || cluster.node.log());
}
