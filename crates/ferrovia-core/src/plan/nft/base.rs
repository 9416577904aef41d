//! The chains that are always there. They depend on the node's rules and on nothing else.
//!
//! A packet's way is kube-proxy's: source ranges before translation, translation where everyone expects it (`dstnat`, `srcnat`), and
//! refusals at filter priority, where the destination of everything that has an endpoint is already another.

use super::count;
use super::layout::{
    BY_SOURCE, CLASS_BITS, MASQUERADE, PORT_BITS, SetId, TAG, chain, node_port_key, service_key,
};
use crate::desired::{LocalDetector, NoEndpoints, NodePortAddresses, NodeRules};
use crate::dialect::nft::{
    Chain, ChainKind, Field, Hook, HookPoint, Match, Name, PriorityValue, Rule, Sense, Statement,
};
use crate::family::Family;

/// Before anything is translated.
const BEFORE_DNAT: i32 = -110;
/// Where destinations are translated.
const DNAT: i32 = -100;
/// Where packets are filtered.
const FILTER: i32 = 0;
/// Where sources are translated.
const SNAT: i32 = 100;

/// A chain with its rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChainRules {
    pub(super) chain: Chain,
    pub(super) rules: Vec<Rule>,
}

impl ChainRules {
    pub(super) fn plain(name: impl Into<Name>, rules: Vec<Rule>) -> Self {
        Self {
            chain: Chain {
                name: name.into(),
                hook: None,
            },
            rules,
        }
    }
}

/// All fixed chains, those that are jumped to before those that jump.
pub(super) fn chains(node: &NodeRules, family: Family, counters: bool) -> Vec<ChainRules> {
    let mut all = vec![
        ChainRules::plain(chain::REJECTING, refuse(Statement::Reject, counters)),
        ChainRules::plain(chain::DROPPING, refuse(Statement::Drop, counters)),
        ChainRules::plain(chain::PICK, vec![pick()]),
        ChainRules::plain(chain::EXTERNAL_LOCAL, external_local(node)),
        ChainRules::plain(chain::DISPATCH, dispatch(node)),
        ChainRules::plain(chain::SERVICES, services(node, family)),
        ChainRules::plain(chain::FIREWALL, vec![firewall()]),
        ChainRules::plain(chain::SERVICE_REFUSALS, service_refusals(node)),
        ChainRules::plain(chain::NODE_PORT_REFUSALS, node_port_refusals(node, family)),
        ChainRules::plain(chain::CLUSTER_IPS_CHECK, cluster_ips_check(node)),
        ChainRules::plain(chain::MASQUERADING, masquerading(node)),
    ];
    all.extend(hooks());
    if counters {
        all.extend(count::chains(node));
    }
    all
}

/// The chains packets enter by.
fn hooks() -> [ChainRules; 8] {
    use ChainKind::{Filter, Nat};
    use HookPoint::{Forward, Input, Output, Postrouting, Prerouting};
    let hook = |name: &'static str, kind, point, priority, rules| ChainRules {
        chain: Chain {
            name: name.into(),
            hook: Some(Hook {
                kind,
                point,
                priority,
            }),
        },
        rules,
    };
    let new =
        |target: &'static str| Rule::when(Match::CtStateNew).then(Statement::Jump(target.into()));
    let all = |target: &'static str| Rule::always(Statement::Jump(target.into()));
    let refusals = || vec![new(chain::SERVICE_REFUSALS), new(chain::CLUSTER_IPS_CHECK)];
    [
        hook(
            "filter-prerouting-pre-dnat",
            Filter,
            Prerouting,
            BEFORE_DNAT,
            vec![new(chain::FIREWALL)],
        ),
        hook(
            "filter-output-pre-dnat",
            Filter,
            Output,
            BEFORE_DNAT,
            vec![new(chain::FIREWALL)],
        ),
        hook(
            "filter-input",
            Filter,
            Input,
            FILTER,
            vec![new(chain::NODE_PORT_REFUSALS), new(chain::SERVICE_REFUSALS)],
        ),
        hook("filter-forward", Filter, Forward, FILTER, refusals()),
        hook("filter-output", Filter, Output, FILTER, refusals()),
        hook(
            "nat-prerouting",
            Nat,
            Prerouting,
            DNAT,
            vec![all(chain::SERVICES)],
        ),
        hook("nat-output", Nat, Output, DNAT, vec![all(chain::SERVICES)]),
        hook(
            "nat-postrouting",
            Nat,
            Postrouting,
            SNAT,
            vec![all(chain::MASQUERADING)],
        ),
    ]
}

