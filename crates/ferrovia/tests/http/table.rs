//! Every series there is, written by hand from kube-proxy's and from what we promise, and whether documents keep to it.

use std::collections::BTreeSet;

const SYNC: &str =
    "0.001 0.002 0.004 0.008 0.016 0.032 0.064 0.128 0.256 0.512 1.024 2.048 4.096 8.192 16.384";
const REQUEST: &str = "0.005 0.025 0.1 0.25 0.5 1 2 4 8 15 30 60";

/// Name, type, labels and buckets of all there is.
pub(crate) const TABLE: &[(&str, &str, &str, &str)] = &[
    ("ferrovia_build_info", "gauge", "mode version", ""),
    ("ferrovia_connection_read_errors_total", "counter", "", ""),
    ("ferrovia_connection_series_omitted", "gauge", "", ""),
    ("ferrovia_conntrack_failures_total", "counter", "reason", ""),
    ("ferrovia_conntrack_flows", "gauge", "", ""),
    ("ferrovia_conntrack_flows_limit", "gauge", "", ""),
    (
        "ferrovia_conntrack_removed_total",
        "counter",
        "ip_family reason",
        "",
    ),
    ("ferrovia_data_age_seconds", "gauge", "", ""),
    (
        "ferrovia_endpoint_connections_total",
        "counter",
        "endpoint ip_family namespace port protocol service",
        "",
    ),
    (
        "ferrovia_iptables_lock_held_seconds_total",
        "counter",
        "ip_family",
        "",
    ),
    (
        "ferrovia_iptables_lock_taken_total",
        "counter",
        "ip_family",
        "",
    ),
    (
        "ferrovia_iptables_lock_waited_seconds_total",
        "counter",
        "ip_family",
        "",
    ),
    ("ferrovia_kernel_errors_total", "counter", "ip_family", ""),
    (
        "ferrovia_proxy_bytes_total",
        "counter",
        "direction ip_family namespace policy port protocol service",
        "",
    ),
    (
        "ferrovia_proxy_connections_total",
        "counter",
        "ip_family namespace policy port protocol service",
        "",
    ),
    (
        "ferrovia_proxy_dial_duration_seconds",
        "histogram",
        "",
        "0.0001 0.0005 0.001 0.005 0.025 0.1 0.25 1 2",
    ),
    (
        "ferrovia_proxy_endpoint_bytes_total",
        "counter",
        "direction endpoint ip_family namespace policy port protocol service",
        "",
    ),
    (
        "ferrovia_proxy_endpoint_connections_total",
        "counter",
        "endpoint ip_family namespace policy port protocol service",
        "",
    ),
    (
        "ferrovia_proxy_endpoint_failures_total",
        "counter",
        "endpoint ip_family kind namespace policy port protocol service",
        "",
    ),
    (
        "ferrovia_proxy_failures_total",
        "counter",
        "ip_family kind namespace policy port protocol service",
        "",
    ),
    (
        "ferrovia_proxy_open_connections",
        "gauge",
        "ip_family namespace policy port protocol service",
        "",
    ),
    (
        "ferrovia_proxy_retries_total",
        "counter",
        "ip_family namespace policy port protocol service",
        "",
    ),
    ("ferrovia_proxy_series_omitted", "gauge", "", ""),
    (
        "ferrovia_proxy_service_dial_duration_seconds",
        "histogram",
        "ip_family namespace policy port protocol service",
        "0.0001 0.0005 0.001 0.005 0.025 0.1 0.25 1 2",
    ),
    ("ferrovia_relists_total", "counter", "resource", ""),
    ("ferrovia_rules_repaired_total", "counter", "ip_family", ""),
    (
        "ferrovia_service_connections_total",
        "counter",
        "ip_family namespace port protocol service",
        "",
    ),
    (
        "ferrovia_service_refused_packets_total",
        "counter",
        "ip_family namespace port protocol reason service",
        "",
    ),
    (
        "ferrovia_set_entries_removed_total",
        "counter",
        "ip_family reason set",
        "",
    ),
    (
        "ferrovia_set_overflows_total",
        "counter",
        "ip_family set",
        "",
    ),
    (
        "ferrovia_sync_phase_duration_seconds",
        "histogram",
        "ip_family phase",
        "0.0001 0.0002 0.0004 0.0008 0.0016 0.0032 0.0064 0.0128 0.0256 0.0512 0.1024 0.2048 0.4096 0.8192 1.6384 3.2768 6.5536 13.1072",
    ),
    ("ferrovia_watch_restarts_total", "counter", "resource", ""),
    (
        "kubeproxy_conntrack_reconciler_deleted_entries_total",
        "counter",
        "ip_family",
        "",
    ),
    (
        "kubeproxy_conntrack_reconciler_sync_duration_seconds",
        "histogram",
        "ip_family",
        SYNC,
    ),
    (
        "kubeproxy_iptables_ct_state_invalid_dropped_packets_total",
        "counter",
        "",
        "",
    ),
    (
        "kubeproxy_iptables_localhost_nodeports_accepted_packets_total",
        "counter",
        "",
        "",
    ),
    (
        "kubeproxy_network_programming_duration_seconds",
        "histogram",
        "ip_family",
        "0.25 0.5 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 65 70 75 80 85 90 95 100 105 110 115 120 150 180 210 240 270 300",
    ),
    ("kubeproxy_proxy_healthz_total", "counter", "code", ""),
    ("kubeproxy_proxy_livez_total", "counter", "code", ""),
    (
        "kubeproxy_sync_full_proxy_rules_duration_seconds",
        "histogram",
        "ip_family",
        SYNC,
    ),
    (
        "kubeproxy_sync_partial_proxy_rules_duration_seconds",
        "histogram",
        "ip_family",
        SYNC,
    ),
    (
        "kubeproxy_sync_proxy_rules_duration_seconds",
        "histogram",
        "ip_family",
        SYNC,
    ),
    (
        "kubeproxy_sync_proxy_rules_endpoint_changes_pending",
        "gauge",
        "",
        "",
    ),
    (
        "kubeproxy_sync_proxy_rules_endpoint_changes_total",
        "counter",
        "",
        "",
    ),
    (
        "kubeproxy_sync_proxy_rules_iptables_last",
        "gauge",
        "ip_family table",
        "",
    ),
    (
        "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total",
        "counter",
        "ip_family",
        "",
    ),
    (
        "kubeproxy_sync_proxy_rules_iptables_restore_failures_total",
        "counter",
        "ip_family",
        "",
    ),
    (
        "kubeproxy_sync_proxy_rules_iptables_total",
        "gauge",
        "ip_family table",
        "",
    ),
    (
        "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
        "gauge",
        "ip_family",
        "",
    ),
    (
        "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
        "gauge",
        "ip_family",
        "",
    ),
    (
        "kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total",
        "counter",
        "ip_family",
        "",
    ),
    (
        "kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
        "counter",
        "ip_family",
        "",
    ),
    (
        "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
        "gauge",
        "ip_family traffic_policy",
        "",
    ),
    (
        "kubeproxy_sync_proxy_rules_service_changes_pending",
        "gauge",
        "",
        "",
    ),
    (
        "kubeproxy_sync_proxy_rules_service_changes_total",
        "counter",
        "",
        "",
    ),
    (
        "kubernetes_build_info",
        "gauge",
        "build_date compiler git_commit git_tree_state git_version go_version major minor platform",
        "",
    ),
    ("kubernetes_feature_enabled", "gauge", "name stage", ""),
    ("process_cpu_seconds_total", "counter", "", ""),
    ("process_max_fds", "gauge", "", ""),
    ("process_open_fds", "gauge", "", ""),
    ("process_resident_memory_bytes", "gauge", "", ""),
    ("process_start_time_seconds", "gauge", "", ""),
    ("process_virtual_memory_bytes", "gauge", "", ""),
    ("process_virtual_memory_max_bytes", "gauge", "", ""),
    (
        "rest_client_rate_limiter_duration_seconds",
        "histogram",
        "host verb",
        REQUEST,
    ),
    (
        "rest_client_request_duration_seconds",
        "histogram",
        "host verb",
        REQUEST,
    ),
    (
        "rest_client_requests_total",
        "counter",
        "code host method",
        "",
    ),
];

