//! Chains, rules and jumps. They are the same whatever services there are, but for one chain.
//!
//! kube-proxy leaves a rule out while its set is empty. Here all rules are always there: an empty set matches nothing, and the first
//! service of a kind needs no rule.

use super::context::IpvsContext;
use super::sets::IpvsSetId;
use crate::desired::{LocalDetector, NoEndpoints};
use crate::dialect::iptables::{IptablesMatch, IptablesRule, IptablesTarget, TableName, is_mark};
use crate::model::Protocol;
use crate::plan::iptables::DROP_MARK;
use crate::plan::iptables::base_chains::{IptablesChainRules, IptablesJump, egress_rules};
use crate::plan::iptables::context::{only_others, only_pods};
use crate::plan::iptables::names::{
    CANARY, FIREWALL, FORWARD, MARK_DROP, MARK_MASQ, POSTROUTING, PROXY_FIREWALL, SERVICES,
};

pub(super) const NODE_PORT: &str = "KUBE-NODE-PORT";
pub(super) const LOAD_BALANCER: &str = "KUBE-LOAD-BALANCER";
pub(super) const SOURCE_RANGES: &str = "KUBE-SOURCE-RANGES-FIREWALL";
pub(super) const FILTER: &str = "KUBE-IPVS-FILTER";
/// The one chain with rules of services: keeps the node from load balancers' addresses it may not use.
pub(super) const OUT_FILTER: &str = "KUBE-IPVS-OUT-FILTER";
/// Ours alone: drops what a policy Local has no endpoints for.
pub(super) const POLICY: &str = "KUBE-IPVS-POLICY";

/// The chains that are ours alone.
pub(super) const OWN: [(TableName, &str); 12] = [
    (TableName::Nat, MARK_MASQ),
    (TableName::Nat, POSTROUTING),
    (TableName::Nat, LOAD_BALANCER),
    (TableName::Nat, NODE_PORT),
    (TableName::Nat, SERVICES),
    (TableName::Filter, FORWARD),
    (TableName::Filter, NODE_PORT),
    (TableName::Filter, SOURCE_RANGES),
    (TableName::Filter, PROXY_FIREWALL),
    (TableName::Filter, FILTER),
    (TableName::Filter, OUT_FILTER),
    (TableName::Filter, POLICY),
];

/// Whether a chain is one that this mode writes or leaves in force, by table and name.
///
/// If the canary is missing, another process flushed the tables. Chains shared with the kubelet are never removed.
pub fn is_own_chain(table: &str, name: &str) -> bool {
    let mut own = OWN.iter();
    name == CANARY
        || is_mark(table, name)
        || own.any(|(of, own)| of.as_str() == table && *own == name)
}

/// The same with all their rules, but for the one chain with rules of services.
pub(super) fn chains(context: &IpvsContext) -> Vec<IptablesChainRules> {
    let maker = IpvsRuleBuilder { context };
    let chain = |table, name, rules: Vec<IptablesRule>| IptablesChainRules {
        table,
        name,
        rules: rules.iter().map(IptablesRule::to_string).collect(),
    };
    let mark = context.node.masquerade_mark;
    let (nat, filter) = (TableName::Nat, TableName::Filter);
    vec![
        chain(
            nat,
            MARK_MASQ,
            vec![IptablesRule::to(IptablesTarget::Mark(mark))],
        ),
        chain(nat, POSTROUTING, maker.postrouting()),
        chain(nat, LOAD_BALANCER, maker.load_balancer()),
        chain(nat, NODE_PORT, maker.node_port()),
        chain(nat, SERVICES, maker.services()),
        chain(filter, FORWARD, maker.forward()),
        chain(filter, NODE_PORT, maker.health_checks()),
        chain(filter, SOURCE_RANGES, maker.source_ranges()),
        chain(filter, PROXY_FIREWALL, maker.proxy_firewall()),
        chain(filter, FILTER, maker.filter()),
        chain(filter, POLICY, maker.policy()),
    ]
}

/// The chains we share with the kubelet. What others have there stays.
pub(super) fn common_chains(context: &IpvsContext) -> Vec<IptablesChainRules> {
    let mut firewall = Vec::new();
    if context.node.no_endpoints == NoEndpoints::Drop {
        firewall.push(
            IptablesRule::to(IptablesTarget::Drop)
                .comment("kubernetes firewall for dropping marked packets")
                .with(IptablesMatch::Marked(DROP_MARK))
                .to_string(),
        );
    }
    vec![
        IptablesChainRules {
            table: TableName::Filter,
            name: FIREWALL,
            rules: firewall,
        },
        IptablesChainRules {
            table: TableName::Nat,
            name: MARK_DROP,
            rules: vec![IptablesRule::to(IptablesTarget::Mark(DROP_MARK)).to_string()],
        },
    ]
}

