//! `KubeProxyConfiguration` v1alpha1, and our own section, as written in a file. Both ways: what is read here is written by `--write-config-to`
//! and served at `/configz`.
//!
//! Fields are as they come: an empty text or a zero is often the same as nothing, as it is to kube-proxy, and `defaults.rs`
//! fills it in. What may be absent and zero with different meanings is an `Option`. `logging.rs` has the section that all of Kubernetes'
//! programs share, `ours.rs` what kube-proxy does not have.

mod logging;
mod ours;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::duration::GoDuration;

pub use self::logging::{LogOptions, LogStream, Logging, VModule};
pub use self::ours::{
    Admin, EgressMasquerade, Ferrovia, FerroviaIpvs, FerroviaUserspace, Limits, Web,
};

/// The one `apiVersion` there is.
pub const API_VERSION: &str = "kubeproxy.config.k8s.io/v1alpha1";
/// The one `kind` there is.
pub const KIND: &str = "KubeProxyConfiguration";

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Document {
    /// [`API_VERSION`].
    #[serde(deserialize_with = "or_default")]
    pub api_version: String,
    /// [`KIND`].
    #[serde(deserialize_with = "or_default")]
    pub kind: String,
    /// Feature gates that are not at their default.
    #[serde(
        deserialize_with = "or_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub feature_gates: BTreeMap<String, bool>,
    /// How to reach the API server.
    #[serde(deserialize_with = "or_default")]
    pub client_connection: ClientConnection,
    /// What is logged, and how.
    #[serde(deserialize_with = "or_default")]
    pub logging: Logging,
    /// This node's name; empty means the host name.
    #[serde(deserialize_with = "or_default")]
    pub hostname_override: String,
    /// This node's address, despite its name.
    #[serde(deserialize_with = "or_default")]
    pub bind_address: String,
    /// Where health is served.
    #[serde(deserialize_with = "or_default")]
    pub healthz_bind_address: String,
    /// Where metrics are served.
    #[serde(deserialize_with = "or_default")]
    pub metrics_bind_address: String,
    /// End if one of the two addresses cannot be bound.
    #[serde(deserialize_with = "or_default")]
    pub bind_address_hard_fail: bool,
    /// Serve profiles on the metrics address.
    #[serde(deserialize_with = "or_default")]
    pub enable_profiling: bool,
    /// Show the metrics that this version has hidden.
    #[serde(deserialize_with = "or_default")]
    pub show_hidden_metrics_for_version: String,
    /// `nftables`, `iptables`, `ipvs`, `userspace`; empty means the best this machine can do.
    #[serde(deserialize_with = "or_default")]
    pub mode: String,
    /// For the iptables mode, and partly for others.
    #[serde(deserialize_with = "or_default")]
    pub iptables: Iptables,
    /// For the ipvs mode.
    #[serde(deserialize_with = "or_default")]
    pub ipvs: Ipvs,
    /// For the nftables mode.
    #[serde(deserialize_with = "or_default")]
    pub nftables: Nftables,
    /// For Windows; read and written, not used.
    #[serde(deserialize_with = "or_default")]
    pub winkernel: Winkernel,
    /// How pods' traffic is told: `ClusterCIDR`, `NodeCIDR`, `BridgeInterface`, `InterfaceNamePrefix`.
    #[serde(deserialize_with = "or_default")]
    pub detect_local_mode: String,
    /// What that needs to know.
    #[serde(deserialize_with = "or_default")]
    pub detect_local: DetectLocal,
    /// The pods' ranges, one or two with a comma between.
    #[serde(rename = "clusterCIDR", deserialize_with = "or_default")]
    pub cluster_cidr: String,
    /// Where node ports answer.
    pub node_port_addresses: Option<Vec<String>>,
    /// For `/proc/self/oom_score_adj`.
    pub oom_score_adj: Option<i32>,
    /// Limits and time-outs of connection tracking.
    #[serde(deserialize_with = "or_default")]
    pub conntrack: Conntrack,
    /// How often kube-proxy tells itself of all objects again; read and written, not used.
    #[serde(deserialize_with = "or_default")]
    pub config_sync_period: GoDuration,
    /// The ports that the userspace mode may proxy by. In other modes without effect, and written as empty as kube-proxy writes it.
    #[serde(deserialize_with = "or_default", rename = "portRange")]
    pub port_range: String,
    /// For Windows; read and written, not used.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub windows_run_as_service: bool,
    /// What kube-proxy does not have.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub ferrovia: Ferrovia,
}

