//! What is measured, and how it is asked for.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ferrovia::mode::{DynamicSetReport as Report, IptablesMode, Mode as _};
use ferrovia::serve::http::Pages;
use ferrovia::serve::metrics::{
    Connections, DEFAULT_MAX_SERIES, Feature, Metrics, Refused, Traffic,
};
use ferrovia::sync::backend::Written;
use ferrovia::sync::{Brief, Outcome, SyncKind};
use ferrovia_core::desired::Endpoint;
use ferrovia_core::family::Family;
use ferrovia_core::model::{PortKey, Protocol, ServiceKey, TrafficPolicy};
use ferrovia_core::plan::userspace::{ProxyChange, ProxyListen, ProxyName, ProxySpec};
use ferrovia_host::portals::{Directory, LazyEngine, Proxies, ProxySettings};
use jiff::Timestamp;

use crate::client::get;
use crate::exposition::{self, Metric};
use crate::pages::{pages, serve};
use crate::support::{Runtime, measured};
use crate::table::TABLE;

const MS: Duration = Duration::from_millis(1);

fn outcome(kind: SyncKind, succeeds: bool) -> Outcome {
    let written = Written {
        changed: true,
        observe: MS,
        plan: MS,
        apply: MS,
    };
    Outcome {
        family: Family::V4,
        kind,
        repaired: false,
        brief: Brief::default(),
        took: MS,
        triggers: Vec::new(),
        cleanup: None,
        departed: None,
        result: if succeeds {
            Ok(written)
        } else {
            Err("no".into())
        },
    }
}

/// Somebody else's change that was mended.
fn repaired() -> Outcome {
    Outcome {
        repaired: true,
        ..outcome(SyncKind::Full, true)
    }
}

fn port() -> PortKey {
    PortKey {
        service: ServiceKey::new("shop", "web").unwrap(),
        name: "http".into(),
        protocol: Protocol::Tcp,
    }
}

/// Makes everything happen once. The kernel's counts can be read the first time only.
fn exercise(metrics: &Metrics) {
    let now = Timestamp::now();
    metrics.queued(Family::V4, now);
    for kind in [SyncKind::Full, SyncKind::Partial, SyncKind::Tidy] {
        metrics.synced(&outcome(kind, true), now);
        metrics.synced(&outcome(kind, false), now);
    }
    metrics.synced(&repaired(), now);
    metrics.programmed(Family::V4, MS);
    metrics.no_local_endpoints(Family::V4, Traffic::Internal, 3);
    metrics.changes(1, 1);
    metrics.pending(1, 2);
    metrics.conntrack_cleaned(Family::V4, MS, [("endpoint_gone", 5)]);
    metrics.swept(Report::Overflowed {
        family: Family::V4,
        set: "affinity",
        packets: 1,
    });
    metrics.swept(Report::Swept {
        family: Family::V4,
        set: "affinity",
        service_gone: 1,
        no_room: 1,
    });
    metrics.api_request("GET", "10.0.0.1:6443", Some(200), MS);
    metrics.api_held_back("GET", "10.0.0.1:6443", MS);
    metrics.watch_restarted("services");
    metrics.relisted("services");
    metrics.data_age(MS);
    metrics.iptables_rules(Family::V4, "nat", 10, 2);
    metrics.iptables_packets(Some(1), Some(2));
    metrics.iptables_lock(Family::V4, 1, MS, MS);
    metrics.healthz(true);
    metrics.livez(false);
    metrics.features([Feature {
        name: "AllowServiceExternalIPs",
        stage: "",
        is_enabled: true,
    }]);
    let mut tries = 0;
    let read = move |counted: &mut Connections| {
        tries += 1;
        if tries == 1 {
            return Err("the kernel does not answer".into());
        }
        let endpoint: SocketAddr = "10.244.1.2:8080".parse().unwrap();
        counted.service(Family::V4, &port(), 7);
        counted.endpoint(Family::V4, &port(), endpoint, 7);
        counted.refused(Family::V4, &port(), Refused::NoLocalEndpoints, 1);
        Ok(())
    };
    metrics.count_connections(Box::new(read), DEFAULT_MAX_SERIES);
}

