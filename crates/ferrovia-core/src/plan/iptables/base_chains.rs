//! What is there whatever services there are: fixed chains, the jumps into them, and the rule that ends KUBE-SERVICES.

use super::context::{DROP_MARK, IptablesContext};
use super::names::{
    EXTERNAL_SERVICES, FIREWALL, FORWARD, MARK_DROP, MARK_MASQ, NODE_PORTS, POSTROUTING,
    PROXY_FIREWALL, SERVICES,
};
use crate::desired::{LocalDetector, NodePortAddresses, NodeRules};
use crate::dialect::iptables::{IptablesMatch, IptablesRule, IptablesTarget, TableName};
use crate::family::Family;

/// Counts packets that conntrack could not place. One counter for both families.
pub const INVALID_COUNTER: &str = "ct_state_invalid_dropped_pkts";
/// Counts connections to node ports on loopback.
pub const LOCALHOST_COUNTER: &str = "localhost_nps_accepted_pkts";

/// A chain with all its rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::plan) struct IptablesChainRules {
    pub(in crate::plan) table: TableName,
    pub(in crate::plan) name: &'static str,
    pub(in crate::plan) rules: Vec<String>,
}

/// A rule in a built-in chain that leads into one of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::plan) struct IptablesJump {
    pub(in crate::plan) table: TableName,
    pub(in crate::plan) from: &'static str,
    pub(in crate::plan) rule: String,
}

/// The chains that are ours alone and hold the same rules whatever services there are.
pub(super) fn fixed_chains(context: &IptablesContext) -> Vec<IptablesChainRules> {
    let mark = context.node.masquerade_mark;
    let chain = |table, name, rules: Vec<IptablesRule>| IptablesChainRules {
        table,
        name,
        rules: rules.iter().map(IptablesRule::to_string).collect(),
    };
    vec![
        chain(TableName::Filter, FORWARD, forward_rules(context)),
        chain(
            TableName::Nat,
            MARK_MASQ,
            vec![IptablesRule::to(IptablesTarget::Mark(mark))],
        ),
        chain(TableName::Nat, POSTROUTING, postrouting_rules(context)),
    ]
}

fn postrouting_rules(context: &IptablesContext) -> Vec<IptablesRule> {
    let mark = context.node.masquerade_mark;
    let mut rules = egress_rules(&context.node);
    rules.extend([
        IptablesRule::to(IptablesTarget::Return).with(IptablesMatch::NotMarked(mark)),
        // The mark goes, so that the packet is not masqueraded again if it passes here again, inside a tunnel.
        IptablesRule::to(IptablesTarget::InvertMark(mark)),
        IptablesRule::to(IptablesTarget::Masquerade)
            .comment("kubernetes service traffic requiring SNAT"),
    ]);
    rules
}

/// What pods send out of the cluster, where that is asked for. Marked packets are masqueraded anyway, and must lose their mark. iptables does
/// not match the interface a packet came in by this late.
pub(in crate::plan) fn egress_rules(node: &NodeRules) -> Vec<IptablesRule> {
    let (LocalDetector::Source(pods), Some(except)) = (&node.local, &node.egress_except) else {
        return Vec::new();
    };
    let from_pods = |target| {
        IptablesRule::to(target)
            .source(*pods)
            .with(IptablesMatch::NotMarked(node.masquerade_mark))
    };
    let kept = except
        .iter()
        .map(|net| from_pods(IptablesTarget::Return).destination(*net));
    let leaving = from_pods(IptablesTarget::Masquerade).comment("pods that leave the cluster");
    kept.chain([leaving]).collect()
}

fn forward_rules(context: &IptablesContext) -> Vec<IptablesRule> {
    let mut rules = Vec::new();
    if context.options.drop_invalid {
        // A late answer that conntrack does not know would go out with the endpoint's address, and the client would reset the connection.
        let counted = context.options.count_invalid;
        rules.push(
            IptablesRule::to(IptablesTarget::Drop)
                .with(IptablesMatch::State("INVALID"))
                .maybe(counted.then_some(IptablesMatch::Account(INVALID_COUNTER))),
        );
    }
    rules.push(
        IptablesRule::to(IptablesTarget::Accept)
            .comment("kubernetes forwarding rules")
            .with(IptablesMatch::Marked(context.node.masquerade_mark)),
    );
    rules.push(
        IptablesRule::to(IptablesTarget::Accept)
            .comment("kubernetes forwarding conntrack rule")
            .with(IptablesMatch::State("RELATED,ESTABLISHED")),
    );
    rules
}