/// Finds the service a packet is for and notes its id.
fn services(node: &NodeRules, family: Family) -> Vec<Rule> {
    let found =
        |key, map: SetId| Statement::SetPriority(PriorityValue::Map(key, map.name().into()));
    let dispatch = || Statement::Goto(chain::DISPATCH.into());
    let by_address = Rule::always(found(service_key(), SetId::Services)).then(dispatch());
    let by_node_port = at_node_port(node, family, true)
        .then(found(node_port_key(), SetId::NodePorts))
        .then(dispatch());
    masquerade_cluster_ips(node)
        .into_iter()
        .chain([by_address, by_node_port])
        .collect()
}

/// Traffic to cluster IPs keeps its source if it comes from a pod of this node: replies come back here anyway. Other sources are
/// masqueraded so that they do, unless we cannot tell them apart.
fn masquerade_cluster_ips(node: &NodeRules) -> Option<Rule> {
    let to_cluster_ip = Match::InSet(
        vec![Field::Daddr],
        SetId::ClusterIps.name().into(),
        Sense::Is,
    );
    let mark = Statement::MarkOr(node.masquerade_mark);
    if node.masquerade_all {
        return Some(
            Rule::when(to_cluster_ip)
                .then(mark)
                .because("masquerade all cluster IP traffic"),
        );
    }
    let elsewhere = from_pod(&node.local, Sense::IsNot)?;
    let rule = Rule::when(to_cluster_ip).and(elsewhere).then(mark);
    Some(rule.because("masquerade cluster IP traffic from elsewhere"))
}

/// Whether a packet comes from a pod of this node, if that can be told. Interfaces are matched by name, not by index: an interface may
/// come and go while the rule stays.
fn from_pod(local: &LocalDetector, sense: Sense) -> Option<Match> {
    match local {
        LocalDetector::Off => None,
        LocalDetector::Source(net) => Some(Match::Source(*net, sense)),
        LocalDetector::Interface(name) => Some(Match::InputInterface(name.clone(), sense)),
        LocalDetector::InterfacePrefix(prefix) => {
            Some(Match::InputInterfacePrefix(prefix.clone(), sense))
        }
    }
}

/// The beginning of a rule about node ports. `ask_fib`: the packet may still be for someone else.
fn at_node_port(node: &NodeRules, family: Family, ask_fib: bool) -> Rule {
    match &node.node_ports {
        NodePortAddresses::Only(_) => Rule::when(Match::InSet(
            vec![Field::Daddr],
            SetId::NodePortIps.name().into(),
            Sense::Is,
        )),
        NodePortAddresses::Any => {
            let not_loopback = Match::Destination(family.loopback(), Sense::IsNot);
            if ask_fib {
                Rule::when(Match::LocalDestination).and(not_loopback)
            } else {
                Rule::when(not_loopback)
            }
        }
    }
}

/// Does what the id asks for.
fn dispatch(node: &NodeRules) -> Vec<Rule> {
    vec![
        Rule::when(Match::PriorityBits(MASQUERADE)).then(Statement::MarkOr(node.masquerade_mark)),
        Rule::when(Match::PriorityBits(BY_SOURCE))
            .then(Statement::Goto(chain::EXTERNAL_LOCAL.into())),
        Rule::always(Statement::Goto(chain::PICK.into())),
    ]
}

/// External traffic under policy Local: pods and the node itself may use any endpoint, as they would by the cluster IP.
fn external_local(node: &NodeRules) -> Vec<Rule> {
    let list_of = |map: SetId| {
        Statement::SetPriority(PriorityValue::Map(
            vec![Field::PriorityBits(PORT_BITS)],
            map.name().into(),
        ))
    };
    let pick = || Statement::Goto(chain::PICK.into());
    let pods = from_pod(&node.local, Sense::Is).map(|from_pod| {
        Rule::when(from_pod)
            .then(list_of(SetId::ExternalInside))
            .then(pick())
            .because("pods may use any endpoint")
    });
    let this_node = Rule::when(Match::LocalSource)
        .then(Statement::MarkOr(node.masquerade_mark))
        .then(list_of(SetId::ExternalInside))
        .then(pick())
        .because("this node may use any endpoint");
    let outside = Rule::always(list_of(SetId::ExternalOutside)).then(pick());
    pods.into_iter().chain([this_node, outside]).collect()
}

