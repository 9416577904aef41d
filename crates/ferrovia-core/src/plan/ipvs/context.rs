//! What everything that is written depends on besides the services.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use crate::desired::{NodePortAddresses, NodeRules};
use crate::family::Family;
use crate::model::{Protocol, Scheduler};
use crate::plan::node_address_frontends::NodeAddressFrontends;

/// What is asked of the mode, and what the kernel can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpvsOptions {
    /// Chooses endpoints of Services that do not name one themselves.
    pub scheduler: Scheduler,
    /// The schedulers this kernel has.
    pub available: BTreeSet<Scheduler>,
    /// Virtual servers with addresses in these ranges are never deleted.
    pub exclude_cidrs: Vec<IpNet>,
    /// Under policy Local, traffic goes to endpoints elsewhere where there are none on this node, as with kube-proxy. Otherwise it is
    /// dropped, as in the other modes.
    pub local_fallback: bool,
}

impl Default for IpvsOptions {
    fn default() -> Self {
        Self {
            scheduler: Scheduler::RR,
            available: (Scheduler::NAMES.iter().copied())
                .filter_map(Scheduler::known)
                .collect(),
            exclude_cidrs: Vec::new(),
            local_fallback: false,
        }
    }
}

impl IpvsOptions {
    /// Servers with this address are not ours to delete.
    pub(super) fn excludes(&self, ip: IpAddr) -> bool {
        self.exclude_cidrs.iter().any(|net| net.contains(&ip))
    }
}

/// What everything that is written depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IpvsContext {
    pub(super) family: Family,
    pub(super) options: IpvsOptions,
    pub(super) node: NodeRules,
    /// Servers at the node's own addresses that are of Services which list such an address. They go before node ports of the same number.
    pub(super) node_address_frontends: NodeAddressFrontends,
}

impl IpvsContext {
    pub(super) fn new(
        family: Family,
        options: &IpvsOptions,
        node: &NodeRules,
        node_address_frontends: NodeAddressFrontends,
    ) -> Self {
        Self {
            node_address_frontends,
            family,
            options: options.clone(),
            node: NodeRules {
                // They mean nothing to this mode, so a change of them is none.
                service_cidrs: Vec::new(),
                health_checks: NodePortAddresses::Any,
                ..node.clone()
            },
        }
    }

    /// The addresses node ports answer on. There is a virtual server for each.
    pub(super) fn node_port_addresses(&self) -> &BTreeSet<IpAddr> {
        match &self.node.node_ports {
            NodePortAddresses::Any => &self.node.addresses,
            NodePortAddresses::Only(addresses) => addresses,
        }
    }

    /// Where a node port has a virtual server.
    pub(super) fn node_port_servers(
        &self,
        port: u16,
        protocol: Protocol,
    ) -> impl Iterator<Item = SocketAddr> {
        let addresses = self.node_port_addresses().iter();
        let all = addresses.map(move |address| SocketAddr::new(*address, port));
        all.filter(move |at| !self.node_address_frontends.has(*at, protocol))
    }

    /// An address of the node is in a range.
    pub(super) fn covers_node(&self, net: &IpNet) -> bool {
        self.node.addresses.iter().any(|ip| net.contains(ip))
    }

    /// An address of the node itself. The kernel knows it for its own without our device, and may not lose it with our device.
    pub(super) fn is_nodes(&self, ip: IpAddr) -> bool {
        self.node.addresses.contains(&ip)
    }
}
