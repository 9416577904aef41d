//! Many Services, created over a few connections at once, at addresses that the server chooses.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use ferrovia_lab::control_plane::{ApiRequest, Connection};
use serde_json::json;

use crate::cluster::Cluster;

const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

/// The server is busy with this many.
const CONNECTIONS: usize = 8;

/// Creates Services of these numbers, each with a slice of two endpoints: pod-a and pod-x.
pub(crate) fn create(cluster: &Cluster, numbers: Range<u32>) {
    let next = AtomicU32::new(numbers.start);
    let work = || {
        let mut connection = cluster.admin.connect().expect("the server runs");
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= numbers.end {
                return;
            }
            create_one(&mut connection, number);
        }
    };
    // Threads are in the namespace of the one that starts them.
    cluster.inside(|| {
        thread::scope(|scope| (0..CONNECTIONS).for_each(|_| drop(scope.spawn(work))));
    });
}

fn create_one(connection: &mut Connection, number: u32) {
    let name = name(number);
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8080}]},
    });
    let endpoint = |ip: &str, node: &str| {
        json!({
            "addresses": [ip],
            "nodeName": node,
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "targetRef": {"kind": "Pod", "namespace": "default", "name": format!("{name}-{ip}")},
        })
    };
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "ports": [{"port": 8080, "protocol": "TCP", "name": ""}],
        "endpoints": [endpoint("10.244.1.10", "node-1"), endpoint("10.244.2.10", "node-2")],
    });
    for (target, object) in [(SERVICES, service), (SLICES, slice)] {
        let body = object.to_string();
        let reply = connection.ask(&ApiRequest::send("POST", target, body.as_bytes()));
        let reply = reply.expect("the server answers");
        assert_eq!(reply.head.code, 201, "{name}: {}", reply.json());
    }
}

/// Flows to some of these Services.
pub(crate) fn sample<const N: usize>(cluster: &Cluster, numbers: [u32; N]) -> String {
    numbers
        .into_iter()
        .fold(String::new(), |mut flows, number| {
            let target = format!("{SERVICES}/{}", name(number));
            let service = cluster.ask(&ApiRequest::get(&target));
            let ip = service["spec"]["clusterIP"].as_str().expect("it has one");
            let pods = "10.244.1.10:8080 | 10.244.2.10:8080";
            // Writing to a string cannot fail.
            let _ = writeln!(flows, "pod-c > {ip}:80 => {pods}");
            flows
        })
}

fn name(number: u32) -> String {
    format!("bulk-{number:05}")
}