#[test]
fn the_documentation_names_every_series() {
    let documented = names_in(include_str!("../../../../docs/metrics.md"));
    let existing: BTreeSet<&str> = TABLE.iter().map(|row| row.0).collect();
    let slis = ["kubernetes_healthcheck", "kubernetes_healthchecks_total"];
    let missing: Vec<_> = existing
        .iter()
        .filter(|name| !documented.contains(**name))
        .collect();
    assert!(missing.is_empty(), "docs/metrics.md lacks {missing:?}");
    for name in &documented {
        let is_known = existing.contains(base(name)) || slis.contains(&&**name);
        assert!(
            is_known,
            "docs/metrics.md tells of {name}, which does not exist"
        );
    }
}

#[test]
fn the_dashboard_uses_series_that_exist() {
    let text = include_str!("../../../../deploy/grafana/ferrovia.json");
    let dashboard: serde_json::Value = serde_json::from_str(text).unwrap();
    for key in ["title", "uid", "schemaVersion", "templating", "time"] {
        assert!(!dashboard[key].is_null(), "{key}");
    }
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    let mut expressions = Vec::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        assert!(panel["gridPos"]["w"].as_u64().is_some_and(|w| w <= 24));
        let targets = panel["targets"].as_array().into_iter().flatten();
        expressions.extend(targets.map(|target| target["expr"].as_str().unwrap().to_owned()));
    }
    assert!(expressions.len() >= 10);
    let existing: BTreeSet<&str> = TABLE.iter().map(|row| row.0).collect();
    for expression in expressions {
        let names = names_in(&expression);
        assert!(!names.is_empty(), "{expression}");
        for name in names {
            assert!(existing.contains(base(&name)), "{name} does not exist");
        }
    }
}

/// The words that look like a series of ours.
fn names_in(text: &str) -> BTreeSet<String> {
    const PREFIXES: [&str; 5] = [
        "ferrovia_",
        "kubeproxy_",
        "kubernetes_",
        "process_",
        "rest_client_",
    ];
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '*');
    words
        .filter(|word| PREFIXES.iter().any(|prefix| word.starts_with(prefix)))
        .filter(|word| !word.contains('*') && !PREFIXES.contains(word))
        .map(str::to_owned)
        .collect()
}

/// The metric that a series belongs to.
fn base(series: &str) -> &str {
    ["_bucket", "_count", "_sum"]
        .iter()
        .find_map(|suffix| series.strip_suffix(suffix))
        .unwrap_or(series)
}