/// Goes on in the chain for the way to pick. Both `dispatch` and `external-local` end here: the kernel allows no loops.
fn pick() -> Rule {
    Rule::always(Statement::Vmap(
        vec![Field::PriorityBits(CLASS_BITS)],
        SetId::Picks.name().into(),
    ))
}

/// Load balancer addresses with source ranges let in only those.
fn firewall() -> Rule {
    let mut service_and_source = service_key();
    service_and_source.push(Field::Saddr);
    Rule::when(Match::InSet(
        service_key(),
        SetId::Restricted.name().into(),
        Sense::Is,
    ))
    .and(Match::InSet(
        service_and_source,
        SetId::AllowedSources.name().into(),
        Sense::IsNot,
    ))
    .then(Statement::Drop)
}

/// The end of a refused packet.
fn refuse(how: Statement, counters: bool) -> Vec<Rule> {
    let counted = counters.then(count::count_refusal);
    counted.into_iter().chain([Rule::always(how)]).collect()
}

/// Packets to services that have no endpoint for them. Those that had one have another destination by now.
fn service_refusals(node: &NodeRules) -> Vec<Rule> {
    let in_set = |set: SetId| Rule::when(Match::InSet(service_key(), set.name().into(), Sense::Is));
    vec![
        in_set(SetId::RejectedServices).then(without_endpoints(node)),
        in_set(SetId::DroppedServices).then(Statement::Goto(chain::DROPPING.into())),
    ]
}

fn node_port_refusals(node: &NodeRules, family: Family) -> Vec<Rule> {
    // Only packets for this node come by the input hook, so the routing table need not be asked again.
    let in_set = |set: SetId| {
        at_node_port(node, family, false).and(Match::InSet(
            node_port_key(),
            set.name().into(),
            Sense::Is,
        ))
    };
    vec![
        in_set(SetId::RejectedNodePorts).then(without_endpoints(node)),
        in_set(SetId::DroppedNodePorts).then(Statement::Goto(chain::DROPPING.into())),
    ]
}

/// Where packets to services without any endpoint go. Dropped ones stay in the sets of rejected ones, so that it can still be told why.
fn without_endpoints(node: &NodeRules) -> Statement {
    let end = match node.no_endpoints {
        NoEndpoints::Reject => chain::REJECTING,
        NoEndpoints::Drop => chain::DROPPING,
    };
    Statement::Goto(end.into())
}

/// Packets to cluster IPs that no service took.
fn cluster_ips_check(node: &NodeRules) -> Vec<Rule> {
    let wrong_port = Rule::when(Match::InSet(
        vec![Field::Daddr],
        SetId::ClusterIps.name().into(),
        Sense::Is,
    ))
    .then(Statement::Reject)
    .because("no such port");
    let unallocated = node.service_cidrs.iter().map(|cidr| {
        Rule::when(Match::Destination(*cidr, Sense::Is))
            .then(Statement::Drop)
            .because("no such cluster IP")
    });
    [wrong_port].into_iter().chain(unallocated).collect()
}

/// The last stop: cleans the scratch register and gives connections this node's address where asked for.
fn masquerading(node: &NodeRules) -> Vec<Rule> {
    let hairpin = vec![Field::Saddr, Field::Daddr, Field::L4Proto, Field::Dport];
    let services = [
        Rule::when(Match::CtStatusDnat)
            .and(Match::PriorityBits(TAG))
            .then(Statement::SetPriority(PriorityValue::None)),
        Rule::when(Match::MarkBits(node.masquerade_mark))
            .then(Statement::MarkXor(node.masquerade_mark))
            .then(Statement::Masquerade),
        Rule::when(Match::CtStatusDnat)
            .and(Match::InSet(
                hairpin,
                SetId::Hairpin.name().into(),
                Sense::Is,
            ))
            .then(Statement::Masquerade)
            .because("an endpoint that reached itself"),
    ];
    services.into_iter().chain(egress(node)).collect()
}

/// What pods send out of the cluster, where that is asked for. Interfaces that packets came in by are not known to every kernel this late.
fn egress(node: &NodeRules) -> Option<Rule> {
    let (LocalDetector::Source(pods), Some(except)) = (&node.local, &node.egress_except) else {
        return None;
    };
    let from_pods = Rule::when(Match::Source(*pods, Sense::Is));
    let leaving = except.iter().fold(from_pods, |rule, net| {
        rule.and(Match::Destination(*net, Sense::IsNot))
    });
    Some(
        leaving
            .then(Statement::Masquerade)
            .because("pods that leave the cluster"),
    )
}
