//! An API server that is unreachable, has expired resourceVersions, or sends nothing.

use std::fs::File;
use std::process::Child;
use std::time::Duration;

use ferrovia_lab::Role;
use ferrovia_lab::apiserver::{ApiServerOptions, Fault, FaultTarget, Kind, Verb};
use ferrovia_lab::daemon::OWNER_TABLE;
use ferrovia_lab::daemon::kube_proxy::{HEALTH, METRICS};
use ferrovia_lab::daemon::manifests::web;
use ferrovia_lab::daemon::outage::{
    DELETED_SERVICE, FLOWS_AFTER, FLOWS_BEFORE, manifests_after, manifests_before,
};
use ferrovia_lab::waiting::wait;

use super::Cluster;

/// Applies the objects of `FLOWS_BEFORE`.
fn apply_before(cluster: &Cluster) {
    for manifest in manifests_before() {
        cluster.apply(&manifest);
    }
}

/// Changes the objects to those of `FLOWS_AFTER`.
fn apply_after(cluster: &Cluster) {
    for manifest in manifests_after() {
        cluster.apply(&manifest);
    }
    cluster.delete_service(DELETED_SERVICE);
}

/// Waits for requests to the API server that were not answered.
fn wait_for_failures(cluster: &Cluster, least: f64) {
    cluster.wait_for_metric("rest_client_requests_total", &[r#"code="<error>""#], least);
}

/// `nft monitor` on the node.
struct Monitor<'a> {
    cluster: &'a Cluster,
    child: Child,
}

impl<'a> Monitor<'a> {
    /// Starts the monitor, and returns when it listens.
    fn start(cluster: &'a Cluster) -> Self {
        let log = File::create(cluster.node.folder().join("monitor")).expect("it is ours");
        let mut command = cluster.node.world.exec(Role::Node, "nft");
        let child = command.arg("monitor").stdout(log).spawn();
        let monitor = Self {
            cluster,
            child: child.expect("nft can be run"),
        };
        wait(|| {
            let tables = "add table ip probe\ndelete table ip probe\n";
            cluster.node.feed("nft", &["-f", "-"], tables);
            match monitor.heard().contains("probe") {
                true => Ok(()),
                false => Err("nft monitor prints nothing".to_owned()),
            }
        });
        monitor
    }

    fn heard(&self) -> String {
        let path = self.cluster.node.folder().join("monitor");
        std::fs::read_to_string(path).expect("it is there")
    }
}

impl Drop for Monitor<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn keeps_rules_when_started_without_a_server_and_then_writes_the_difference() {
    let cluster = Cluster::new();
    apply_before(&cluster);
    cluster.start();
    assert_eq!(cluster.node.stop(libc::SIGTERM), Some(0));
    cluster.api.refuse_connections(true).expect("it runs");
    apply_after(&cluster);
    let monitor = Monitor::start(&cluster);
    let generation = cluster.node.generation();

    cluster.start_without_waiting();
    wait_for_failures(&cluster, 5.0);
    assert_eq!(cluster.get(HEALTH, "/healthz").code, 503);
    assert_eq!(cluster.get(HEALTH, "/livez").code, 200);
    // Only the owner table is written.
    assert_eq!(cluster.node.generation(), generation + 1);
    cluster.node.expect(FLOWS_BEFORE);

    cluster.api.refuse_connections(false).expect("it runs");
    cluster.node.expect_soon(FLOWS_AFTER);
    assert_eq!(cluster.get_soon(HEALTH, "/healthz", 200).code, 200);
    // The last change is printed after all others.
    wait(|| match monitor.heard().contains("10.96.0.13") {
        true => Ok(()),
        false => Err(monitor.heard()),
    });
    let heard = monitor.heard();
    assert!(!heard.contains("10.96.0.11"), "{heard}");
    let of_ours = heard.replace("table ip ferrovia-owner", "");
    assert!(!of_ours.contains("table ip ferrovia"), "{heard}");
}

#[test]
fn healthz_is_503_while_the_first_lists_do_not_arrive() {
    let cluster = Cluster::new();
    cluster.apply(&web(&["2.10"]));
    cluster
        .api
        .inject(FaultTarget::kind(Kind::EndpointSlice), Fault::Hang);
    cluster.start_without_waiting();
    // The Node is known, so only the missing sync makes it unhealthy.
    wait(|| {
        let reply = cluster.get_soon(HEALTH, "/healthz", 503);
        match reply.body.contains(r#""nodeEligible":true"#) {
            true => Ok(()),
            false => Err(reply.body),
        }
    });
    let reply = cluster.get(HEALTH, "/healthz");
    assert_eq!(reply.code, 503, "{reply:?}");
    assert!(reply.body.contains(r#""synced":false"#), "{reply:?}");
    assert_eq!(cluster.get(HEALTH, "/livez").code, 200);
    cluster.api.heal().expect("it runs");
    let reply = cluster.get_soon(HEALTH, "/healthz", 200);
    assert!(!reply.body.contains("synced"), "{reply:?}");
    cluster
        .node
        .expect("pod-c > 10.96.0.10:80 => 10.244.2.10:8080");
}

#[test]
fn keeps_rules_during_an_outage_and_follows_the_changes_afterwards() {
    away_and_back(|_| {});
}

#[test]
fn relists_after_the_server_was_compacted() {
    let cluster = away_and_back(|cluster| cluster.api.compact());
    for kind in ["Service", "EndpointSlice"] {
        let resource = format!("resource=\"{kind}\"");
        cluster.wait_for_metric("ferrovia_relists_total", &[&resource], 1.0);
    }
}

fn away_and_back(meanwhile_too: impl FnOnce(&Cluster)) -> Cluster {
    let cluster = Cluster::new();
    apply_before(&cluster);
    cluster.start();
    cluster.node.expect(FLOWS_BEFORE);
    let monitor = Monitor::start(&cluster);
    let generation = cluster.node.generation();

    cluster.api.refuse_connections(true).expect("it runs");
    cluster.api.reset_connections();
    wait_for_failures(&cluster, 1.0);
    apply_after(&cluster);
    meanwhile_too(&cluster);
    cluster.node.expect(FLOWS_BEFORE);
    assert_eq!(cluster.node.generation(), generation);
    assert_eq!(cluster.get(HEALTH, "/healthz").code, 200);

    cluster.api.refuse_connections(false).expect("it runs");
    cluster.node.expect_soon(FLOWS_AFTER);
    let heard = monitor.heard();
    assert!(
        !heard.contains("10.96.0.11"),
        "unchanged rules were written:\n{heard}"
    );
    drop(monitor);
    cluster
}

#[test]
fn a_hanging_watch_increases_the_data_age() {
    let cluster = Cluster::with(ApiServerOptions {
        bookmark_every: Duration::from_millis(100),
        ..ApiServerOptions::default()
    });
    cluster.apply_node(|_| {});
    cluster.apply(&web(&["2.10"]));
    cluster.start();
    let age = || cluster.metric("ferrovia_data_age_seconds", &[]);
    let wait_for = |what: &str, holds: &dyn Fn(f64) -> bool| {
        wait(|| match age() {
            age if holds(age) => Ok(()),
            age => Err(format!("{what}: the data are {age} s old")),
        });
    };
    wait_for("all is well", &|age| age < 1.0);
    cluster
        .api
        .inject(FaultTarget::watch(Kind::EndpointSlice), Fault::Silence);
    wait_for("slices are silent", &|age| age > 2.0);
    // The rules are intact, so load balancers have no reason to drop the node.
    assert_eq!(cluster.get(HEALTH, "/healthz").code, 200);
    assert_eq!(cluster.get(HEALTH, "/livez").code, 200);
    cluster.api.heal().expect("it runs");
    wait_for("all is well again", &|age| age < 1.0);
    cluster.apply(&web(&["2.11"]));
    cluster
        .node
        .expect_soon("pod-c > 10.96.0.10:80 => 10.244.2.11:8080");
}

#[test]
fn rereads_a_token_that_is_no_longer_accepted() {
    let cluster = Cluster::new();
    cluster.apply(&web(&["2.10"]));
    cluster.start();
    cluster.api.rotate_token();
    cluster
        .api
        .kubeconfig(cluster.node.folder())
        .expect("it can be written");
    cluster.api.reset_connections();
    cluster.apply(&web(&["2.11"]));
    cluster
        .node
        .expect_soon("pod-c > 10.96.0.10:80 => 10.244.2.11:8080");
}

#[test]
fn waits_for_a_server_that_does_not_respond() {
    let cluster = Cluster::new();
    cluster.apply(&web(&["2.10"]));
    cluster
        .api
        .inject(FaultTarget::verb(Verb::Watch), Fault::Hang);
    cluster.start_without_waiting();
    cluster
        .api
        .wait_until(|api| !api.requests().is_empty())
        .expect("it is asked");
    cluster.get_soon(HEALTH, "/livez", 200);
    cluster.get_soon(METRICS, "/healthz", 200);
    assert_eq!(
        cluster.node.on_node("nft", &["list", "tables"]),
        OWNER_TABLE
    );
    assert_eq!(
        cluster.node.stop(libc::SIGTERM),
        Some(0),
        "it exits at once"
    );
}
