//! The server restarts, etcd forgets its history or goes back in time.

use ferrovia_lab::control_plane::{Assets, ControlPlane, Stop};

use crate::cluster::Cluster;
use crate::support::{service, web};

const OLD: &str = "pod-c > 10.96.0.10:80 => 10.244.1.10:8080
pod-c > 10.96.0.11:80 => 10.244.2.11:8080
pod-c > 10.96.0.12:80 => 10.244.2.12:8080
pod-c > 10.96.0.13:80 => dropped";

const NEW: &str = "pod-c > 10.96.0.10:80 => 10.244.2.10:8080
pod-c > 10.96.0.11:80 => 10.244.2.11:8080
pod-c > 10.96.0.12:80 => dropped
pod-c > 10.96.0.13:80 => 10.244.1.11:8080";

/// Objects that `OLD` is about, and a daemon that has written them.
fn started(cluster: &Cluster) {
    cluster.apply(&web(&["1.10"]));
    cluster.apply(&service("same", 11, 30081, &["2.11"]));
    cluster.apply(&service("gone", 12, 30082, &["2.12"]));
    cluster.start();
    cluster.node.expect(OLD);
}

/// Makes of them what `NEW` is about.
fn meanwhile(cluster: &Cluster) {
    cluster.apply(&web(&["2.10"]));
    cluster.delete_service("gone");
    cluster.apply(&service("new", 13, 30083, &["1.11"]));
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
    started(&cluster);
    for (how, changes) in [(Stop::Term, true), (Stop::Kill, false)] {
        cluster.restart_server(how, || {
            let flows = if changes { OLD } else { NEW };
            cluster.node.expect(flows);
        });
        if changes {
            meanwhile(&cluster);
            cluster.node.expect_soon(NEW);
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
    started(&cluster);
    cluster.relay.cut();
    meanwhile(&cluster);
    cluster.restart_server(Stop::Kill, || cluster.node.expect(OLD));
    cluster.relay.pass();
    cluster.node.expect_soon(NEW);
}

pub(crate) fn relists_after_etcd_was_compacted_and_the_server_restarted(assets: &Assets) {
    let cluster = Cluster::new(assets);
    started(&cluster);
    cluster.relay.cut();
    meanwhile(&cluster);
    // Without a restart the server's watch cache still has the history.
    cluster.restart_server(Stop::Term, || cluster.on_plane(|plane| plane.compact()));
    cluster.relay.pass();
    cluster.node.expect_soon(NEW);
    wait_for_relists(&cluster);
}

pub(crate) fn relists_after_etcd_was_compacted_behind_a_server_without_watch_cache(
    assets: &Assets,
) {
    let cluster = Cluster::with(assets, "etcd", &["--watch-cache=false"]);
    started(&cluster);
    cluster.relay.cut();
    meanwhile(&cluster);
    cluster.on_plane(|plane| plane.compact());
    cluster.relay.pass();
    cluster.node.expect_soon(NEW);
    wait_for_relists(&cluster);
    cluster.apply(&web(&["1.10"]));
    cluster
        .node
        .expect_soon("pod-c > 10.96.0.10:80 => 10.244.1.10:8080");
}

pub(crate) fn returns_to_the_state_of_a_restored_backup(assets: &Assets) {
    let cluster = Cluster::new(assets);
    started(&cluster);
    cluster.on_plane(ControlPlane::back_up);
    meanwhile(&cluster);
    // Far more than what is written after the restore, so that resourceVersions do not catch up.
    for port in 1..100 {
        let slices = web(&["2.10"]).replace("port: 80,", &format!("port: {},", 8000 + port));
        cluster.apply(&slices);
    }
    cluster.apply(&web(&["2.10"]));
    cluster.node.expect_soon(NEW);
    cluster.on_plane(ControlPlane::restore);
    cluster.node.expect_soon(OLD);
    cluster.apply(&service("new", 13, 30083, &["2.10"]));
    cluster
        .node
        .expect_soon("pod-c > 10.96.0.13:80 => 10.244.2.10:8080");
}
