//! Random clusters in the lab: the kernel must forward real packets as a trace predicts.
//!
//! Only the trace describes how modes differ, so this also compares the modes with each other.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ferrovia_core::family::Family;
use ferrovia_core::model::Protocol;
use ferrovia_core::trace::{EndpointFate, Outcome, Place, Proxied, Trace, TraceContext, trace};
use ferrovia_lab::flow::{Action, Expectation, Line, parse_action};
use ferrovia_lab::layout::{NODE_ADDRESSES, Pod};
use ferrovia_lab::random::Random;
use ferrovia_lab::random_cluster::{CallTarget, RandomCluster};
use ferrovia_lab::run::Session;
use ferrovia_lab::world::{Spec, World};
use serde_json::Value;

use crate::engine_node::{EngineNode, ModeVariant};
use crate::prediction::packet;

/// Clients: the node, its pods, a pod of the other node, the other node, and two outside.
const CLIENTS: [[&str; 2]; 8] = [
    ["node"; 2],
    ["pod-a"; 2],
    ["pod-b"; 2],
    ["pod-d"; 2],
    ["pod-x"; 2],
    ["node2"; 2],
    ["outside"; 2],
    ["outside@192.0.2.77", "outside@2001:db8:2::77"],
];
/// The number of calls drawn for each cluster; not all are made.
const CALLS: usize = 150;

/// Runs the cluster of this seed; returns the problems.
///
/// The rules of another cluster are written before, so that those of this one result from changes.
pub(crate) fn run(seed: u64, variant: ModeVariant) -> Vec<String> {
    let (before, now) = (RandomCluster::new(!seed), RandomCluster::new(seed));
    let lab = World::new(Spec::default()).expect("the lab can be built");
    let mut node = EngineNode::start(&now.options, &lab, variant);
    let mut problems = Vec::new();
    for manifests in [
        manifests(&before.objects, &[]),
        manifests(&now.objects, &before.objects),
    ] {
        let events = node
            .objects
            .step(&manifests, 0)
            .expect("the manifests are well-formed");
        problems.extend(node.apply(events));
    }
    let lines = lines(&node.trace_context(), &now, seed);
    problems.extend(Session::new(&lab).run(&lines));
    for family in Family::ALL {
        problems.extend(
            node.compare_with_scratch(family)
                .map(|problem| format!("{family}: {problem}")),
        );
    }
    if !problems.is_empty() {
        problems.push(case(&now, &lines));
    }
    problems
}

/// The calls to make, with expected outcomes. Most of them are answered.
fn lines(context: &TraceContext<'_>, cluster: &RandomCluster, seed: u64) -> Vec<Line> {
    let mut random = Random::new(seed);
    // A raw socket receives every rejection between two addresses, so there is only one SCTP call between them.
    let mut asked = BTreeSet::new();
    let calls = (1..=CALLS).filter_map(|number| {
        let target = random.choose(&cluster.targets);
        let to = target.to.ip();
        let client = if to.is_loopback() {
            "node"
        } else {
            random.choose(&CLIENTS)[usize::from(to.is_ipv6())]
        };
        let text = call(context, client, target)?;
        let action = parse_action(&text).expect("the call is well-formed");
        let is_chosen = is_answered(&action) || random.percent(25);
        let is_first = target.protocol != "SCTP" || asked.insert((client, to));
        (is_chosen && is_first).then_some(Line {
            number,
            text,
            action,
        })
    });
    calls.collect()
}

fn is_answered(action: &Action) -> bool {
    matches!(action, Action::Call(flow) if matches!(flow.expectation, Expectation::Answer { .. }))
}

/// A call and the outcome that the trace predicts; nothing if the lab cannot observe it.
fn call(context: &TraceContext<'_>, client: &str, target: CallTarget) -> Option<String> {
    let CallTarget { to, protocol } = target;
    let call = format!("{client} > {to}/{}", protocol.to_lowercase());
    let Ok(Action::Call(flow)) = parse_action(&format!("{call} => refused")) else {
        panic!("{call} is not a call");
    };
    let traced = trace(context, &packet(context, &flow.route));
    // The kernel itself rejects SCTP with another message than rules do.
    let refused_by_kernel = || (protocol != "SCTP").then(|| "refused".to_owned());
    let outcome = match (traced.outcome, traced.profile.proxied) {
        (Outcome::Delivered, _) => answers(&traced)?,
        (Outcome::Refused, Proxied::ServiceAddresses) => refused_by_kernel()?,
        (Outcome::Refused, _) => "refused".to_owned(),
        (Outcome::NotAService, _) if is_here(to.ip()) => refused_by_kernel()?,
        // The lab routes unused addresses to a black hole.
        (Outcome::Dropped | Outcome::NotAService, _) => "dropped".to_owned(),
    };
    Some(format!("{call} => {outcome}"))
}

