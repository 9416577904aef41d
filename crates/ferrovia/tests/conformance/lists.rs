//! The ways to list, slow networks and many Services.

use std::time::Instant;

use ferrovia_lab::control_plane::{ApiRequest, Assets};
use ferrovia_lab::daemon::manifests::web;

use crate::bulk;
use crate::cluster::Cluster;

const SERVICES: &str = "/api/v1/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";

/// Starts, and sees a change.
fn starts_and_follows(cluster: &Cluster) {
    cluster.apply(&web(&["2.10"]));
    cluster.start();
    cluster
        .node
        .expect("pod-c > 10.96.0.10:80 => 10.244.2.10:8080");
    cluster.apply(&web(&["1.10"]));
    cluster
        .node
        .expect_soon("pod-c > 10.96.0.10:80 => 10.244.1.10:8080");
}

pub(crate) fn lists_in_pages_where_watch_lists_are_disabled(assets: &Assets) {
    let cluster = Cluster::with(assets, "etcd", &["--feature-gates=WatchList=false"]);
    bulk::create(&cluster, 0..700);
    starts_and_follows(&cluster);
    cluster
        .node
        .expect(&bulk::sample(&cluster, [0, 499, 500, 699]));
}

pub(crate) fn lists_and_watches_without_a_watch_cache(assets: &Assets) {
    let cluster = Cluster::with(assets, "etcd", &["--watch-cache=false"]);
    starts_and_follows(&cluster);
}

pub(crate) fn lists_in_pages_where_etcd_cannot_report_progress(assets: &Assets) {
    let cluster = Cluster::with(assets, "etcd-3.4", &[]);
    starts_and_follows(&cluster);
}

pub(crate) fn waits_for_a_list_that_comes_slowly(assets: &Assets) {
    const COUNT: u32 = 600;
    let cluster = Cluster::new(assets);
    bulk::create(&cluster, 0..COUNT);
    let size: usize = [SERVICES, SLICES]
        .map(|target| cluster.try_ask(&ApiRequest::get(target)).body.len())
        .iter()
        .sum();
    // Half a minute for each list in JSON.
    cluster.relay.throttle(size as u64 / 2 / 30);
    let start = Instant::now();
    starts_and_follows(&cluster);
    println!(
        "    {COUNT} Services and slices, {size} bytes of JSON: ready and one change after {:.1} s, {} bytes received",
        start.elapsed().as_secs_f64(),
        cluster.relay.received()
    );
    // A client that gives up and begins again would receive them several times.
    let received = cluster.relay.received();
    assert!(received < 2 * size as u64, "{received} for {size}");
    cluster.node.expect(&bulk::sample(&cluster, [0, 300, 599]));
}

pub(crate) fn follows_ten_thousand_services(assets: &Assets) {
    const COUNT: u32 = 10_000;
    let cluster = Cluster::new(assets);
    let start = Instant::now();
    bulk::create(&cluster, 0..COUNT);
    println!(
        "    {COUNT} Services and slices created in {:.0} s",
        start.elapsed().as_secs_f64()
    );
    cluster.apply(&web(&["2.10"]));
    let start = Instant::now();
    cluster.start();
    println!(
        "    initial sync after {:.1} s, {} bytes received",
        start.elapsed().as_secs_f64(),
        cluster.relay.received()
    );
    cluster
        .node
        .expect(&bulk::sample(&cluster, [0, 4_321, 9_999]));
    let start = Instant::now();
    cluster.apply(&web(&["1.10"]));
    cluster
        .node
        .expect_soon("pod-c > 10.96.0.10:80 => 10.244.1.10:8080");
    println!(
        "    a change is seen after {:.0} ms",
        start.elapsed().as_secs_f64() * 1e3
    );
}
