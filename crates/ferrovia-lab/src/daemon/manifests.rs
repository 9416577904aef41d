//! Manifests of Services whose endpoints the lab's pods answer for.

use std::fmt::Write as _;

/// A dual-stack Service `web` at 10.96.0.10:80 and node port 30080, with these pods as endpoints.
pub fn web(pods: &[&str]) -> String {
    service("web", 10, 30080, pods)
}

/// A dual-stack Service at 10.96.0.`number`:80 with its EndpointSlices. A pod is written `node.host`: `1.10` is 10.244.1.10.
pub fn service(name: &str, number: u32, node_port: u32, pods: &[&str]) -> String {
    let (high, low) = (number / 256, number % 256);
    let endpoints = |prefix: &str| {
        pods.iter().fold(String::new(), |mut text, pod| {
            let (node, host) = pod.split_once('.').expect("a pod is `node.host`");
            let separator = if prefix.contains(':') { "::" } else { "." };
            let _ = writeln!(
                text,
                "- {{ addresses: ['{prefix}{node}{separator}{host}'], nodeName: node-{node} }}"
            );
            text
        })
    };
    let slice = |kind: &str, prefix: &str| {
        format!(
            "---\nkind: EndpointSlice\napiVersion: discovery.k8s.io/v1\nmetadata:\n  name: {name}-{}\n  labels: {{ kubernetes.io/service-name: {name} }}\naddressType: {kind}\nports: [{{ port: 8080 }}]\nendpoints:\n{}",
            kind.to_lowercase(),
            endpoints(prefix)
        )
    };
    format!(
        "kind: Service\napiVersion: v1\nmetadata: {{ name: {name} }}\nspec:\n  type: NodePort\n  clusterIP: 10.96.{high}.{low}\n  clusterIPs: [10.96.{high}.{low}, 'fd00:10:96::{number:x}']\n  ipFamilyPolicy: RequireDualStack\n  ipFamilies: [IPv4, IPv6]\n  ports: [{{ port: 80, nodePort: {node_port} }}]\n{}{}",
        slice("IPv4", "10.244."),
        slice("IPv6", "fd00:10:244:")
    )
}
