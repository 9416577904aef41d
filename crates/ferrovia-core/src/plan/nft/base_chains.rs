//! The chains that are always there. They depend on the node's rules and on nothing else.
//!
//! A packet's way is kube-proxy's: source ranges before translation, translation where everyone expects it (`dstnat`, `srcnat`), and
//! refusals at filter priority, where the destination of everything that has an endpoint is already another.

use super::connection_counts;
use super::layout::{
    BY_SOURCE, CLASS_BITS, MASQUERADE, NftSetId, PORT_BITS, TAG, chain, node_port_key, service_key,
};
use crate::desired::{LocalDetector, NoEndpoints, NodePortAddresses, NodeRules};
use crate::dialect::nft::{
    ChainKind, Field, Hook, HookPoint, NftChain, NftMatch, NftName, NftRule, PriorityValue, Sense,
    Statement,
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
pub(super) struct NftChainRules {
    pub(super) chain: NftChain,
    pub(super) rules: Vec<NftRule>,
}

impl NftChainRules {
    pub(super) fn plain(name: impl Into<NftName>, rules: Vec<NftRule>) -> Self {
        Self {
            chain: NftChain {
                name: name.into(),
                hook: None,
            },
            rules,
        }
    }
}

/// All fixed chains, those that are jumped to before those that jump.
pub(super) fn chains(node: &NodeRules, family: Family, counters: bool) -> Vec<NftChainRules> {
    let mut all = vec![
        NftChainRules::plain(chain::REJECTING, refuse(Statement::Reject, counters)),
        NftChainRules::plain(chain::DROPPING, refuse(Statement::Drop, counters)),
        NftChainRules::plain(chain::PICK, vec![pick()]),
        NftChainRules::plain(chain::EXTERNAL_LOCAL, external_local(node)),
        NftChainRules::plain(chain::DISPATCH, dispatch(node)),
        NftChainRules::plain(chain::SERVICES, services(node, family)),
        NftChainRules::plain(chain::FIREWALL, vec![firewall()]),
        NftChainRules::plain(chain::SERVICE_REFUSALS, service_refusals(node)),
        NftChainRules::plain(chain::NODE_PORT_REFUSALS, node_port_refusals(node, family)),
        NftChainRules::plain(chain::CLUSTER_IPS_CHECK, cluster_ips_check(node)),
        NftChainRules::plain(chain::MASQUERADING, masquerading(node)),
    ];
    all.extend(hooks());
    if counters {
        all.extend(connection_counts::chains(node));
    }
    all
}

/// The chains packets enter by.
fn hooks() -> [NftChainRules; 8] {
    use ChainKind::{Filter, Nat};
    use HookPoint::{Forward, Input, Output, Postrouting, Prerouting};
    let hook = |name: &'static str, kind, point, priority, rules| NftChainRules {
        chain: NftChain {
            name: name.into(),
            hook: Some(Hook {
                kind,
                point,
                priority,
            }),
        },
        rules,
    };
    let new = |target: &'static str| {
        NftRule::when(NftMatch::CtStateNew).then(Statement::Jump(target.into()))
    };
    let all = |target: &'static str| NftRule::always(Statement::Jump(target.into()));
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
fn services(node: &NodeRules, family: Family) -> Vec<NftRule> {
    let found =
        |key, map: NftSetId| Statement::SetPriority(PriorityValue::Map(key, map.name().into()));
    let dispatch = || Statement::Goto(chain::DISPATCH.into());
    let by_address = NftRule::always(found(service_key(), NftSetId::Services)).then(dispatch());
    let by_node_port = at_node_port(node, family, true)
        .then(found(node_port_key(), NftSetId::NodePorts))
        .then(dispatch());
    masquerade_cluster_ips(node)
        .into_iter()
        .chain([by_address, by_node_port])
        .collect()
}