/// The jumps, in the order in which each is put at the head of its chain.
pub(super) fn jumps() -> Vec<IptablesJump> {
    let (nat, filter) = (TableName::Nat, TableName::Filter);
    let portals = "kubernetes service portals";
    let firewall = "kube-proxy firewall rules";
    let access = "kubernetes ipvs access filter";
    let commented = [
        (nat, "OUTPUT", SERVICES, portals),
        (nat, "PREROUTING", SERVICES, portals),
        (
            nat,
            "POSTROUTING",
            POSTROUTING,
            "kubernetes postrouting rules",
        ),
        (filter, "FORWARD", FORWARD, "kubernetes forwarding rules"),
        (filter, "INPUT", NODE_PORT, "kubernetes health check rules"),
        (filter, "INPUT", PROXY_FIREWALL, firewall),
        (filter, "FORWARD", PROXY_FIREWALL, firewall),
        (filter, "INPUT", FILTER, access),
        (filter, "OUTPUT", OUT_FILTER, access),
    ];
    let mut jumps: Vec<IptablesJump> = commented
        .into_iter()
        .map(|(table, from, to, comment)| IptablesJump {
            table,
            from,
            rule: IptablesRule::jump(to).comment(comment).to_string(),
        })
        .collect();
    let policy = IptablesRule::jump(POLICY)
        .with(IptablesMatch::State("NEW"))
        .comment("services without local endpoints");
    jumps.push(IptablesJump {
        table: filter,
        from: "INPUT",
        rule: policy.to_string(),
    });
    jumps.extend(["INPUT", "OUTPUT"].map(|from| IptablesJump {
        table: filter,
        from,
        rule: IptablesRule::jump(FIREWALL).to_string(),
    }));
    jumps
}

/// The rule that keeps the node from a load balancer's address. Such packets have that address as source too, and are on their way to an
/// endpoint when they are seen here.
pub(super) fn out_rule(at: std::net::SocketAddr, protocol: Protocol) -> String {
    IptablesRule::to(IptablesTarget::Drop)
        .source(at.ip().into())
        .with(IptablesMatch::Virtual(at.ip(), protocol, at.port()))
        .to_string()
}

struct IpvsRuleBuilder<'a> {
    context: &'a IpvsContext,
}

