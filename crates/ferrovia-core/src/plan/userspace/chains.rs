//! The chains of the portals and the ways into them, whatever services there are.
//!
//! The names, the comments and the places are those of kube-proxy's userspace mode, so that either finds what the other has left. Refusals, which
//! that mode did not know, are in KUBE-PROXY-FIREWALL.

use ipnet::IpNet;

use super::context::UserspaceContext;
use crate::desired::{LocalDetector, NodePortAddresses};
use crate::dialect::iptables::{IptablesMatch, IptablesRule, IptablesTarget, TableName, is_mark};
use crate::plan::iptables::names::{CANARY, POSTROUTING, PROXY_FIREWALL};

/// A chain that service ports put rules into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum PortalChain {
    /// Leads from service addresses to proxies, for packets from elsewhere.
    PortalsContainer,
    /// The same for packets of this machine itself.
    PortalsHost,
    /// Leads from node ports to proxies, for packets from elsewhere.
    NodePortContainer,
    /// The same for packets of this machine itself.
    NodePortHost,
    /// Lets what came by a node port in, where a firewall would not.
    NonLocal,
    /// Refuses what no proxy may take.
    Firewall,
}

impl PortalChain {
    pub(super) const ALL: [Self; 6] = [
        Self::PortalsContainer,
        Self::PortalsHost,
        Self::NodePortContainer,
        Self::NodePortHost,
        Self::NonLocal,
        Self::Firewall,
    ];

    pub(super) fn table(self) -> TableName {
        match self {
            Self::NonLocal | Self::Firewall => TableName::Filter,
            _ => TableName::Nat,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::PortalsContainer => "KUBE-PORTALS-CONTAINER",
            Self::PortalsHost => "KUBE-PORTALS-HOST",
            Self::NodePortContainer => "KUBE-NODEPORT-CONTAINER",
            Self::NodePortHost => "KUBE-NODEPORT-HOST",
            Self::NonLocal => "KUBE-NODEPORT-NON-LOCAL",
            Self::Firewall => PROXY_FIREWALL,
        }
    }
}

/// Whether a chain is one that this mode writes, by table and name.
pub fn is_portal_chain(table: &str, name: &str) -> bool {
    let is = |chain: &PortalChain| chain.table().as_str() == table && chain.name() == name;
    let is_canary = table == TableName::Mangle.as_str() && name == CANARY;
    PortalChain::ALL.iter().any(is) || is_canary || is_mark(table, name)
}

/// The same where what pods send out of the cluster is masqueraded.
pub fn is_portal_or_egress_chain(table: &str, name: &str) -> bool {
    is_portal_chain(table, name) || (table == TableName::Nat.as_str() && name == POSTROUTING)
}

/// A rule in a built-in chain that leads into one of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PortalJump {
    pub(super) table: TableName,
    pub(super) from: &'static str,
    pub(super) to: &'static str,
    pub(super) rule: String,
    pub(super) place: JumpPosition,
}

/// Where a jump is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JumpPosition {
    Head,
    /// Behind the rules of others, who may have plans for a local port.
    End,
}

/// The jumps, in the order in which they are written: of those at the head of a chain the last one is met first.
pub(super) fn jumps(context: &UserspaceContext) -> Vec<PortalJump> {
    let jump = |from, to: PortalChain, rule: &IptablesRule, place| PortalJump {
        table: to.table(),
        from,
        to: to.name(),
        rule: rule.to_string(),
        place,
    };
    let mut jumps = Vec::new();
    for (from, to) in [
        ("PREROUTING", PortalChain::PortalsContainer),
        ("OUTPUT", PortalChain::PortalsHost),
    ] {
        let rule = IptablesRule::jump(to.name())
            .comment("handle ClusterIPs; NOTE: this must be before the NodePort rules");
        jumps.push(jump(from, to, &rule, JumpPosition::Head));
    }
    for (from, to) in [
        ("PREROUTING", PortalChain::NodePortContainer),
        ("OUTPUT", PortalChain::NodePortHost),
    ] {
        let rules = node_port_rules(context, to);
        jumps.extend(
            rules
                .iter()
                .map(|rule| jump(from, to, rule, JumpPosition::End)),
        );
    }
    let rule = IptablesRule::jump(PortalChain::NonLocal.name())
        .comment("Ensure that non-local NodePort traffic can flow");
    jumps.push(jump(
        "INPUT",
        PortalChain::NonLocal,
        &rule,
        JumpPosition::Head,
    ));
    // Before the one above, which would let in who calls a proxy's own port.
    for from in ["INPUT", "FORWARD", "OUTPUT"] {
        let rule = IptablesRule::jump(PortalChain::Firewall.name())
            .with(IptablesMatch::State("NEW"))
            .comment("kubernetes load balancer firewall");
        jumps.push(jump(from, PortalChain::Firewall, &rule, JumpPosition::Head));
    }
    if !egress_rules(context).is_empty() {
        let rule = IptablesRule::jump(POSTROUTING).comment("kubernetes postrouting rules");
        jumps.push(PortalJump {
            table: TableName::Nat,
            from: "POSTROUTING",
            to: POSTROUTING,
            rule: rule.to_string(),
            place: JumpPosition::Head,
        });
    }
    jumps
}

/// Whatever is sent to this machine, or to those of its addresses that node ports answer on.
fn node_port_rules(context: &UserspaceContext, to: PortalChain) -> Vec<IptablesRule> {
    let comment = "handle service NodePorts; NOTE: this must be the last rule in the chain";
    let loopback = context.family.loopback();
    match &context.node.node_ports {
        NodePortAddresses::Any => {
            let rule = IptablesRule::jump(to.name())
                .with(IptablesMatch::DestinationIsLocal)
                .comment(comment);
            vec![if context.options.localhost_node_ports {
                rule
            } else {
                rule.not_destination(loopback)
            }]
        }
        NodePortAddresses::Only(addresses) => {
            let own = addresses.iter().map(|ip| IpNet::from(*ip));
            let loopback = context.options.localhost_node_ports.then_some(loopback);
            own.chain(loopback)
                .map(|net| {
                    IptablesRule::jump(to.name())
                        .destination(net)
                        .comment(comment)
                })
                .collect()
        }
    }
}

/// The chain for what pods send out of the cluster, with its rules, where that is asked for.
pub(super) fn egress(context: &UserspaceContext) -> Option<(&'static str, Vec<String>)> {
    let rules = egress_rules(context);
    let rules: Vec<String> = rules.iter().map(IptablesRule::to_string).collect();
    (!rules.is_empty()).then_some((POSTROUTING, rules))
}

fn egress_rules(context: &UserspaceContext) -> Vec<IptablesRule> {
    let (LocalDetector::Source(pods), Some(except)) =
        (&context.node.local, &context.node.egress_except)
    else {
        return Vec::new();
    };
    let from_pods = |target| IptablesRule::to(target).source(*pods);
    let kept = except
        .iter()
        .map(|net| from_pods(IptablesTarget::Return).destination(*net));
    let leaving = from_pods(IptablesTarget::Masquerade).comment("pods that leave the cluster");
    kept.chain([leaving]).collect()
}
