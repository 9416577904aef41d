//! The section `ferrovia`.

use serde::{Deserialize, Serialize};

use super::{is_default, or_default};
use crate::config::duration::GoDuration;

/// `ferrovia`: what kube-proxy does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ferrovia {
    /// Count connections; absent means yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counters: Option<bool>,
    /// Folder of manifests to use in place of an API server.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub manifests: String,
    /// What becomes of packets to a Service without any endpoints: `reject` or `drop`; empty means the first.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub no_endpoints: String,
    /// What to do while another proxy writes in this network namespace: `wait` or `exit`; empty means the first.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub when_owned: String,
    /// Which external IPs are served: `allow`, `deny`, or ranges with commas between them; empty means the first.
    #[serde(
        rename = "externalIPs",
        deserialize_with = "or_default",
        skip_serializing_if = "is_default"
    )]
    pub external_ips: String,
    /// How much of a Service is served.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub limits: Limits,
    /// What pods send out of the cluster.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub egress_masquerade: EgressMasquerade,
    /// What kube-proxy's ipvs mode does not have.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub ipvs: FerroviaIpvs,
    /// Where commands ask the daemon.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub admin: Admin,
    /// The page for people.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub web: Web,
    /// For the userspace mode.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub userspace: FerroviaUserspace,
}

/// `ferrovia.limits`. What is absent has its default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Limits {
    /// Pairs of an address and a port of a Service's external IPs, and as many of its load balancers' addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frontends_per_service: Option<i32>,
    /// Ports of all Services in a namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports_per_namespace: Option<i32>,
    /// Pairs of an external IP and a port of all Services in a namespace.
    #[serde(
        rename = "externalIPFrontendsPerNamespace",
        skip_serializing_if = "Option::is_none"
    )]
    pub external_ip_frontends_per_namespace: Option<i32>,
    /// Source ranges of a Service in each family.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_ranges_per_service: Option<i32>,
}

/// `ferrovia.admin`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Admin {
    /// Path of the socket; absent means the default, empty means none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
}

/// `ferrovia.web`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Web {
    /// Where the page is served; absent, empty or port 0 means nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bind_address: Option<String>,
}

/// `ferrovia.userspace`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FerroviaUserspace {
    /// How clients' packets come to the proxy: `iptables` or `bind`; empty means the first.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub portals: String,
    /// The interface that `bind` puts service addresses on; empty means one of our own.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub interface: String,
    /// How long a flow of UDP lives without any datagram; 0 means the default.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub udp_idle_timeout: GoDuration,
}

/// `ferrovia.ipvs`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FerroviaIpvs {
    /// Where a policy wants local endpoints and there are none, use the others, as kube-proxy's ipvs mode does.
    #[serde(deserialize_with = "or_default")]
    pub local_fallback: bool,
}

/// `ferrovia.egressMasquerade`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EgressMasquerade {
    /// Give it this node's address as source.
    #[serde(deserialize_with = "or_default")]
    pub enabled: bool,
    /// Ranges that are reached under the pod's own address besides the cluster's.
    #[serde(rename = "exceptCIDRs")]
    pub except_cidrs: Option<Vec<String>>,
}