fn exposed(metrics: &Metrics) -> String {
    let mut text = String::new();
    metrics.expose(&mut text).unwrap();
    text
}

/// A proxy with an endpoint that refuses and one that hangs up, after a client had to do with both.
fn proxied() -> (Directory, Proxies) {
    let [refusing, answering] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let addresses = [&refusing, &answering].map(|listener| listener.local_addr().unwrap());
    drop(refusing);
    thread::spawn(move || answering.accept());
    let directory = Directory::default();
    let settings = ProxySettings {
        ports: None,
        udp_idle: Duration::from_secs(1),
    };
    let engine = LazyEngine::default();
    let mut proxies = Proxies::new(Family::V4, settings, engine, directory.clone());
    let endpoint = |address: SocketAddr| Endpoint {
        ip: address.ip(),
        port: address.port(),
        weight: 1,
        is_local: true,
    };
    let name = ProxyName {
        key: port(),
        policy: TrafficPolicy::Cluster,
    };
    let troubles = proxies.set(&[ProxyChange::Set(ProxySpec {
        name: name.clone(),
        listen: ProxyListen::Portal(Ipv4Addr::LOCALHOST.into()),
        client_filters: BTreeMap::new(),
        endpoints: addresses.map(endpoint).into(),
        affinity: None,
    })]);
    assert!(troubles.is_empty(), "{troubles:?}");
    let own_port = proxies.open()[&name].unwrap();
    let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, own_port)).unwrap();
    client.read_to_end(&mut Vec::new()).unwrap();
    (directory, proxies)
}

#[test]
fn every_series_has_its_name_type_labels_and_buckets() {
    let nftables = measured();
    exercise(&nftables);
    let iptables = Metrics::new("iptables", IptablesMode::default().failure_metrics());
    exercise(&iptables);
    let (directory, _open) = proxied();
    iptables.count_proxies(directory, DEFAULT_MAX_SERIES);
    let mut found = BTreeMap::new();
    for metrics in [&*nftables, &iptables] {
        exposed(metrics);
        found.extend(exposition::parse(&exposed(metrics)));
    }
    let names: Vec<&str> = found.keys().map(|name| &**name).collect();
    let table: Vec<&str> = TABLE.iter().map(|row| row.0).collect();
    assert_eq!(names, table);
    for (name, kind, labels, buckets) in TABLE {
        let metric = &found[*name];
        assert_eq!(metric.kind, *kind, "{name}");
        assert_eq!(metric.labels().join(" "), *labels, "{name}");
        assert_eq!(metric.buckets().join(" "), *buckets, "{name}");
    }
}

#[test]
fn what_has_not_happened_has_no_series() {
    let found = exposition::parse(&exposed(&measured()));
    let names = found.keys().filter(|name| !name.starts_with("process_"));
    assert_eq!(
        names.collect::<Vec<_>>(),
        [
            "ferrovia_build_info",
            "ferrovia_conntrack_failures_total",
            "ferrovia_conntrack_flows",
            "ferrovia_conntrack_flows_limit",
            "kubeproxy_sync_proxy_rules_endpoint_changes_pending",
            "kubeproxy_sync_proxy_rules_endpoint_changes_total",
            "kubeproxy_sync_proxy_rules_service_changes_pending",
            "kubeproxy_sync_proxy_rules_service_changes_total",
            "kubernetes_build_info",
        ]
    );
}

