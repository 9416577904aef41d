//! Random clusters in the laboratory: real packets must meet the fate that a trace predicts for them.
//!
//! As the trace says where modes differ, and nothing else does, this compares the modes with each other too.

#[path = "../../../ferrovia-core/tests/worlds/mod.rs"]
mod worlds;

use std::collections::BTreeSet;
use std::net::IpAddr;

use ferrovia_core::family::Family;
use ferrovia_core::model::Protocol;
use ferrovia_core::trace::{EndpointFate, Outcome, Place, Proxied, Trace, TraceContext, trace};
use ferrovia_lab::flow::{Action, Expectation, Line, parse_action};
use ferrovia_lab::layout::{NODE_ADDRESSES, Pod};
use ferrovia_lab::run::Session;
use ferrovia_lab::world::{Spec, World};
use serde_json::Value;

use super::cluster::{Cluster, Way};
use super::prediction::packet;
use worlds::{Random, Target};

/// Who calls: the node, its pods, somebody else's, the other node, and two from outside.
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
/// So many calls are drawn for each cluster; not all are made.
const CALLS: usize = 150;

/// What is wrong with the cluster of this number; nothing if all is well.
///
/// Another cluster was there before, so that what is in the kernel has come about by changes.
pub(crate) fn play(number: u64, way: Way) -> Vec<String> {
    let (before, now) = (worlds::World::new(!number), worlds::World::new(number));
    let lab = World::new(Spec::default()).expect("the lab can be built");
    let mut cluster = Cluster::start(&now.options, &lab, way);
    let mut problems = Vec::new();
    for manifests in [
        manifests(&before.objects, &[]),
        manifests(&now.objects, &before.objects),
    ] {
        let events = cluster
            .objects
            .step(&manifests, 0)
            .expect("the manifests are well-formed");
        problems.extend(cluster.take(events));
    }
    let lines = lines(&cluster.trace_context(), &now, number);
    problems.extend(Session::new(&lab).run(&lines));
    for family in Family::ALL {
        problems.extend(
            cluster
                .compare_with_scratch(family)
                .map(|problem| format!("{family}: {problem}")),
        );
    }
    if !problems.is_empty() {
        problems.push(case(&now, &lines));
    }
    problems
}

/// The calls to make, with what must come of them. Most are those that somebody answers.
fn lines(context: &TraceContext<'_>, world: &worlds::World, number: u64) -> Vec<Line> {
    let mut random = Random::new(number);
    // A raw socket hears of all that is refused between two addresses, so there is one call of SCTP between them.
    let mut asked = BTreeSet::new();
    let calls = (1..=CALLS).filter_map(|number| {
        let target = random.of(&world.targets);
        let to = target.to.ip();
        let client = if to.is_loopback() {
            "node"
        } else {
            random.of(&CLIENTS)[usize::from(to.is_ipv6())]
        };
        let text = call(context, client, target)?;
        let action = parse_action(&text).expect("a call reads as it is written");
        let is_wanted = is_answered(&action) || random.percent(25);
        let is_first = target.protocol != "SCTP" || asked.insert((client, to));
        (is_wanted && is_first).then_some(Line {
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

/// A call and what the trace says becomes of it; nothing where the lab cannot show it.
fn call(context: &TraceContext<'_>, client: &str, target: Target) -> Option<String> {
    let Target { to, protocol } = target;
    let call = format!("{client} > {to}/{}", protocol.to_lowercase());
    let Ok(Action::Call(flow)) = parse_action(&format!("{call} => refused")) else {
        panic!("{call} is not a call");
    };
    let traced = trace(context, &packet(context, &flow.route));
    // SCTP the kernel refuses in a way of its own.
    let by_kernel = || (protocol != "SCTP").then(|| "refused".to_owned());
    let fate = match (traced.outcome, traced.profile.proxied) {
        (Outcome::Delivered, _) => answers(&traced)?,
        (Outcome::Refused, Proxied::ServiceAddresses) => by_kernel()?,
        (Outcome::Refused, _) => "refused".to_owned(),
        (Outcome::NotAService, _) if is_here(to.ip()) => by_kernel()?,
        // Routes of the lab lead what nobody has to where it vanishes.
        (Outcome::Dropped | Outcome::NotAService, _) => "dropped".to_owned(),
    };
    Some(format!("{call} => {fate}"))
}

fn is_here(ip: IpAddr) -> bool {
    ip.is_loopback() || NODE_ADDRESSES.contains(&ip)
}

/// The endpoints that answer and the source they see, as flow lines say it.
fn answers(trace: &Trace) -> Option<String> {
    let used: Vec<&EndpointFate> = trace.endpoints.iter().filter(|e| e.used).collect();
    if used.iter().any(|endpoint| is_out_of_reach(trace, endpoint)) {
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

/// An endpoint that gets the packet, but whose answer the client does not get.
fn is_out_of_reach(trace: &Trace, endpoint: &EndpointFate) -> bool {
    let (packet, ip) = (&trace.packet, endpoint.address.ip());
    let is = |pod: Pod, ip: IpAddr| pod.address(ip) == ip;
    let is_host = Pod::HOST_NETWORK.into_iter().any(|pod| is(pod, ip));
    let is_far = |ip: IpAddr| {
        Pod::REMOTE
            .into_iter()
            .chain([Pod::Host2])
            .any(|pod| is(pod, ip))
    };
    // Somebody answers himself, or his neighbour, without this node.
    let is_short_cut =
        packet.place != Place::Node && packet.source == ip || is_far(packet.source) && is_far(ip);
    is_short_cut && !endpoint.masquerade.is_on()
        // Endpoints in the nodes' networks do not speak SCTP.
        || is_host && packet.protocol == Protocol::Sctp
}

/// Objects as a step's manifests, after which none of the earlier ones is left.
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

/// A cluster as a case file, for whoever wants to keep it.
fn case(world: &worlds::World, lines: &[Line]) -> String {
    let options = world.options.iter();
    let options: String = options
        .map(|(name, value)| format!("{name}: {value}\n"))
        .collect();
    let flows: String = lines
        .iter()
        .map(|line| format!("{}\n", line.text))
        .collect();
    let manifests = manifests(&world.objects, &[]);
    format!(
        "# A random cluster.\n-- node.yaml --\n{options}\n-- step1.yaml --\n{manifests}\n\n-- flows --\n{flows}"
    )
}
