//! One literal per mode. A mode that builds on another one starts from its literal (`..NFTABLES`).

use super::{LoopbackNodePorts, NodePortFallThrough, OtherPorts, Proxied, TraceProfile};
use crate::family::PerFamily;

const NO_FAMILY: PerFamily<bool> = PerFamily {
    v4: false,
    v6: false,
};

/// The nftables mode.
pub const NFTABLES: TraceProfile = TraceProfile {
    mode: "nftables",
    other_ports: OtherPorts::RejectedOnClusterIps,
    falls_through_to_node_ports: NodePortFallThrough::WithoutEndpoints,
    drops_unallocated_cluster_ips: true,
    checks_source_ranges_without_endpoints: true,
    checks_clients_after_accepting: false,
    node_sends_from_service_address: false,
    sees_interfaces: true,
    rejects_node_to_external: true,
    rejects_node_ports_on_all_addresses: false,
    masquerades_by_address: true,
    masquerades_node_to_cluster_ip: false,
    masquerades_node_port_numbers: false,
    masquerades_egress: true,
    masquerades_remote_hairpins: false,
    affinity_hashes_new_clients: true,
    supports_source_hash: true,
    local_policy_applies_to_insiders: false,
    loopback_node_ports: LoopbackNodePorts::Listeners,
    localhost_node_ports: NO_FAMILY,
    marks_before_dropping: false,
    proxied: Proxied::Loopback,
};

/// The iptables mode.
pub const IPTABLES: TraceProfile = TraceProfile {
    mode: "iptables",
    other_ports: OtherPorts::Routed,
    falls_through_to_node_ports: NodePortFallThrough::WithoutUsableEndpoints,
    drops_unallocated_cluster_ips: false,
    checks_source_ranges_without_endpoints: false,
    checks_clients_after_accepting: false,
    node_sends_from_service_address: false,
    sees_interfaces: true,
    rejects_node_to_external: false,
    rejects_node_ports_on_all_addresses: true,
    masquerades_by_address: false,
    masquerades_node_to_cluster_ip: false,
    masquerades_node_port_numbers: false,
    masquerades_egress: true,
    masquerades_remote_hairpins: true,
    affinity_hashes_new_clients: false,
    supports_source_hash: false,
    local_policy_applies_to_insiders: false,
    loopback_node_ports: LoopbackNodePorts::Listed,
    localhost_node_ports: NO_FAMILY,
    marks_before_dropping: true,
    proxied: Proxied::None,
};

/// The ipvs mode.
pub const IPVS: TraceProfile = TraceProfile {
    mode: "ipvs",
    other_ports: OtherPorts::RejectedOnServiceAddresses,
    falls_through_to_node_ports: NodePortFallThrough::Never,
    drops_unallocated_cluster_ips: false,
    checks_source_ranges_without_endpoints: true,
    checks_clients_after_accepting: false,
    node_sends_from_service_address: false,
    sees_interfaces: true,
    rejects_node_to_external: true,
    rejects_node_ports_on_all_addresses: false,
    masquerades_by_address: false,
    masquerades_node_to_cluster_ip: true,
    masquerades_node_port_numbers: true,
    masquerades_egress: true,
    masquerades_remote_hairpins: false,
    affinity_hashes_new_clients: false,
    supports_source_hash: true,
    local_policy_applies_to_insiders: true,
    loopback_node_ports: LoopbackNodePorts::None,
    localhost_node_ports: NO_FAMILY,
    marks_before_dropping: true,
    proxied: Proxied::None,
};

/// The userspace mode, with rules that redirect to its proxies.
pub const USERSPACE: TraceProfile = TraceProfile {
    mode: "userspace",
    other_ports: OtherPorts::Routed,
    falls_through_to_node_ports: NodePortFallThrough::WithoutUsableEndpoints,
    drops_unallocated_cluster_ips: false,
    checks_source_ranges_without_endpoints: false,
    checks_clients_after_accepting: false,
    node_sends_from_service_address: false,
    sees_interfaces: true,
    rejects_node_to_external: true,
    rejects_node_ports_on_all_addresses: true,
    masquerades_by_address: false,
    masquerades_node_to_cluster_ip: false,
    masquerades_node_port_numbers: false,
    masquerades_egress: true,
    masquerades_remote_hairpins: false,
    affinity_hashes_new_clients: false,
    supports_source_hash: true,
    local_policy_applies_to_insiders: false,
    loopback_node_ports: LoopbackNodePorts::All,
    localhost_node_ports: NO_FAMILY,
    marks_before_dropping: false,
    proxied: Proxied::Redirected,
};

/// The userspace mode with bind portals: its proxies listen on the Services' own addresses.
pub const BIND_PORTALS: TraceProfile = TraceProfile {
    other_ports: OtherPorts::RejectedOnServiceAddresses,
    falls_through_to_node_ports: NodePortFallThrough::Never,
    checks_clients_after_accepting: true,
    node_sends_from_service_address: true,
    sees_interfaces: false,
    masquerades_egress: false,
    loopback_node_ports: LoopbackNodePorts::Listeners,
    proxied: Proxied::ServiceAddresses,
    ..USERSPACE
};
