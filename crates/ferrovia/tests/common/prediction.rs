//! What a trace says of a flow, against what the case says and the kernel is then seen to do.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use ferrovia_core::model::Protocol;
use ferrovia_core::trace::{OtherPorts, Outcome, Packet, Place, Trace, TraceContext, trace};
use ferrovia_lab::flow::{Action, Expectation, Flow, Line, Route, SourceSeen, Spread};
use ferrovia_lab::layout::{self, NODE_ADDRESSES, Pod};

/// Shares may differ by so much: lists are rounded to slots.
const TOLERANCE: f64 = 0.01;

/// The lines for which the trace predicts something else than what is expected of the kernel.
pub(crate) fn wrong_predictions(context: &TraceContext<'_>, lines: &[Line]) -> Vec<String> {
    let wrong = lines.iter().filter_map(|line| {
        let Action::Call(flow) = &line.action else {
            return None;
        };
        let traced = trace(context, &packet(context, &flow.route));
        let problem = disagreement(&traced, flow)?;
        let Line { number, text, .. } = line;
        Some(format!(
            "line {number}: {text}: {problem}; the trace is\n{traced}"
        ))
    });
    wrong.collect()
}

pub(crate) fn packet(context: &TraceContext<'_>, route: &Route) -> Packet {
    let to = route.to.ip();
    let like = |v4: &str, v6: &str| -> IpAddr {
        let text = if to.is_ipv4() { v4 } else { v6 };
        text.parse().expect("an address")
    };
    let (place, usual) = match route.place {
        layout::Place::Node => {
            let primary = NODE_ADDRESSES
                .into_iter()
                .find(|ip| ip.is_ipv4() == to.is_ipv4());
            let primary = primary.expect("the node has both families");
            (Place::Node, context.node_source(to, primary))
        }
        layout::Place::Node2 => (Place::Outside, like("198.51.100.20", "2001:db8:51::20")),
        layout::Place::Outside => (Place::Outside, like("192.0.2.9", "2001:db8:2::9")),
        layout::Place::Pod(pod) if Pod::LOCAL.contains(&pod) => (Place::LocalPod, pod.address(to)),
        layout::Place::Pod(pod) => (Place::RemotePod, pod.address(to)),
    };
    Packet {
        source: route.from.unwrap_or(usual),
        place,
        destination: to,
        port: route.to.port(),
        protocol: match route.protocol {
            layout::Protocol::Tcp => Protocol::Tcp,
            layout::Protocol::Udp => Protocol::Udp,
            layout::Protocol::Sctp => Protocol::Sctp,
        },
    }
}

/// What is not as the case has it.
fn disagreement(trace: &Trace, flow: &Flow) -> Option<String> {
    match (&flow.expectation, trace.outcome) {
        (
            Expectation::Answer {
                endpoints,
                source,
                spread,
            },
            outcome,
        ) => answer(trace, outcome, &flow.route, endpoints)
            .or_else(|| sources(trace, *source))
            .or_else(|| shares(trace, endpoints, spread)),
        (Expectation::Refused, Outcome::Refused)
        | (Expectation::Dropped, Outcome::Dropped)
        | (Expectation::Unreachable, Outcome::NotAService) => None,
        // What is for no service meets whatever is there. Whose rules refuse or drop what is sent to a Service knows better.
        (Expectation::Refused | Expectation::Dropped, Outcome::NotAService)
            if trace.hints.iter().all(|hint| !is_of_ours(trace, hint)) =>
        {
            None
        }
        (_, outcome) => Some(format!("predicted {outcome:?}")),
    }
}

/// A hint says that the destination is a Service's address, in a mode that looks after all ports of those.
fn is_of_ours(trace: &Trace, hint: &str) -> bool {
    let looks_after = match trace.profile.other_ports {
        OtherPorts::RejectedOnClusterIps => hint.contains("has this cluster IP"),
        OtherPorts::RejectedOnServiceAddresses => hint.contains(" has this "),
        OtherPorts::Routed => false,
    };
    looks_after && !NODE_ADDRESSES.contains(&trace.packet.destination)
}

fn answer(
    trace: &Trace,
    outcome: Outcome,
    route: &Route,
    expected: &[SocketAddr],
) -> Option<String> {
    let predicted: BTreeSet<SocketAddr> = match outcome {
        Outcome::Delivered => used(trace).map(|e| e.address).collect(),
        Outcome::NotAService => [route.to].into(),
        Outcome::Refused | Outcome::Dropped => return Some(format!("predicted {outcome:?}")),
    };
    let expected: BTreeSet<SocketAddr> = expected.iter().copied().collect();
    // A trace knows no client's past: one that was there before gets what it had, which is one of the same endpoints.
    let has_memory = trace
        .service
        .as_ref()
        .is_some_and(|s| s.affinity_seconds.is_some());
    let right = predicted == expected || has_memory && expected.is_subset(&predicted);
    (!right).then(|| format!("predicted answers from {predicted:?}"))
}

fn sources(trace: &Trace, seen: SourceSeen) -> Option<String> {
    let is_right = |ip: IpAddr, masqueraded: bool| match seen {
        SourceSeen::Own => !masqueraded,
        // The node's own packets have its address to begin with, if they are sent to one of its addresses.
        SourceSeen::Node => masqueraded || NODE_ADDRESSES.contains(&trace.packet.source),
        SourceSeen::Hairpin => masqueraded == (ip == trace.packet.source),
    };
    let right = match trace.outcome {
        Outcome::Delivered => used(trace).all(|e| is_right(e.address.ip(), e.masquerade.is_on())),
        _ => is_right(trace.packet.destination, trace.masquerade.is_on()),
    };
    (!right).then(|| format!("the source is predicted wrong, expected {seen:?}"))
}

fn shares(trace: &Trace, endpoints: &[SocketAddr], spread: &Spread) -> Option<String> {
    let Spread::Share(weights) = spread else {
        return None;
    };
    let total: u32 = weights.iter().sum();
    let wrong = endpoints.iter().zip(weights).find(|(endpoint, weight)| {
        let expected = f64::from(**weight) / f64::from(total);
        !used(trace).any(|e| e.address == **endpoint && (e.chance - expected).abs() < TOLERANCE)
    });
    wrong.map(|(endpoint, weight)| format!("{endpoint} should get {weight} of {total}"))
}

fn used(trace: &Trace) -> impl Iterator<Item = &ferrovia_core::trace::EndpointFate> {
    trace.endpoints.iter().filter(|endpoint| endpoint.used)
}