/// `clientConnection`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientConnection {
    /// Path of the kubeconfig; empty means the pod's service account.
    #[serde(deserialize_with = "or_default")]
    pub kubeconfig: String,
    /// `Accept` of every request, if not made from `content_type`.
    #[serde(deserialize_with = "or_default")]
    pub accept_content_types: String,
    /// The wire format asked for.
    #[serde(deserialize_with = "or_default")]
    pub content_type: String,
    /// Requests a second; negative means no limit.
    #[serde(deserialize_with = "or_default", serialize_with = "short_number")]
    pub qps: f32,
    /// Requests at once before `qps` holds.
    #[serde(deserialize_with = "or_default")]
    pub burst: i32,
}

/// `iptables`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Iptables {
    /// The bit of the packet mark that asks for masquerading, for ipvs too.
    pub masquerade_bit: Option<i32>,
    /// Masquerade everything to cluster IPs, for ipvs too.
    #[serde(deserialize_with = "or_default")]
    pub masquerade_all: bool,
    /// Node ports answer on 127.0.0.1.
    pub localhost_node_ports: Option<bool>,
    /// See [`Pace`](crate::sync::Pace).
    #[serde(deserialize_with = "or_default")]
    pub sync_period: GoDuration,
    /// See [`Pace`](crate::sync::Pace).
    #[serde(deserialize_with = "or_default")]
    pub min_sync_period: GoDuration,
}

/// `nftables`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Nftables {
    /// The bit of the packet mark that asks for masquerading.
    pub masquerade_bit: Option<i32>,
    /// Masquerade everything to cluster IPs.
    #[serde(deserialize_with = "or_default")]
    pub masquerade_all: bool,
    /// See [`Pace`](crate::sync::Pace).
    #[serde(deserialize_with = "or_default")]
    pub sync_period: GoDuration,
    /// See [`Pace`](crate::sync::Pace).
    #[serde(deserialize_with = "or_default")]
    pub min_sync_period: GoDuration,
}

/// `ipvs`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ipvs {
    /// See [`Pace`](crate::sync::Pace).
    #[serde(deserialize_with = "or_default")]
    pub sync_period: GoDuration,
    /// See [`Pace`](crate::sync::Pace).
    #[serde(deserialize_with = "or_default")]
    pub min_sync_period: GoDuration,
    /// The kernel's name of the way to choose an endpoint.
    #[serde(deserialize_with = "or_default")]
    pub scheduler: String,
    /// Virtual servers that are not ours to remove.
    #[serde(rename = "excludeCIDRs")]
    pub exclude_cidrs: Option<Vec<String>>,
    /// Answer ARP for cluster IPs on no interface but their own.
    #[serde(rename = "strictARP", deserialize_with = "or_default")]
    pub strict_arp: bool,
    /// Time-out of idle TCP connections.
    #[serde(deserialize_with = "or_default")]
    pub tcp_timeout: GoDuration,
    /// Time-out of TCP connections after a FIN.
    #[serde(deserialize_with = "or_default")]
    pub tcp_fin_timeout: GoDuration,
    /// Time-out of UDP.
    #[serde(deserialize_with = "or_default")]
    pub udp_timeout: GoDuration,
}