/// Traffic to cluster IPs keeps its source if it comes from a pod of this node: replies come back here anyway. Other sources are
/// masqueraded so that they do, unless local traffic detection is off.
fn masquerade_cluster_ips(node: &NodeRules) -> Option<NftRule> {
    let to_cluster_ip = NftMatch::InSet(
        vec![Field::Daddr],
        NftSetId::ClusterIps.name().into(),
        Sense::Is,
    );
    let mark = Statement::MarkOr(node.masquerade_mark);
    if node.masquerade_all {
        return Some(
            NftRule::when(to_cluster_ip)
                .then(mark)
                .because("masquerade all cluster IP traffic"),
        );
    }
    let elsewhere = from_pod(&node.local, Sense::IsNot)?;
    let rule = NftRule::when(to_cluster_ip).and(elsewhere).then(mark);
    Some(rule.because("masquerade cluster IP traffic from elsewhere"))
}

/// Matches packets from pods of this node, if local traffic detection is on. Interfaces are matched by name, not by index: an interface may
/// come and go while the rule stays.
fn from_pod(local: &LocalDetector, sense: Sense) -> Option<NftMatch> {
    match local {
        LocalDetector::Off => None,
        LocalDetector::Source(net) => Some(NftMatch::Source(*net, sense)),
        LocalDetector::Interface(name) => Some(NftMatch::InputInterface(name.clone(), sense)),
        LocalDetector::InterfacePrefix(prefix) => {
            Some(NftMatch::InputInterfacePrefix(prefix.clone(), sense))
        }
    }
}

/// The beginning of a rule about node ports. `ask_fib`: the packet may still be for someone else.
fn at_node_port(node: &NodeRules, family: Family, ask_fib: bool) -> NftRule {
    match &node.node_ports {
        NodePortAddresses::Only(_) => NftRule::when(NftMatch::InSet(
            vec![Field::Daddr],
            NftSetId::NodePortIps.name().into(),
            Sense::Is,
        )),
        NodePortAddresses::Any => {
            let not_loopback = NftMatch::Destination(family.loopback(), Sense::IsNot);
            if ask_fib {
                NftRule::when(NftMatch::LocalDestination).and(not_loopback)
            } else {
                NftRule::when(not_loopback)
            }
        }
    }
}

/// Does what the id asks for.
fn dispatch(node: &NodeRules) -> Vec<NftRule> {
    vec![
        NftRule::when(NftMatch::PriorityBits(MASQUERADE))
            .then(Statement::MarkOr(node.masquerade_mark)),
        NftRule::when(NftMatch::PriorityBits(BY_SOURCE))
            .then(Statement::Goto(chain::EXTERNAL_LOCAL.into())),
        NftRule::always(Statement::Goto(chain::PICK.into())),
    ]
}

/// External traffic under policy Local: pods and the node itself may use any endpoint, as they would by the cluster IP.
fn external_local(node: &NodeRules) -> Vec<NftRule> {
    let list_of = |map: NftSetId| {
        Statement::SetPriority(PriorityValue::Map(
            vec![Field::PriorityBits(PORT_BITS)],
            map.name().into(),
        ))
    };
    let pick = || Statement::Goto(chain::PICK.into());
    let pods = from_pod(&node.local, Sense::Is).map(|from_pod| {
        NftRule::when(from_pod)
            .then(list_of(NftSetId::ExternalInside))
            .then(pick())
            .because("pods may use any endpoint")
    });
    let this_node = NftRule::when(NftMatch::LocalSource)
        .then(Statement::MarkOr(node.masquerade_mark))
        .then(list_of(NftSetId::ExternalInside))
        .then(pick())
        .because("this node may use any endpoint");
    let outside = NftRule::always(list_of(NftSetId::ExternalOutside)).then(pick());
    pods.into_iter().chain([this_node, outside]).collect()
}

/// Continues in the selector chain. Both `dispatch` and `external-local` end here: the kernel allows no loops.
fn pick() -> NftRule {
    NftRule::always(Statement::Vmap(
        vec![Field::PriorityBits(CLASS_BITS)],
        NftSetId::Picks.name().into(),
    ))
}

/// Load balancer addresses with source ranges let in only those.
fn firewall() -> NftRule {
    let mut service_and_source = service_key();
    service_and_source.push(Field::Saddr);
    NftRule::when(NftMatch::InSet(
        service_key(),
        NftSetId::Restricted.name().into(),
        Sense::Is,
    ))
    .and(NftMatch::InSet(
        service_and_source,
        NftSetId::AllowedSources.name().into(),
        Sense::IsNot,
    ))
    .then(Statement::Drop)
}

