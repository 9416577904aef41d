//! In a pod without a kubeconfig: the server's address is in the environment, token and certificate authority in a projected volume.

use std::fs;

use ferrovia_lab::daemon::manifests::web;
use ferrovia_lab::daemon::service_account::ServiceAccountVolume;

use super::Cluster;

#[test]
fn follows_a_rotated_service_account_token() {
    let cluster = Cluster::new();
    cluster.apply(&web(&["2.10"]));
    let authority = fs::read_to_string(cluster.node.folder().join("ca.crt"));
    let authority = authority.expect("the API server wrote its certificate authority");
    let mut volume = ServiceAccountVolume::new(&cluster.node);
    volume.project(&cluster.api.token(), &authority);
    volume.start_daemon(&cluster.node, cluster.api.address());
    cluster
        .node
        .expect("pod-c > 10.96.0.10:80 => 10.244.2.10:8080");

    // The kubelet renews the token, and the server rejects the old one.
    cluster.api.rotate_token();
    volume.project(&cluster.api.token(), &authority);
    cluster.api.reset_connections();
    cluster.apply(&web(&["1.10"]));
    cluster
        .node
        .expect_soon("pod-c > 10.96.0.10:80 => 10.244.1.10:8080");
}
