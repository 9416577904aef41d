//! Objects that come, change and go.

use ferrovia_lab::control_plane::Assets;
use ferrovia_lab::daemon::manifests::{service, web};

use crate::cluster::Cluster;

pub(crate) fn follows_services_and_endpoint_slices(assets: &Assets) {
    let cluster = Cluster::new(assets);
    cluster.apply(&web(&["2.10"]));
    cluster.start();
    // An EndpointSlice changes.
    cluster.apply(&web(&["2.11"]));
    cluster
        .node
        .expect_soon("pod-c > 10.96.0.10:80 => 10.244.2.11:8080");
    // A Service comes with its slices.
    cluster.apply(&service("second", 11, 30081, &["1.10"]));
    cluster
        .node
        .expect_soon("pod-c > 10.96.0.11:80 => 10.244.1.10:8080");
    // A Service changes.
    cluster.apply(&web(&["2.11"]).replace("port: 80,", "port: 81,"));
    cluster.node.expect_soon(
        "pod-c > 10.96.0.10:81 => 10.244.2.11:8080
pod-c > 10.96.0.11:80 => 10.244.1.10:8080",
    );
    // A Service goes.
    cluster.delete_service("second");
    cluster.node.expect_soon("pod-c > 10.96.0.11:80 => dropped");
}