impl IpvsRuleBuilder<'_> {
    fn in_set(&self, set: IpvsSetId, places: &'static str) -> IptablesMatch {
        IptablesMatch::InSet(set.name(self.context.family), places)
    }

    /// A rule for packets whose destination is in a set, with the set's comment.
    fn to(&self, target: IptablesTarget, set: IpvsSetId) -> IptablesRule {
        IptablesRule::to(target)
            .comment(set.comment())
            .with(self.in_set(set, "dst,dst"))
    }

    /// The same without a comment.
    fn bare(&self, target: IptablesTarget, set: IpvsSetId) -> IptablesRule {
        IptablesRule::to(target).with(self.in_set(set, "dst,dst"))
    }

    fn services(&self) -> Vec<IptablesRule> {
        let masquerade = || IptablesTarget::Jump(MARK_MASQ.into());
        let mut rules = vec![
            IptablesRule::to(IptablesTarget::Return).source(self.context.family.loopback()),
            self.to(
                IptablesTarget::Jump(MARK_DROP.into()),
                IpvsSetId::NoEndpoints,
            ),
            // The node is let through to endpoints elsewhere, and their answers must come back to it.
            self.to(masquerade(), IpvsSetId::NoLocal)
                .with(IptablesMatch::SourceIsLocal),
            self.to(
                IptablesTarget::Jump(LOAD_BALANCER.into()),
                IpvsSetId::LoadBalancer,
            ),
        ];
        rules.extend(self.masquerade_cluster_ips());
        rules.push(self.to(masquerade(), IpvsSetId::ExternalIp));
        for set in [IpvsSetId::ExternalIp, IpvsSetId::ExternalIpLocal] {
            rules.push(
                self.to(IptablesTarget::Accept, set)
                    .with(IptablesMatch::NotFromBridge)
                    .with(IptablesMatch::SourceIsNotLocal),
            );
            rules.push(
                self.to(IptablesTarget::Accept, set)
                    .with(IptablesMatch::DestinationIsLocal),
            );
        }
        rules.push(IptablesRule::jump(NODE_PORT).with(IptablesMatch::DestinationIsLocal));
        rules.push(self.bare(IptablesTarget::Accept, IpvsSetId::ClusterIp));
        rules.push(self.bare(IptablesTarget::Accept, IpvsSetId::LoadBalancer));
        rules
    }

    /// Traffic to cluster IPs that does not come from a pod needs the node's address as source, so that replies return. Without local
    /// traffic detection, at least what the node sends with a cluster IP as its own source.
    fn masquerade_cluster_ips(&self) -> Option<IptablesRule> {
        let node = &self.context.node;
        let set = IpvsSetId::ClusterIp;
        let marked = |places| {
            IptablesRule::jump(MARK_MASQ)
                .comment(set.comment())
                .with(self.in_set(set, places))
        };
        match &node.local {
            _ if node.masquerade_all => Some(marked("dst,dst")),
            LocalDetector::Off => Some(marked("src,dst")),
            local => only_others(local, marked("dst,dst")),
        }
    }

    fn load_balancer(&self) -> Vec<IptablesRule> {
        vec![
            self.to(IptablesTarget::Return, IpvsSetId::LoadBalancerLocal),
            IptablesRule::jump(MARK_MASQ),
        ]
    }

    fn node_port(&self) -> Vec<IptablesRule> {
        let of = |protocol, target, set: IpvsSetId| {
            let places = match protocol {
                Protocol::Sctp => "dst,dst",
                Protocol::Tcp | Protocol::Udp => "dst",
            };
            IptablesRule::to(target)
                .protocol(protocol)
                .comment(set.comment())
                .with(self.in_set(set, places))
        };
        let mut rules = Vec::new();
        for protocol in Protocol::ALL {
            let local = IpvsSetId::node_port_local(protocol);
            rules.push(of(protocol, IptablesTarget::Return, local));
            let all = IpvsSetId::node_port(protocol);
            rules.push(of(protocol, IptablesTarget::Jump(MARK_MASQ.into()), all));
        }
        rules
    }

    fn postrouting(&self) -> Vec<IptablesRule> {
        let mark = self.context.node.masquerade_mark;
        let mut rules = vec![
            IptablesRule::to(IptablesTarget::MasqueradeKeepingPort)
                .comment(IpvsSetId::LoopBack.comment())
                .with(self.in_set(IpvsSetId::LoopBack, "dst,dst,src")),
        ];
        rules.extend(egress_rules(&self.context.node));
        rules.extend([
            IptablesRule::to(IptablesTarget::Return).with(IptablesMatch::NotMarked(mark)),
            IptablesRule::to(IptablesTarget::InvertMark(mark)),
            IptablesRule::to(IptablesTarget::Masquerade)
                .comment("kubernetes service traffic requiring SNAT"),
        ]);
        rules
    }

    fn forward(&self) -> Vec<IptablesRule> {
        vec![
            IptablesRule::to(IptablesTarget::Accept)
                .comment("kubernetes forwarding rules")
                .with(IptablesMatch::Marked(self.context.node.masquerade_mark)),
            IptablesRule::to(IptablesTarget::Accept)
                .comment("kubernetes forwarding conntrack rule")
                .with(IptablesMatch::State("RELATED,ESTABLISHED")),
        ]
    }

    fn health_checks(&self) -> Vec<IptablesRule> {
        let set = IpvsSetId::HealthCheck;
        vec![
            IptablesRule::to(IptablesTarget::Accept)
                .comment(set.comment())
                .with(self.in_set(set, "dst")),
        ]
    }

    fn proxy_firewall(&self) -> Vec<IptablesRule> {
        vec![self.to(
            IptablesTarget::Jump(SOURCE_RANGES.into()),
            IpvsSetId::Firewall,
        )]
    }

    fn source_ranges(&self) -> Vec<IptablesRule> {
        let allowed = |set: IpvsSetId| {
            IptablesRule::to(IptablesTarget::Return)
                .comment(set.comment())
                .with(self.in_set(set, "dst,dst,src"))
        };
        vec![
            allowed(IpvsSetId::SourceCidr),
            allowed(IpvsSetId::SourceIp),
            IptablesRule::to(IptablesTarget::Drop),
        ]
    }

    /// Nothing but services can be reached on our device: host ports and ping are refused.
    fn filter(&self) -> Vec<IptablesRule> {
        let mut rules: Vec<IptablesRule> = [
            IpvsSetId::LoadBalancer,
            IpvsSetId::ClusterIp,
            IpvsSetId::ExternalIp,
            IpvsSetId::ExternalIpLocal,
        ]
        .map(|set| self.bare(IptablesTarget::Return, set))
        .into();
        rules.push(
            IptablesRule::to(IptablesTarget::Return)
                .with(self.in_set(IpvsSetId::HealthCheck, "dst")),
        );
        rules.push(
            IptablesRule::to(IptablesTarget::Reject(self.context.family))
                .with(IptablesMatch::State("NEW"))
                .with(self.in_set(IpvsSetId::Addresses, "dst")),
        );
        rules
    }

    /// What a policy has no endpoints for. Pods of this node and the node itself would not have left the cluster for an external address,
    /// so they may use endpoints elsewhere.
    fn policy(&self) -> Vec<IptablesRule> {
        let mut rules = vec![self.to(IptablesTarget::Drop, IpvsSetId::NoneAllowed)];
        rules.extend(only_pods(
            &self.context.node.local,
            IptablesRule::to(IptablesTarget::Return),
        ));
        rules.push(IptablesRule::to(IptablesTarget::Return).with(IptablesMatch::SourceIsLocal));
        rules.push(self.to(IptablesTarget::Drop, IpvsSetId::NoLocal));
        rules
    }
}
