//! The daemon's flags that the commands that only look have as well. They are turned into the daemon's, so that both mean the same.

use clap::{Args, Parser};
use ferrovia_core::desired::NodeSettings;

use crate::config::{Config, flags};

/// Which node is meant, and what shapes its traffic.
#[derive(Debug, Args)]
pub struct ShapeFlags {
    /// Name of this node: endpoints with this nodeName are local [default: the host name]
    #[arg(long, value_name = "NAME", alias = "hostname-override")]
    node_name: Option<String>,

    /// This node's address, instead of the Node object's
    #[arg(long, value_name = "IP")]
    bind_address: Option<String>,

    /// How to tell traffic of this node's pods from other traffic: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix
    #[arg(long, value_name = "MODE", default_value = "ClusterCIDR")]
    detect_local_mode: String,

    /// Ranges of pod addresses, at most one a family (for ClusterCIDR)
    #[arg(long, value_name = "CIDR[,CIDR]")]
    cluster_cidr: Option<String>,

    /// Bridge the pods are attached to (for BridgeInterface)
    #[arg(long, value_name = "NAME")]
    pod_bridge_interface: Option<String>,

    /// What the names of the pods' interfaces begin with (for InterfaceNamePrefix)
    #[arg(long, value_name = "PREFIX")]
    pod_interface_name_prefix: Option<String>,

    /// Where node ports answer: `primary` (the node's addresses), `all`, or ranges that local addresses must be in
    #[arg(
        long,
        value_name = "CIDR[,CIDR]|primary|all",
        default_value = "primary"
    )]
    nodeport_addresses: Vec<String>,

    /// Give all traffic to cluster IPs this node's address as source
    #[arg(long)]
    masquerade_all: bool,

    /// Bit of the packet mark that asks for masquerading
    #[arg(long, value_name = "BIT", default_value_t = 14, value_parser = clap::value_parser!(u8).range(0..32))]
    masquerade_bit: u8,

    /// What becomes of packets to a Service without endpoints: reject or drop
    #[arg(long, value_name = "reject|drop", default_value = "reject")]
    no_endpoints: String,

    /// External IPs of Services that are served: `allow`, `deny`, or ranges
    #[arg(long, value_name = "allow|deny|CIDR[,CIDR]", default_value = "allow")]
    external_ips: String,

    /// Give what pods send out of the cluster this node's address as source
    #[arg(long)]
    egress_masquerade: bool,

    /// Ranges outside of the cluster that pods reach under their own address
    #[arg(long, value_name = "CIDR[,CIDR]")]
    egress_masquerade_except: Option<String>,
}

/// The flags with nothing else.
#[derive(Parser)]
struct Alone {
    #[command(flatten)]
    shape: ShapeFlags,
}

impl ShapeFlags {
    /// The settings these flags mean.
    pub fn settings(&self) -> anyhow::Result<NodeSettings> {
        let node_name = self.node_name.iter();
        let node_name = node_name.map(|name| format!("--node-name={name}"));
        let typed = flags::parse(node_name.chain(self.as_typed()))?;
        Ok(Config::load(typed)?.settings)
    }

    pub(super) fn node_name(&self) -> Option<&str> {
        self.node_name.as_deref()
    }

    /// Nothing was typed that is not so anyway.
    pub(super) fn is_default(&self) -> bool {
        let Alone { shape } = Alone::parse_from(["ferrovia"]);
        self.node_name.is_none() && self.as_typed() == shape.as_typed()
    }

    /// The daemon's flags, without the node's name.
    pub(super) fn as_typed(&self) -> Vec<String> {
        let optional = [
            ("bind-address", &self.bind_address),
            ("cluster-cidr", &self.cluster_cidr),
            ("pod-bridge-interface", &self.pod_bridge_interface),
            ("pod-interface-name-prefix", &self.pod_interface_name_prefix),
            ("egress-masquerade-except", &self.egress_masquerade_except),
        ];
        let optional = optional
            .iter()
            .filter_map(|(name, value)| Some(format!("--{name}={}", value.as_ref()?)));
        [
            format!("--detect-local-mode={}", self.detect_local_mode),
            format!("--nodeport-addresses={}", self.nodeport_addresses.join(",")),
            format!("--masquerade-all={}", self.masquerade_all),
            format!("--masquerade-bit={}", self.masquerade_bit),
            format!("--no-endpoints={}", self.no_endpoints),
            format!("--external-ips={}", self.external_ips),
            format!("--egress-masquerade={}", self.egress_masquerade),
        ]
        .into_iter()
        .chain(optional)
        .collect()
    }
}
