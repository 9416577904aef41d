//! Chains, rules and jumps. They are the same whatever services there are, but for one chain.
//!
//! kube-proxy leaves a rule out while its set is empty. Here all rules are always there: an empty set matches nothing, and the first
//! service of a kind needs no rule.

use super::context::Context;
use super::sets::SetId;
use crate::desired::{LocalDetector, NoEndpoints};
use crate::dialect::iptables::{Match, Rule, TableName, Target, is_mark};
use crate::model::Protocol;
use crate::plan::iptables::DROP_MARK;
use crate::plan::iptables::base::{ChainRules, Jump, egress_rules};
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
/// The canary's absence tells that somebody removed everything. The chains we share with the kubelet are nobody's to remove.
pub fn is_own_chain(table: &str, name: &str) -> bool {
    let mut own = OWN.iter();
    name == CANARY
        || is_mark(table, name)
        || own.any(|(of, own)| of.as_str() == table && *own == name)
}

/// The same with all their rules, but for the one chain with rules of services.
pub(super) fn chains(context: &Context) -> Vec<ChainRules> {
    let maker = Maker { context };
    let chain = |table, name, rules: Vec<Rule>| ChainRules {
        table,
        name,
        rules: rules.iter().map(Rule::to_string).collect(),
    };
    let mark = context.node.masquerade_mark;
    let (nat, filter) = (TableName::Nat, TableName::Filter);
    vec![
        chain(nat, MARK_MASQ, vec![Rule::to(Target::Mark(mark))]),
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
pub(super) fn common_chains(context: &Context) -> Vec<ChainRules> {
    let mut firewall = Vec::new();
    if context.node.no_endpoints == NoEndpoints::Drop {
        firewall.push(
            Rule::to(Target::Drop)
                .comment("kubernetes firewall for dropping marked packets")
                .with(Match::Marked(DROP_MARK))
                .to_string(),
        );
    }
    vec![
        ChainRules {
            table: TableName::Filter,
            name: FIREWALL,
            rules: firewall,
        },
        ChainRules {
            table: TableName::Nat,
            name: MARK_DROP,
            rules: vec![Rule::to(Target::Mark(DROP_MARK)).to_string()],
        },
    ]
}

/// The jumps, in the order in which each is put at the head of its chain.
pub(super) fn jumps() -> Vec<Jump> {
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
    let mut jumps: Vec<Jump> = commented
        .into_iter()
        .map(|(table, from, to, comment)| Jump {
            table,
            from,
            rule: Rule::jump(to).comment(comment).to_string(),
        })
        .collect();
    let policy = Rule::jump(POLICY)
        .with(Match::State("NEW"))
        .comment("services without local endpoints");
    jumps.push(Jump {
        table: filter,
        from: "INPUT",
        rule: policy.to_string(),
    });
    jumps.extend(["INPUT", "OUTPUT"].map(|from| Jump {
        table: filter,
        from,
        rule: Rule::jump(FIREWALL).to_string(),
    }));
    jumps
}

/// The rule that keeps the node from a load balancer's address. Such packets have that address as source too, and are on their way to an
/// endpoint when they are seen here.
pub(super) fn out_rule(at: std::net::SocketAddr, protocol: Protocol) -> String {
    Rule::to(Target::Drop)
        .source(at.ip().into())
        .with(Match::Virtual(at.ip(), protocol, at.port()))
        .to_string()
}

struct Maker<'a> {
    context: &'a Context,
}

impl Maker<'_> {
    fn in_set(&self, set: SetId, places: &'static str) -> Match {
        Match::InSet(set.name(self.context.family), places)
    }

    /// A rule for packets whose destination is in a set, with the set's comment.
    fn to(&self, target: Target, set: SetId) -> Rule {
        Rule::to(target)
            .comment(set.comment())
            .with(self.in_set(set, "dst,dst"))
    }

    /// The same without a comment.
    fn bare(&self, target: Target, set: SetId) -> Rule {
        Rule::to(target).with(self.in_set(set, "dst,dst"))
    }

    fn services(&self) -> Vec<Rule> {
        let masquerade = || Target::Jump(MARK_MASQ.into());
        let mut rules = vec![
            Rule::to(Target::Return).source(self.context.family.loopback()),
            self.to(Target::Jump(MARK_DROP.into()), SetId::NoEndpoints),
            // The node is let through to endpoints elsewhere, and their answers must come back to it.
            self.to(masquerade(), SetId::NoLocal)
                .with(Match::SourceIsLocal),
            self.to(Target::Jump(LOAD_BALANCER.into()), SetId::LoadBalancer),
        ];
        rules.extend(self.masquerade_cluster_ips());
        rules.push(self.to(masquerade(), SetId::ExternalIp));
        for set in [SetId::ExternalIp, SetId::ExternalIpLocal] {
            rules.push(
                self.to(Target::Accept, set)
                    .with(Match::NotFromBridge)
                    .with(Match::SourceIsNotLocal),
            );
            rules.push(self.to(Target::Accept, set).with(Match::DestinationIsLocal));
        }
        rules.push(Rule::jump(NODE_PORT).with(Match::DestinationIsLocal));
        rules.push(self.bare(Target::Accept, SetId::ClusterIp));
        rules.push(self.bare(Target::Accept, SetId::LoadBalancer));
        rules
    }

    /// Traffic to cluster IPs that does not come from a pod needs the node's address as source to find its way back. Where pods cannot be
    /// told, at least what the node sends with a cluster IP as its own source.
    fn masquerade_cluster_ips(&self) -> Option<Rule> {
        let node = &self.context.node;
        let set = SetId::ClusterIp;
        let marked = |places| {
            Rule::jump(MARK_MASQ)
                .comment(set.comment())
                .with(self.in_set(set, places))
        };
        match &node.local {
            _ if node.masquerade_all => Some(marked("dst,dst")),
            LocalDetector::Off => Some(marked("src,dst")),
            local => only_others(local, marked("dst,dst")),
        }
    }

    fn load_balancer(&self) -> Vec<Rule> {
        vec![
            self.to(Target::Return, SetId::LoadBalancerLocal),
            Rule::jump(MARK_MASQ),
        ]
    }

    fn node_port(&self) -> Vec<Rule> {
        let of = |protocol, target, set: SetId| {
            let places = match protocol {
                Protocol::Sctp => "dst,dst",
                Protocol::Tcp | Protocol::Udp => "dst",
            };
            Rule::to(target)
                .protocol(protocol)
                .comment(set.comment())
                .with(self.in_set(set, places))
        };
        let mut rules = Vec::new();
        for protocol in Protocol::ALL {
            let local = SetId::node_port_local(protocol);
            rules.push(of(protocol, Target::Return, local));
            let all = SetId::node_port(protocol);
            rules.push(of(protocol, Target::Jump(MARK_MASQ.into()), all));
        }
        rules
    }

    fn postrouting(&self) -> Vec<Rule> {
        let mark = self.context.node.masquerade_mark;
        let mut rules = vec![
            Rule::to(Target::MasqueradeKeepingPort)
                .comment(SetId::LoopBack.comment())
                .with(self.in_set(SetId::LoopBack, "dst,dst,src")),
        ];
        rules.extend(egress_rules(&self.context.node));
        rules.extend([
            Rule::to(Target::Return).with(Match::NotMarked(mark)),
            Rule::to(Target::InvertMark(mark)),
            Rule::to(Target::Masquerade).comment("kubernetes service traffic requiring SNAT"),
        ]);
        rules
    }

    fn forward(&self) -> Vec<Rule> {
        vec![
            Rule::to(Target::Accept)
                .comment("kubernetes forwarding rules")
                .with(Match::Marked(self.context.node.masquerade_mark)),
            Rule::to(Target::Accept)
                .comment("kubernetes forwarding conntrack rule")
                .with(Match::State("RELATED,ESTABLISHED")),
        ]
    }

    fn health_checks(&self) -> Vec<Rule> {
        let set = SetId::HealthCheck;
        vec![
            Rule::to(Target::Accept)
                .comment(set.comment())
                .with(self.in_set(set, "dst")),
        ]
    }

    fn proxy_firewall(&self) -> Vec<Rule> {
        vec![self.to(Target::Jump(SOURCE_RANGES.into()), SetId::Firewall)]
    }

    fn source_ranges(&self) -> Vec<Rule> {
        let allowed = |set: SetId| {
            Rule::to(Target::Return)
                .comment(set.comment())
                .with(self.in_set(set, "dst,dst,src"))
        };
        vec![
            allowed(SetId::SourceCidr),
            allowed(SetId::SourceIp),
            Rule::to(Target::Drop),
        ]
    }

    /// Nothing but services can be reached on our device: host ports and ping are refused.
    fn filter(&self) -> Vec<Rule> {
        let mut rules: Vec<Rule> = [
            SetId::LoadBalancer,
            SetId::ClusterIp,
            SetId::ExternalIp,
            SetId::ExternalIpLocal,
        ]
        .map(|set| self.bare(Target::Return, set))
        .into();
        rules.push(Rule::to(Target::Return).with(self.in_set(SetId::HealthCheck, "dst")));
        rules.push(
            Rule::to(Target::Reject(self.context.family))
                .with(Match::State("NEW"))
                .with(self.in_set(SetId::Addresses, "dst")),
        );
        rules
    }

    /// What a policy has no endpoints for. Pods of this node and the node itself would not have left the cluster for an external address,
    /// so they may use endpoints elsewhere.
    fn policy(&self) -> Vec<Rule> {
        let mut rules = vec![self.to(Target::Drop, SetId::NoneAllowed)];
        rules.extend(only_pods(
            &self.context.node.local,
            Rule::to(Target::Return),
        ));
        rules.push(Rule::to(Target::Return).with(Match::SourceIsLocal));
        rules.push(self.to(Target::Drop, SetId::NoLocal));
        rules
    }
}