/// The chains we share with the kubelet. What others have there stays; ours is added where it is missing.
pub(super) fn common_chains(context: &IptablesContext) -> Vec<IptablesChainRules> {
    let mut firewall = Vec::new();
    if context.drops_by_mark() {
        firewall.push(
            IptablesRule::to(IptablesTarget::Drop)
                .comment("kubernetes firewall for dropping marked packets")
                .with(IptablesMatch::Marked(DROP_MARK)),
        );
    }
    if context.localhost() {
        // Routing lets packets to 127.0.0.1 in from outside once node ports answer there. Only answers may come.
        firewall.push(
            IptablesRule::to(IptablesTarget::Drop)
                .not_source(Family::V4.loopback())
                .destination(Family::V4.loopback())
                .comment("block incoming localnet connections")
                .with(IptablesMatch::NotState("RELATED,ESTABLISHED,DNAT")),
        );
    }
    let mut chains = vec![IptablesChainRules {
        table: TableName::Filter,
        name: FIREWALL,
        rules: firewall.iter().map(IptablesRule::to_string).collect(),
    }];
    if context.drops_by_mark() {
        chains.push(IptablesChainRules {
            table: TableName::Nat,
            name: MARK_DROP,
            rules: vec![IptablesRule::to(IptablesTarget::Mark(DROP_MARK)).to_string()],
        });
    }
    chains
}

/// The jumps, in the order in which each is put at the head of its chain.
pub(super) fn jumps(context: &IptablesContext) -> Vec<IptablesJump> {
    let new = || Some(IptablesMatch::State("NEW"));
    let filter = TableName::Filter;
    let nat = TableName::Nat;
    let external = "kubernetes externally-visible service portals";
    let portals = "kubernetes service portals";
    let firewall = "kubernetes load balancer firewall";
    let commented = [
        (filter, "INPUT", EXTERNAL_SERVICES, new(), external),
        (filter, "FORWARD", EXTERNAL_SERVICES, new(), external),
        (
            filter,
            "INPUT",
            NODE_PORTS,
            None,
            "kubernetes health check service ports",
        ),
        (filter, "FORWARD", SERVICES, new(), portals),
        (filter, "OUTPUT", SERVICES, new(), portals),
        (
            filter,
            "FORWARD",
            FORWARD,
            None,
            "kubernetes forwarding rules",
        ),
        (filter, "INPUT", PROXY_FIREWALL, new(), firewall),
        (filter, "OUTPUT", PROXY_FIREWALL, new(), firewall),
        (filter, "FORWARD", PROXY_FIREWALL, new(), firewall),
        (nat, "OUTPUT", SERVICES, None, portals),
        (nat, "PREROUTING", SERVICES, None, portals),
        (
            nat,
            "POSTROUTING",
            POSTROUTING,
            None,
            "kubernetes postrouting rules",
        ),
    ];
    let mut jumps: Vec<IptablesJump> = commented
        .into_iter()
        .map(|(table, from, to, state, comment)| IptablesJump {
            table,
            from,
            rule: IptablesRule::jump(to)
                .maybe(state)
                .comment(comment)
                .to_string(),
        })
        .collect();
    let mut guarded = vec!["INPUT", "OUTPUT"];
    if context.drops_by_mark() {
        // Packets of pods to a cluster IP without endpoints are forwarded.
        guarded.push("FORWARD");
    }
    jumps.extend(guarded.into_iter().map(|from| IptablesJump {
        table: filter,
        from,
        rule: IptablesRule::jump(FIREWALL).to_string(),
    }));
    jumps
}

/// The rules that end nat's KUBE-SERVICES: what no service address matched may be for a node port.
pub(super) fn tail(context: &IptablesContext) -> Vec<String> {
    let to_node_ports = || {
        IptablesRule::jump(NODE_PORTS)
            .comment("kubernetes service nodeports; NOTE: this must be the last rule in this chain")
    };
    let rules = match context.node_ports() {
        NodePortAddresses::Any => {
            let rule = to_node_ports().with(IptablesMatch::DestinationIsLocal);
            vec![if context.localhost() {
                rule
            } else {
                rule.not_destination(context.family.loopback())
            }]
        }
        NodePortAddresses::Only(addresses) => {
            let addresses = addresses.iter().copied();
            addresses
                .chain(context.loopback_node_ports())
                .map(|ip| to_node_ports().destination(ip))
                .collect()
        }
    };
    rules.iter().map(IptablesRule::to_string).collect()
}