fn is_here(ip: IpAddr) -> bool {
    ip.is_loopback() || NODE_ADDRESSES.contains(&ip)
}

/// The endpoints that answer and the source address they see, in the syntax of flow lines.
fn answers(trace: &Trace) -> Option<String> {
    let used: Vec<&EndpointFate> = trace.endpoints.iter().filter(|e| e.used).collect();
    if used.iter().any(|endpoint| loses_replies(trace, endpoint)) {
        return None;
    }
    let is_itself = |endpoint: &EndpointFate| endpoint.address.ip() == trace.packet.source;
    let source = if used.iter().all(|e| e.masquerade.is_on()) {
        " masq"
    } else if !used.iter().any(|e| e.masquerade.is_on()) {
        ""
    } else if used.iter().all(|e| e.masquerade.is_on() == is_itself(e)) {
        " hairpin"
    } else {
        return None;
    };
    let addresses: Vec<String> = used.iter().map(|e| e.address.to_string()).collect();
    let service = trace.service.as_ref();
    let is_sticky = service.is_some_and(|service| service.affinity_seconds.is_some());
    let sticky = if is_sticky { " sticky" } else { "" };
    Some(format!("{}{source}{sticky}", addresses.join(" | ")))
}

/// Whether an endpoint's replies bypass the node, so that the client does not accept them.
fn loses_replies(trace: &Trace, endpoint: &EndpointFate) -> bool {
    let (packet, ip) = (&trace.packet, endpoint.address.ip());
    let is = |pod: Pod, ip: IpAddr| pod.address(ip) == ip;
    let is_host = Pod::HOST_NETWORK.into_iter().any(|pod| is(pod, ip));
    let is_far = |ip: IpAddr| {
        Pod::REMOTE
            .into_iter()
            .chain([Pod::Host2])
            .any(|pod| is(pod, ip))
    };
    // The client calls itself or a neighbour, whose replies do not pass this node.
    let bypasses_node =
        packet.place != Place::Node && packet.source == ip || is_far(packet.source) && is_far(ip);
    bypasses_node && !endpoint.masquerade.is_on()
        // Endpoints in the nodes' networks do not speak SCTP.
        || is_host && packet.protocol == Protocol::Sctp
}

/// Objects as a step's manifests, with deletions of the earlier ones that are not among them.
fn manifests(objects: &[Value], earlier: &[Value]) -> String {
    let name = |object: &Value| {
        (
            object["kind"].to_string(),
            object["metadata"]["name"].to_string(),
        )
    };
    let kept: BTreeSet<_> = objects.iter().map(name).collect();
    let gone = earlier
        .iter()
        .filter(|object| !kept.contains(&name(object)));
    let gone = gone.map(|object| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let namespace = if object["kind"] == "ServiceCIDR" {
            ""
        } else {
            "default/"
        };
        format!(
            "# delete {} {namespace}{}\n",
            text(&object["kind"]),
            text(&object["metadata"]["name"])
        )
    });
    let objects: Vec<String> = objects.iter().map(ToString::to_string).collect();
    gone.collect::<String>() + &objects.join("\n---\n")
}

/// A cluster as a case file, to reproduce a failure.
fn case(cluster: &RandomCluster, lines: &[Line]) -> String {
    let options = cluster.options.iter();
    let options: String = options
        .map(|(name, value)| format!("{name}: {value}\n"))
        .collect();
    let flows: String = lines
        .iter()
        .map(|line| format!("{}\n", line.text))
        .collect();
    let manifests = manifests(&cluster.objects, &[]);
    format!(
        "# A random cluster.\n-- node.yaml --\n{options}\n-- step1.yaml --\n{manifests}\n\n-- flows --\n{flows}"
    )
}
