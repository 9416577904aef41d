//! Every series but those of single services, with its name, labels and meaning: the one place where these are written.
//!
//! Names, types, labels and buckets of `kubeproxy_*`, `kubernetes_*`, `rest_client_*` and `process_*` are those of kube-proxy, so that
//! dashboards and alerts go on working. What is ours begins with `ferrovia_`.

use super::series::{Counter, Expose, Family, Gauge, Histogram};

/// Makes a struct with a family for each entry: `field: Type(arguments) "name" [labels] "help";`
macro_rules! catalogue {
    ($($field:ident: $kind:ident($($argument:expr)?) $name:literal [$($label:ident),*] $help:literal;)*) => {
        /// All families.
        #[derive(Debug)]
        pub(super) struct Catalogue {
            $(pub(super) $field: Family<$kind, { <[&str]>::len(&[$(stringify!($label)),*]) }>,)*
        }

        impl Catalogue {
            /// All families, empty.
            pub(super) fn new() -> Self {
                Self {
                    $($field: Family::new($name, $help, [$(stringify!($label)),*], $kind::new($($argument)?)),)*
                }
            }

            /// All families in order of name.
            pub(super) fn families(&self) -> Vec<&dyn Expose> {
                let mut families: Vec<&dyn Expose> = vec![$(&self.$field),*];
                families.sort_unstable_by_key(|family| family.name());
                families
            }
        }
    };
}

