//! What the rules of every service depend on besides the service.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::client_filter::ClientSources;
use crate::desired::{LocalDetector, NodeRules};
use crate::dialect::iptables::{IptablesTarget, PortName};
use crate::family::Family;
use crate::plan::node_address_frontends::NodeAddressFrontends;

/// What is asked of the mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserspaceOptions {
    /// How clients' packets come to the proxies.
    pub portals: PortalMode,
    /// Node ports answer on loopback too. Only where the addresses node ports answer on include it.
    pub localhost_node_ports: bool,
}

/// How clients' packets come to the proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortalMode {
    /// Rules lead to a port that each proxy has.
    Rules {
        /// The address proxies listen on; none for all.
        listen: Option<IpAddr>,
        /// The address of this machine that packets are sent to if proxies listen on all; none if it has none but loopback.
        host: Option<IpAddr>,
    },
    /// Proxies listen on the service's addresses, which are put on an interface.
    Bind,
}

/// What the rules of every service depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UserspaceContext {
    pub(super) family: Family,
    pub(super) options: UserspaceOptions,
    pub(super) node: NodeRules,
    /// Of the addresses of the node, what Services list as theirs. Rules need not know: their order sees to it.
    pub(super) node_address_frontends: NodeAddressFrontends,
    /// Clients inside the cluster, as far as their address shows it.
    pub(super) inside: ClientSources,
}

impl UserspaceContext {
    pub(super) fn new(
        family: Family,
        options: UserspaceOptions,
        node: &NodeRules,
        node_address_frontends: NodeAddressFrontends,
    ) -> Self {
        let mut node = NodeRules {
            // They mean nothing to this mode, so a change of them is none.
            service_cidrs: Vec::new(),
            masquerade_all: false,
            masquerade_mark: 0,
            ..node.clone()
        };
        if options.portals != PortalMode::Bind {
            node.addresses = BTreeSet::new();
        }
        Self {
            family,
            options,
            node_address_frontends,
            inside: inside(&node),
            node,
        }
    }

    /// An address of the node is in a range.
    pub(super) fn covers_node(&self, net: &IpNet) -> bool {
        self.node.addresses.iter().any(|ip| net.contains(ip))
    }

    /// The address that a proxy with a port of its own listens on.
    pub(super) fn listen(&self) -> IpAddr {
        let any = match self.family {
            Family::V4 => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            Family::V6 => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        };
        self.fixed_listen().unwrap_or(any)
    }

    /// The address that proxies listen on, if it is one only.
    pub(super) fn fixed_listen(&self) -> Option<IpAddr> {
        match self.options.portals {
            PortalMode::Rules { listen, .. } => listen,
            PortalMode::Bind => None,
        }
    }

    /// What leads packets to a proxy.
    ///
    /// To an address of this machine, if one is known: redirecting needs an address on the interface that the packet came in by, which those
    /// of pods often lack. kube-proxy redirected such packets nevertheless, when pods were still behind a bridge.
    pub(super) fn target(&self, port: PortName) -> IptablesTarget {
        let address = match self.options.portals {
            PortalMode::Rules { listen, host } => listen.or(host),
            PortalMode::Bind => None,
        };
        match address {
            Some(ip) => IptablesTarget::DnatToPort(ip, port),
            None => IptablesTarget::Redirect(port),
        }
    }
}

/// The node itself and pods. An accepted connection does not show its interface, so pods detected by interface count as external clients.
fn inside(node: &NodeRules) -> ClientSources {
    let pods = match &node.local {
        LocalDetector::Source(pods) => Some(*pods),
        LocalDetector::Off | LocalDetector::Interface(_) | LocalDetector::InterfacePrefix(_) => {
            None
        }
    };
    ClientSources::node_and(node.addresses.iter().copied(), pods)
}
