//! The server restarts, etcd forgets its history or goes back in time.

use ferrovia_lab::control_plane::{Assets, ControlPlane, Stop};
use ferrovia_lab::daemon::manifests::{service, web};
use ferrovia_lab::daemon::outage::{
    DELETED_SERVICE, FLOWS_AFTER, FLOWS_BEFORE, manifests_after, manifests_before,
};

use crate::cluster::Cluster;

/// Applies the objects of `FLOWS_BEFORE` and starts the daemon.
fn start_before(cluster: &Cluster) {
    for manifest in manifests_before() {
        cluster.apply(&manifest);
    }
    cluster.start();
    cluster.node.expect(FLOWS_BEFORE);
}

/// Changes the objects to those of `FLOWS_AFTER`.
fn apply_after(cluster: &Cluster) {
    for manifest in manifests_after() {
        cluster.apply(&manifest);
    }
    cluster.delete_service(DELETED_SERVICE);
}

/// Waits for everything to be listed again.
fn wait_for_relists(cluster: &Cluster) {
    for kind in ["Service", "EndpointSlice"] {
        let resource = format!("resource=\"{kind}\"");
        cluster.wait_for_metric("ferrovia_relists_total", &[&resource], 1.0);
    }
}

pub(crate) fn keeps_rules_while_the_server_restarts_and_follows_it_afterwards(assets: &Assets) {
    let cluster = Cluster::new(assets);
    start_before(&cluster);
    for (how, changes) in [(Stop::Term, true), (Stop::Kill, false)] {
        cluster.restart_server(how, || {
            let flows = if changes { FLOWS_BEFORE } else { FLOWS_AFTER };
            cluster.node.expect(flows);
        });
        if changes {
            apply_after(&cluster);
            cluster.node.expect_soon(FLOWS_AFTER);
        } else {
            cluster.apply(&web(&["1.10"]));
            cluster
                .node
                .expect_soon("pod-c > 10.96.0.10:80 => 10.244.1.10:8080");
        }
    }
}

pub(crate) fn sees_changes_that_were_made_while_it_was_cut_off(assets: &Assets) {
    let cluster = Cluster::new(assets);
    start_before(&cluster);
    cluster.relay.cut();
    apply_after(&cluster);
    cluster.restart_server(Stop::Kill, || cluster.node.expect(FLOWS_BEFORE));
    cluster.relay.pass();
    cluster.node.expect_soon(FLOWS_AFTER);
}

pub(crate) fn relists_after_etcd_was_compacted_and_the_server_restarted(assets: &Assets) {
    let cluster = Cluster::new(assets);
    start_before(&cluster);
    cluster.relay.cut();
    apply_after(&cluster);
    // Without a restart the server's watch cache still has the history.
    cluster.restart_server(Stop::Term, || cluster.on_plane(|plane| plane.compact()));
    cluster.relay.pass();
    cluster.node.expect_soon(FLOWS_AFTER);
    wait_for_relists(&cluster);
}

pub(crate) fn relists_after_etcd_was_compacted_behind_a_server_without_watch_cache(
    assets: &Assets,
) {
    let cluster = Cluster::with(assets, "etcd", &["--watch-cache=false"]);
    start_before(&cluster);
    cluster.relay.cut();
    apply_after(&cluster);
    cluster.on_plane(|plane| plane.compact());
    cluster.relay.pass();
    cluster.node.expect_soon(FLOWS_AFTER);
    wait_for_relists(&cluster);
    cluster.apply(&web(&["1.10"]));
    cluster
        .node
        .expect_soon("pod-c > 10.96.0.10:80 => 10.244.1.10:8080");
}

pub(crate) fn returns_to_the_state_of_a_restored_backup(assets: &Assets) {
    let cluster = Cluster::new(assets);
    start_before(&cluster);
    cluster.on_plane(ControlPlane::back_up);
    apply_after(&cluster);
    // Far more than what is written after the restore, so that resourceVersions do not catch up.
    for port in 1..100 {
        let slices = web(&["2.10"]).replace("port: 80,", &format!("port: {},", 8000 + port));
        cluster.apply(&slices);
    }
    cluster.apply(&web(&["2.10"]));
    cluster.node.expect_soon(FLOWS_AFTER);
    cluster.on_plane(ControlPlane::restore);
    cluster.node.expect_soon(FLOWS_BEFORE);
    cluster.apply(&service("new", 13, 30083, &["2.10"]));
    cluster
        .node
        .expect_soon("pod-c > 10.96.0.13:80 => 10.244.2.10:8080");
}