catalogue! {
    // Syncs.
    sync: Histogram(&SYNC) "kubeproxy_sync_proxy_rules_duration_seconds" [ip_family]
        "Time one sync took, whether it succeeded or not.";
    sync_full: Histogram(&SYNC) "kubeproxy_sync_full_proxy_rules_duration_seconds" [ip_family]
        "Time one full sync took: the kernel was read back and compared with all that is wanted.";
    sync_partial: Histogram(&SYNC) "kubeproxy_sync_partial_proxy_rules_duration_seconds" [ip_family]
        "Time one partial sync took: only what changed was written.";
    last_synced: Gauge() "kubeproxy_sync_proxy_rules_last_timestamp_seconds" [ip_family]
        "When a sync last succeeded, in seconds since 1970.";
    last_queued: Gauge() "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds" [ip_family]
        "When a sync was last asked for, in seconds since 1970.";
    programming: Histogram(&PROGRAMMING) "kubeproxy_network_programming_duration_seconds" [ip_family]
        "Time from the change of an endpoint, as its EndpointSlice tells it, to its being in the kernel.";
    endpoint_changes: Counter() "kubeproxy_sync_proxy_rules_endpoint_changes_total" []
        "EndpointSlice events received.";
    endpoints_pending: Gauge() "kubeproxy_sync_proxy_rules_endpoint_changes_pending" []
        "EndpointSlice changes that wait for a sync.";
    service_changes: Counter() "kubeproxy_sync_proxy_rules_service_changes_total" []
        "Service events received.";
    services_pending: Gauge() "kubeproxy_sync_proxy_rules_service_changes_pending" []
        "Services whose changes wait for a sync.";
    no_local_endpoints: Gauge() "kubeproxy_sync_proxy_rules_no_local_endpoints_total" [ip_family, traffic_policy]
        "Service ports with policy Local whose endpoints are all on other nodes.";

    // What only one mode has.
    nftables_sync_failures: Counter() "kubeproxy_sync_proxy_rules_nftables_sync_failures_total" [ip_family]
        "Syncs of the nftables mode that failed.";
    nftables_cleanup_failures: Counter() "kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total" [ip_family]
        "Removals of leftovers in the nftables mode that failed.";
    iptables_restore_failures: Counter() "kubeproxy_sync_proxy_rules_iptables_restore_failures_total" [ip_family]
        "Calls of iptables-restore that failed.";
    iptables_partial_restore_failures: Counter() "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total" [ip_family]
        "Partial syncs of the iptables mode that failed.";
    iptables_rules: Gauge() "kubeproxy_sync_proxy_rules_iptables_total" [ip_family, table]
        "iptables rules in force.";
    iptables_rules_written: Gauge() "kubeproxy_sync_proxy_rules_iptables_last" [ip_family, table]
        "iptables rules written by the last sync.";
    lock_taken: Counter() "ferrovia_iptables_lock_taken_total" [ip_family]
        "Times the lock of the legacy iptables tools was taken.";
    lock_held: Counter() "ferrovia_iptables_lock_held_seconds_total" [ip_family]
        "Time the lock of the legacy iptables tools was held by ours.";
    lock_waited: Counter() "ferrovia_iptables_lock_waited_seconds_total" [ip_family]
        "Time others' hold on the lock of the legacy iptables tools kept us waiting.";
    iptables_invalid_dropped: Counter() "kubeproxy_iptables_ct_state_invalid_dropped_packets_total" []
        "Packets dropped because connection tracking found them invalid.";
    iptables_localhost_accepted: Counter() "kubeproxy_iptables_localhost_nodeports_accepted_packets_total" []
        "Packets to node ports on loopback addresses.";

    // Connection tracking.
    conntrack: Histogram(&SYNC) "kubeproxy_conntrack_reconciler_sync_duration_seconds" [ip_family]
        "Time one removal of stale flows took.";
    conntrack_deleted: Counter() "kubeproxy_conntrack_reconciler_deleted_entries_total" [ip_family]
        "Stale flows removed.";
    conntrack_flows: Gauge() "ferrovia_conntrack_flows" []
        "Flows that connection tracking has in its table.";
    conntrack_flows_limit: Gauge() "ferrovia_conntrack_flows_limit" []
        "Flows that the table may have; 0 without a limit.";
    conntrack_failures: Counter() "ferrovia_conntrack_failures_total" [reason]
        "Flows that could not be entered into the table or were thrown out of it, and packets dropped for want of room, as the kernel counts.";

    // Health checks.
    healthz: Counter() "kubeproxy_proxy_healthz_total" [code]
        "Answers of /healthz.";
    livez: Counter() "kubeproxy_proxy_livez_total" [code]
        "Answers of /livez.";

    // The API server, as its clients of all kinds count it.
    api_requests: Counter() "rest_client_requests_total" [code, host, method]
        "Requests to the API server.";
    api_duration: Histogram(&REQUEST) "rest_client_request_duration_seconds" [host, verb]
        "Time to the answer of a request to the API server.";
    api_rate_limited: Histogram(&REQUEST) "rest_client_rate_limiter_duration_seconds" [host, verb]
        "Time a request was held back so as not to exceed our own rate limit.";

    // What runs.
    build: Gauge() "kubernetes_build_info"
        [build_date, compiler, git_commit, git_tree_state, git_version, go_version, major, minor, platform]
        "Always 1; the labels say which kube-proxy this one behaves like and how it was built.";
    features: Gauge() "kubernetes_feature_enabled" [name, stage]
        "Whether a feature gate is on.";
    process_cpu: Counter() "process_cpu_seconds_total" []
        "Time spent on processors.";
    process_fds: Gauge() "process_open_fds" []
        "Open file descriptors.";
    process_max_fds: Gauge() "process_max_fds" []
        "File descriptors that may be open.";
    process_resident: Gauge() "process_resident_memory_bytes" []
        "Resident memory.";
    process_start: Gauge() "process_start_time_seconds" []
        "When the process started, in seconds since 1970.";
    process_virtual: Gauge() "process_virtual_memory_bytes" []
        "Virtual memory.";
    process_max_virtual: Gauge() "process_virtual_memory_max_bytes" []
        "Virtual memory that may be used; -1 without a limit.";

    // Ours.
    ferrovia_build: Gauge() "ferrovia_build_info" [mode, version]
        "Always 1; the labels say which Ferrovia this is and how it programs the kernel.";
    phase: Histogram(&PHASE) "ferrovia_sync_phase_duration_seconds" [ip_family, phase]
        "Time a sync spent reading the kernel back (observe), deciding (plan) and writing (apply).";
    repaired: Counter() "ferrovia_rules_repaired_total" [ip_family]
        "Times somebody else had changed our rules and they were mended.";
    kernel_errors: Counter() "ferrovia_kernel_errors_total" [ip_family]
        "Conversations with the kernel that failed.";
    conntrack_removed: Counter() "ferrovia_conntrack_removed_total" [ip_family, reason]
        "Stale flows removed, by why they were stale.";
    set_overflows: Counter() "ferrovia_set_overflows_total" [ip_family, set]
        "Packets that found no room in a set that packets fill: clients that were not remembered (affinity), connections that were not counted (connections).";
    set_removed: Counter() "ferrovia_set_entries_removed_total" [ip_family, reason, set]
        "Entries removed from a set that packets fill, because their Service went (service_gone) or to make room (no_room).";
    data_age: Gauge() "ferrovia_data_age_seconds" []
        "Time since the source of objects was last known to have missed nothing.";
    watch_restarts: Counter() "ferrovia_watch_restarts_total" [resource]
        "Watches that ended and were taken up again.";
    relists: Counter() "ferrovia_relists_total" [resource]
        "Times all objects of a kind had to be listed again.";
    connections_unread: Counter() "ferrovia_connection_read_errors_total" []
        "Times the kernel's counts of connections could not be read.";
    connections_omitted: Gauge() "ferrovia_connection_series_omitted" []
        "Series of services and endpoints that were left out because there are too many.";
}

/// Milliseconds to seconds, each bound twice the one before.
static SYNC: [f64; 15] = doubling(0.001);
/// A change of one service takes well under a millisecond, so these begin lower.
static PHASE: [f64; 18] = doubling(0.0001);
static REQUEST: [f64; 12] = [
    0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0,
];
static PROGRAMMING: [f64; 80] = programming();

const fn doubling<const N: usize>(first: f64) -> [f64; N] {
    let mut bounds = [first; N];
    let mut i = 1;
    while i < N {
        bounds[i] = bounds[i - 1] * 2.0;
        i += 1;
    }
    bounds
}

/// A quarter and half a second, every second to a minute, every five to two minutes, every thirty to five.
const fn programming() -> [f64; 80] {
    let mut bounds = [0.0; 80];
    bounds[0] = 0.25;
    bounds[1] = 0.5;
    bounds[2] = 1.0;
    let mut i = 3;
    while i < bounds.len() {
        let last = bounds[i - 1];
        let step = if last < 60.0 {
            1.0
        } else if last < 120.0 {
            5.0
        } else {
            30.0
        };
        bounds[i] = last + step;
        i += 1;
    }
    bounds
}
