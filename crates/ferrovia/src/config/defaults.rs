//! What a file leaves out. A zero or an empty text is filled in as kube-proxy fills it in, with three differences: rules are written at once
//! unless a pause is asked for; an empty mode stays empty, because it means the best mode; and the servers of a machine without Kubernetes
//! listen on loopback.

use std::net::IpAddr;

use ferrovia_core::model::parse_ip;

use super::duration::GoDuration;
use super::file::{API_VERSION, Conntrack, Document, KIND};

/// The port of the health server.
pub(super) const HEALTH_PORT: u16 = 10256;
/// The port of the metrics server.
pub(super) const METRICS_PORT: u16 = 10249;
/// The port of the page for people.
pub(super) const WEB_PORT: u16 = 10247;
/// Where commands ask the daemon.
pub const ADMIN_SOCKET: &str = "/run/ferrovia/admin.sock";

const MASQUERADE_BIT: i32 = 14;
const OOM_SCORE_ADJ: i32 = -999;
const SYNC_PERIOD: GoDuration = GoDuration::from_secs(30);
const CONFIG_SYNC_PERIOD: GoDuration = GoDuration::from_secs(15 * 60);
const FLUSH_FREQUENCY: GoDuration = GoDuration::from_secs(5);
const TCP_ESTABLISHED: GoDuration = GoDuration::from_secs(24 * 3600);
const TCP_CLOSE_WAIT: GoDuration = GoDuration::from_secs(3600);
const CONNTRACK_PER_CORE: i32 = 32 * 1024;
const CONNTRACK_MIN: i32 = 128 * 1024;
const QPS: f32 = 5.0;
const BURST: i32 = 10;
const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// Fills in what is not there.
pub(super) fn apply(document: &mut Document) {
    API_VERSION.clone_into(&mut document.api_version);
    KIND.clone_into(&mut document.kind);
    fill_text(&mut document.bind_address, "0.0.0.0");
    addresses(document);
    for period in [
        &mut document.iptables.sync_period,
        &mut document.ipvs.sync_period,
        &mut document.nftables.sync_period,
    ] {
        fill(period, SYNC_PERIOD);
    }
    fill(&mut document.config_sync_period, CONFIG_SYNC_PERIOD);
    document
        .iptables
        .masquerade_bit
        .get_or_insert(MASQUERADE_BIT);
    document
        .nftables
        .masquerade_bit
        .get_or_insert(MASQUERADE_BIT);
    document.iptables.localhost_node_ports.get_or_insert(true);
    document.oom_score_adj.get_or_insert(OOM_SCORE_ADJ);
    if !document.ferrovia.manifests.is_empty() {
        leave_conntrack_alone(&mut document.conntrack);
    }
    let conntrack = &mut document.conntrack;
    conntrack.max_per_core.get_or_insert(CONNTRACK_PER_CORE);
    conntrack.min.get_or_insert(CONNTRACK_MIN);
    conntrack
        .tcp_established_timeout
        .get_or_insert(TCP_ESTABLISHED);
    conntrack
        .tcp_close_wait_timeout
        .get_or_insert(TCP_CLOSE_WAIT);
    let client = &mut document.client_connection;
    fill_text(&mut client.content_type, CONTENT_TYPE);
    fill(&mut client.qps, QPS);
    fill(&mut client.burst, BURST);
    fill_text(&mut document.logging.format, "text");
    fill(&mut document.logging.flush_frequency, FLUSH_FREQUENCY);
}

/// What depends on the mode and on where objects come from, once both are settled.
pub(super) fn apply_for_platform(document: &mut Document) {
    fill_text(&mut document.detect_local_mode, "ClusterCIDR");
    let without_kubernetes = document.mode.is_empty() && !document.ferrovia.manifests.is_empty();
    let is_primary = document.section().defaults_to_primary_addresses;
    let addresses = document.node_port_addresses.get_or_insert_default();
    if addresses.is_empty() && (is_primary || without_kubernetes) {
        addresses.push("primary".to_owned());
    }
    if addresses.is_empty() {
        document.node_port_addresses = None;
    }
}

/// The two servers' addresses: of the family of `bindAddress`, health for everyone and metrics for this machine.
fn addresses(document: &mut Document) {
    let is_v6 = matches!(parse_ip(&document.bind_address), Some(IpAddr::V6(_)));
    let (any, loopback) = if is_v6 {
        ("::", "::1")
    } else {
        ("0.0.0.0", "127.0.0.1")
    };
    let for_health = if document.ferrovia.manifests.is_empty() {
        any
    } else {
        loopback
    };
    fill_text(&mut document.healthz_bind_address, for_health);
    fill_text(&mut document.metrics_bind_address, loopback);
    add_port(&mut document.healthz_bind_address, HEALTH_PORT.into());
    add_port(&mut document.metrics_bind_address, METRICS_PORT.into());
}

/// Puts a port behind an address that is nothing but an address.
pub(super) fn add_port(address: &mut String, port: i32) {
    if parse_ip(address).is_none() {
        return;
    }
    *address = if address.contains(':') {
        format!("[{address}]:{port}")
    } else {
        format!("{address}:{port}")
    };
}

fn fill<T: Default + PartialEq>(field: &mut T, default: T) {
    if *field == T::default() {
        *field = default;
    }
}

fn fill_text(field: &mut String, default: &str) {
    if field.is_empty() {
        default.clone_into(field);
    }
}

/// A machine without Kubernetes has other work too, so the kernel's limits stay what they are unless somebody asks for others.
fn leave_conntrack_alone(conntrack: &mut Conntrack) {
    conntrack.max_per_core.get_or_insert(0);
    conntrack.tcp_established_timeout.get_or_insert_default();
    conntrack.tcp_close_wait_timeout.get_or_insert_default();
}