/// `winkernel`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Winkernel {
    /// Of the Windows mode.
    #[serde(deserialize_with = "or_default")]
    pub network_name: String,
    /// Of the Windows mode.
    #[serde(deserialize_with = "or_default")]
    pub source_vip: String,
    /// Of the Windows mode.
    #[serde(rename = "enableDSR", deserialize_with = "or_default")]
    pub enable_dsr: bool,
    /// Of the Windows mode.
    #[serde(deserialize_with = "or_default")]
    pub root_hns_endpoint_name: String,
    /// Of the Windows mode.
    #[serde(deserialize_with = "or_default")]
    pub forward_health_check_vip: bool,
}

/// `detectLocal`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DetectLocal {
    /// For `BridgeInterface`.
    #[serde(deserialize_with = "or_default")]
    pub bridge_interface: String,
    /// For `InterfaceNamePrefix`.
    #[serde(deserialize_with = "or_default")]
    pub interface_name_prefix: String,
}

/// `conntrack`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Conntrack {
    /// The number of connections tracked, whatever the next two say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<i32>,
    /// Connections tracked for each CPU; 0 leaves the kernel's limit alone.
    pub max_per_core: Option<i32>,
    /// The least number of connections tracked.
    pub min: Option<i32>,
    /// Time-out of established TCP connections; 0 leaves the kernel's alone.
    pub tcp_established_timeout: Option<GoDuration>,
    /// Time-out of half-closed TCP connections; 0 leaves the kernel's alone.
    pub tcp_close_wait_timeout: Option<GoDuration>,
    /// Do not mark packets outside the window as invalid.
    #[serde(deserialize_with = "or_default")]
    pub tcp_be_liberal: bool,
    /// Time-out of UDP without an answer; 0 leaves the kernel's alone.
    #[serde(deserialize_with = "or_default")]
    pub udp_timeout: GoDuration,
    /// Time-out of UDP with answers; 0 leaves the kernel's alone.
    #[serde(deserialize_with = "or_default")]
    pub udp_stream_timeout: GoDuration,
}

impl Document {
    /// One with every field that can be left out put in: its keys are all keys there are.
    pub(super) fn with_every_field() -> Self {
        let entry = VModule::default();
        let stream = LogStream {
            split_stream: true,
            ..LogStream::default()
        };
        let mut document = Self {
            feature_gates: BTreeMap::from([(String::new(), true)]),
            windows_run_as_service: true,
            ferrovia: Ferrovia {
                counters: Some(true),
                manifests: "/".to_owned(),
                no_endpoints: "drop".to_owned(),
                when_owned: "exit".to_owned(),
                external_ips: "deny".to_owned(),
                limits: Limits {
                    frontends_per_service: Some(1),
                    ports_per_namespace: Some(1),
                    external_ip_frontends_per_namespace: Some(1),
                    source_ranges_per_service: Some(1),
                },
                egress_masquerade: EgressMasquerade {
                    enabled: true,
                    except_cidrs: None,
                },
                ipvs: FerroviaIpvs {
                    local_fallback: true,
                },
                admin: Admin {
                    socket: Some(String::new()),
                },
                web: Web {
                    bind_address: Some(String::new()),
                },
                userspace: FerroviaUserspace {
                    portals: "bind".to_owned(),
                    interface: "lo".to_owned(),
                    udp_idle_timeout: GoDuration::from_nanos(1),
                },
            },
            ..Self::default()
        };
        document.conntrack.max = Some(0);
        document.logging.vmodule = vec![entry];
        document.logging.options.text = stream.clone();
        document.logging.options.json = stream;
        document
    }
}

/// To Go's decoder a null is the same as nothing, whatever the field's type.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// By way of its shortest text: 5 has no decimals, and 0.1 does not grow the digits of the nearest number of 64 bits.
fn short_number<S: Serializer>(number: &f32, serializer: S) -> Result<S::Ok, S::Error> {
    let text = number.to_string();
    match (text.parse::<i64>(), text.parse::<f64>()) {
        (Ok(whole), _) => serializer.serialize_i64(whole),
        (_, Ok(decimal)) => serializer.serialize_f64(decimal),
        _ => serializer.serialize_f32(*number),
    }
}
