//! Flags that several commands share, as typed.

use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use ferrovia_core::desired::{LocalSetting, NodePortSetting, Settings};
use ferrovia_core::family::{Family, PerFamily};
use ipnet::IpNet;

/// Which objects to use, and what shapes traffic.
#[derive(Debug, Args)]
pub struct ShapeFlags {
    /// Folder with Services, EndpointSlices (or Endpoints), and if you like a Node and ServiceCIDRs; YAML or JSON, sub-folders too
    #[arg(long, value_name = "DIR")]
    pub(super) manifests: PathBuf,

    /// Name of this node: endpoints with this nodeName are local [default: the host name]
    #[arg(long, value_name = "NAME", alias = "hostname-override")]
    node_name: Option<String>,

    /// This node's address, instead of the Node object's
    #[arg(long, value_name = "IP")]
    bind_address: Option<IpAddr>,

    /// How to tell traffic of this node's pods from other traffic
    #[arg(long, value_name = "MODE", default_value = "ClusterCIDR")]
    detect_local_mode: DetectLocalMode,

    /// Ranges of pod addresses, at most one a family (for ClusterCIDR)
    #[arg(long, value_name = "CIDR[,CIDR]", value_delimiter = ',')]
    cluster_cidr: Vec<IpNet>,

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
        value_delimiter = ',',
        default_value = "primary"
    )]
    nodeport_addresses: Vec<String>,

    /// Give all traffic to cluster IPs this node's address as source
    #[arg(long)]
    masquerade_all: bool,

    /// Bit of the packet mark that asks for masquerading
    #[arg(long, value_name = "BIT", default_value_t = 14, value_parser = clap::value_parser!(u8).range(0..32))]
    masquerade_bit: u8,
}

/// The ways to detect local traffic, spelled as kube-proxy spells them.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum DetectLocalMode {
    /// By the source address, with --cluster-cidr
    #[value(name = "ClusterCIDR")]
    ClusterCidr,
    /// By the source address, with the Node object's podCIDRs
    #[value(name = "NodeCIDR")]
    NodeCidr,
    /// By the bridge the packet comes from, with --pod-bridge-interface
    #[value(name = "BridgeInterface")]
    BridgeInterface,
    /// By the name of the interface the packet comes from, with --pod-interface-name-prefix
    #[value(name = "InterfaceNamePrefix")]
    InterfaceNamePrefix,
}

impl ShapeFlags {
    /// The settings these flags mean.
    pub fn settings(&self) -> anyhow::Result<Settings> {
        let bind_address = self.bind_address.filter(|ip| !ip.is_unspecified());
        let of = |family| bind_address.filter(|ip| Family::of(*ip) == family);
        Ok(Settings {
            node_name: self.node_name()?,
            node_ips: PerFamily::from_fn(of),
            local: self.local()?,
            masquerade_all: self.masquerade_all,
            masquerade_bit: self.masquerade_bit,
            node_ports: node_ports(&self.nodeport_addresses)?,
            external_ips: true,
        })
    }

    fn node_name(&self) -> anyhow::Result<String> {
        let name = match &self.node_name {
            Some(name) => name.clone(),
            None => std::fs::read_to_string("/proc/sys/kernel/hostname")
                .context("cannot read the host name; give --node-name")?,
        };
        let name = name.trim().to_lowercase();
        ensure!(!name.is_empty(), "--node-name: the name is empty");
        Ok(name)
    }

    fn local(&self) -> anyhow::Result<LocalSetting> {
        Ok(match self.detect_local_mode {
            DetectLocalMode::ClusterCidr => {
                LocalSetting::ClusterCidr(one_per_family(&self.cluster_cidr)?)
            }
            DetectLocalMode::NodeCidr => LocalSetting::NodeCidr,
            DetectLocalMode::BridgeInterface => LocalSetting::Interface(interface(
                self.pod_bridge_interface.as_deref(),
                "--detect-local-mode=BridgeInterface needs --pod-bridge-interface",
            )?),
            DetectLocalMode::InterfaceNamePrefix => LocalSetting::InterfacePrefix(interface(
                self.pod_interface_name_prefix.as_deref(),
                "--detect-local-mode=InterfaceNamePrefix needs --pod-interface-name-prefix",
            )?),
        })
    }
}

fn one_per_family(cidrs: &[IpNet]) -> anyhow::Result<Vec<IpNet>> {
    let v4 = cidrs
        .iter()
        .filter(|net| Family::of_net(net) == Family::V4)
        .count();
    ensure!(
        v4 <= 1 && cidrs.len() - v4 <= 1,
        "--cluster-cidr: at most one range of each family"
    );
    Ok(cidrs.iter().map(IpNet::trunc).collect())
}

/// The kernel's limit for the name of an interface.
const LONGEST_IFNAME: usize = 15;

/// Interface names end up in rules and in the text that `plan` prints.
fn interface(name: Option<&str>, missing: &'static str) -> anyhow::Result<String> {
    let name = name.filter(|name| !name.is_empty()).context(missing)?;
    let fits = name
        .bytes()
        .all(|b| b.is_ascii_graphic() && !matches!(b, b'/' | b'"' | b'\\' | b'*'));
    ensure!(
        fits && name.len() <= LONGEST_IFNAME,
        "{name:?} is not the name of an interface"
    );
    Ok(name.to_owned())
}

fn node_ports(values: &[String]) -> anyhow::Result<NodePortSetting> {
    match values {
        [] => Ok(NodePortSetting::Any),
        [word] if word == "primary" => Ok(NodePortSetting::Primary),
        [word] if word == "all" => Ok(NodePortSetting::Any),
        _ => {
            let nets = values.iter().map(|value| match value.parse::<IpNet>() {
                Ok(net) => Ok(net.trunc()),
                Err(_) if value == "primary" || value == "all" => {
                    bail!("--nodeport-addresses: {value:?} cannot be combined with anything else")
                }
                Err(_) => {
                    bail!("--nodeport-addresses: {value:?} is not a range such as 192.0.2.0/24")
                }
            });
            Ok(NodePortSetting::Cidrs(nets.collect::<anyhow::Result<_>>()?))
        }
    }
}
