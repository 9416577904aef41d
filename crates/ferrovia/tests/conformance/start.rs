//! What the server has already when the daemon starts.

use ferrovia_lab::control_plane::Assets;
use ferrovia_lab::daemon::kube_proxy::HEALTH;
use ferrovia_lab::daemon::manifests::web;

use crate::cluster::Cluster;

/// Both families, and the port on the Node's addresses, which are known from its object.
const ANSWERS: &str = "pod-c > 10.96.0.10:80 => 10.244.2.10:8080
pod-c > [fd00:10:96::a]:80 => [fd00:10:244:2::10]:8080
outside > 198.51.100.10:30080 => 10.244.2.10:8080 masq
outside > 198.51.100.11:30080 => refused";

pub(crate) fn writes_the_rules_of_existing_services(assets: &Assets) {
    let cluster = Cluster::new(assets);
    cluster.apply(&web(&["2.10"]));
    cluster.start();
    cluster.node.expect(ANSWERS);
    assert_eq!(
        cluster.get(HEALTH, "/healthz").map(|reply| reply.code),
        Ok(200)
    );
}