#[test]
fn a_sync_is_counted_as_what_it_was() {
    let metrics = measured();
    let slow = Outcome {
        took: 3 * MS,
        ..outcome(SyncKind::Full, true)
    };
    metrics.synced(&slow, Timestamp::UNIX_EPOCH);
    metrics.synced(&outcome(SyncKind::Partial, false), Timestamp::now());
    metrics.synced(&outcome(SyncKind::Tidy, false), Timestamp::now());
    let later = Timestamp::from_millisecond(1_500).unwrap();
    metrics.synced(&repaired(), later);
    let text = exposed(&metrics);
    for line in [
        "kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"} 3",
        "kubeproxy_sync_proxy_rules_duration_seconds_bucket{ip_family=\"IPv4\",le=\"0.002\"} 2",
        "kubeproxy_sync_proxy_rules_duration_seconds_bucket{ip_family=\"IPv4\",le=\"0.004\"} 3",
        "kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"} 2",
        "kubeproxy_sync_partial_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"} 1",
        "kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv4\"} 1.5",
        "kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family=\"IPv4\"} 1",
        "kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total{ip_family=\"IPv4\"} 1",
        "ferrovia_kernel_errors_total{ip_family=\"IPv4\"} 2",
        "ferrovia_rules_repaired_total{ip_family=\"IPv4\"} 1",
        "ferrovia_sync_phase_duration_seconds_count{ip_family=\"IPv4\",phase=\"apply\"} 2",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert!(!text.contains("iptables_restore_failures"));
}

#[test]
fn a_scrape_has_its_headers_and_parses() {
    let runtime = Runtime::start();
    let pages = pages();
    pages
        .health
        .show_data_age(Box::new(|_| Duration::from_secs(3)));
    let (_server, address) = serve(&runtime, pages);
    let reply = get(address, "/metrics");
    assert_eq!(reply.code, 200);
    assert_eq!(
        reply.header("content-type"),
        "text/plain; version=0.0.4; charset=utf-8"
    );
    let started: u64 = reply.header("process-start-time-unix").parse().unwrap();
    assert!(started > 1_600_000_000);
    let found = exposition::parse(&reply.body);
    assert_eq!(found["ferrovia_data_age_seconds"].samples[0].value, 3.0);
    let build = &found["kubernetes_build_info"].samples[0];
    assert!(
        build
            .labels
            .contains(&("git_version".to_owned(), "v1.36.4".to_owned()))
    );
}

/// As many services as a large cluster has, each with two endpoints.
fn count_many(counted: &mut Connections) {
    let key = |i: u32| PortKey {
        service: ServiceKey::new("a-namespace-of-some-length", &format!("service-{i:05}")).unwrap(),
        ..port()
    };
    for i in 0..10_000 {
        counted.service(Family::V4, &key(i), u64::from(i));
    }
    for i in 0..10_000 {
        for last in [1, 2] {
            let ip = [10, (i >> 8) as u8, i as u8, last];
            counted.endpoint(Family::V4, &key(i), (ip, 8080).into(), 1);
        }
    }
}

fn many_pages(limit: usize) -> Pages {
    let pages = pages();
    let read = |counted: &mut Connections| {
        count_many(counted);
        Ok(())
    };
    pages.metrics.count_connections(Box::new(read), limit);
    pages
}

#[test]
fn the_series_of_services_are_limited() {
    let runtime = Runtime::start();
    let (_server, address) = serve(&runtime, many_pages(12_000));
    let found = exposition::parse(&get(address, "/metrics").body);
    let len = |name: &str| {
        found
            .get(name)
            .map_or(0, |metric: &Metric| metric.samples.len())
    };
    assert_eq!(len("ferrovia_service_connections_total"), 10_000);
    assert_eq!(len("ferrovia_endpoint_connections_total"), 2_000);
    assert_eq!(
        found["ferrovia_connection_series_omitted"].samples[0].value,
        18_000.0
    );
}

#[test]
fn a_client_that_does_not_read_does_not_block_others() {
    use std::io::Write;
    let runtime = Runtime::start();
    let pages = many_pages(100_000);
    let metrics = Arc::clone(&pages.metrics);
    let (_server, address) = serve(&runtime, pages);
    let mut stalled = Vec::new();
    for _ in 0..4 {
        let mut stream = crate::client::connect(address).unwrap();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        stalled.push(stream);
    }
    // The sync thread goes on, other pages are served, and after a while so is the next scrape.
    metrics.synced(&outcome(SyncKind::Full, true), Timestamp::now());
    assert_eq!(get(address, "/healthz").code, 200);
    crate::support::wait_until("a scrape is answered", || {
        let reply = crate::client::try_request(address, "GET", "/metrics", &[], "");
        reply.is_ok_and(|reply| reply.code == 200 && !exposition::parse(&reply.body).is_empty())
    });
}