/// The end of a refused packet.
fn refuse(how: Statement, counters: bool) -> Vec<NftRule> {
    let counted = counters.then(connection_counts::count_refusal);
    counted.into_iter().chain([NftRule::always(how)]).collect()
}

/// Packets to services that have no endpoint for them. Those that had one have another destination by now.
fn service_refusals(node: &NodeRules) -> Vec<NftRule> {
    let in_set =
        |set: NftSetId| NftRule::when(NftMatch::InSet(service_key(), set.name().into(), Sense::Is));
    vec![
        in_set(NftSetId::RejectedServices).then(without_endpoints(node)),
        in_set(NftSetId::DroppedServices).then(Statement::Goto(chain::DROPPING.into())),
    ]
}

fn node_port_refusals(node: &NodeRules, family: Family) -> Vec<NftRule> {
    // Only packets for this node come by the input hook, so the routing table need not be asked again.
    let in_set = |set: NftSetId| {
        at_node_port(node, family, false).and(NftMatch::InSet(
            node_port_key(),
            set.name().into(),
            Sense::Is,
        ))
    };
    vec![
        in_set(NftSetId::RejectedNodePorts).then(without_endpoints(node)),
        in_set(NftSetId::DroppedNodePorts).then(Statement::Goto(chain::DROPPING.into())),
    ]
}

/// Where packets to services without any endpoint go. Dropped ones stay in the sets of rejected ones, so that the reason stays visible.
fn without_endpoints(node: &NodeRules) -> Statement {
    let end = match node.no_endpoints {
        NoEndpoints::Reject => chain::REJECTING,
        NoEndpoints::Drop => chain::DROPPING,
    };
    Statement::Goto(end.into())
}

/// Packets to cluster IPs that no service took.
fn cluster_ips_check(node: &NodeRules) -> Vec<NftRule> {
    let wrong_port = NftRule::when(NftMatch::InSet(
        vec![Field::Daddr],
        NftSetId::ClusterIps.name().into(),
        Sense::Is,
    ))
    .then(Statement::Reject)
    .because("no such port");
    let unallocated = node.service_cidrs.iter().map(|cidr| {
        NftRule::when(NftMatch::Destination(*cidr, Sense::Is))
            .then(Statement::Drop)
            .because("no such cluster IP")
    });
    [wrong_port].into_iter().chain(unallocated).collect()
}

/// The last stop: cleans the scratch register and gives connections this node's address where asked for.
fn masquerading(node: &NodeRules) -> Vec<NftRule> {
    let hairpin = vec![Field::Saddr, Field::Daddr, Field::L4Proto, Field::Dport];
    let services = [
        NftRule::when(NftMatch::CtStatusDnat)
            .and(NftMatch::PriorityBits(TAG))
            .then(Statement::SetPriority(PriorityValue::None)),
        NftRule::when(NftMatch::MarkBits(node.masquerade_mark))
            .then(Statement::MarkXor(node.masquerade_mark))
            .then(Statement::Masquerade),
        NftRule::when(NftMatch::CtStatusDnat)
            .and(NftMatch::InSet(
                hairpin,
                NftSetId::Hairpin.name().into(),
                Sense::Is,
            ))
            .then(Statement::Masquerade)
            .because("an endpoint that reached itself"),
    ];
    services.into_iter().chain(egress(node)).collect()
}

/// What pods send out of the cluster, where that is asked for. Interfaces that packets came in by are not known to every kernel this late.
fn egress(node: &NodeRules) -> Option<NftRule> {
    let (LocalDetector::Source(pods), Some(except)) = (&node.local, &node.egress_except) else {
        return None;
    };
    let from_pods = NftRule::when(NftMatch::Source(*pods, Sense::Is));
    let leaving = except.iter().fold(from_pods, |rule, net| {
        rule.and(NftMatch::Destination(*net, Sense::IsNot))
    });
    Some(
        leaving
            .then(Statement::Masquerade)
            .because("pods that leave the cluster"),
    )
}
