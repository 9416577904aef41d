//! In a pod without a kubeconfig: the server's address is in the environment, token and certificate authority in a projected volume.

use std::fs;

use ferrovia_lab::Role;
use ferrovia_lab::apiserver::{ApiServer, ApiServerOptions, Auth};
use ferrovia_lab::daemon::manifests::web;
use ferrovia_lab::daemon::service_account::ServiceAccountVolume;
use ferrovia_lab::waiting::wait;

use super::Cluster;

/// The certificate authority of the current API server, in PEM.
fn authority(cluster: &Cluster) -> String {
    let folder = cluster.node.folder();
    let written = cluster.api.kubeconfig(folder);
    written.expect("the API server writes its certificate authority");
    fs::read_to_string(folder.join("ca.crt")).expect("it was just written")
}

#[test]
fn follows_a_rotated_service_account_token() {
    let cluster = Cluster::new();
    cluster.apply(&web(&["2.10"]));
    let authority = authority(&cluster);
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

/// The cluster's certificate authority is replaced: the server has a certificate of the new one, and the kubelet projects it.
#[test]
fn trusts_a_replaced_certificate_authority_once_it_is_projected() {
    let mut cluster = Cluster::new();
    cluster.apply(&web(&["2.10"]));
    let mut volume = ServiceAccountVolume::new(&cluster.node);
    volume.project(&cluster.api.token(), &authority(&cluster));
    volume.start_daemon(&cluster.node, cluster.api.address());
    let listen = cluster.api.address();
    let closed = cluster.api.refuse_connections(true);
    closed.expect("the server stops listening");
    let after = wait(|| {
        let _inside = cluster
            .node
            .world
            .enter(Role::Node)
            .expect("the namespace exists");
        let options = ApiServerOptions {
            listen,
            tls: true,
            auth: Auth::TokenFile,
            ..ApiServerOptions::default()
        };
        ApiServer::start(options).map_err(|error| error.to_string())
    });
    // It has the same objects, as after a restart.
    after.restore(&cluster.api.back_up());
    let before = std::mem::replace(&mut cluster.api, after);
    cluster.apply(&web(&["1.10"]));
    before.reset_connections();
    cluster
        .node
        .wait_for_log("Lost connection to the API server");
    volume.project(&cluster.api.token(), &authority(&cluster));
    cluster
        .node
        .expect_soon("pod-c > 10.96.0.10:80 => 10.244.1.10:8080");
}
