//! Compares the outcome that a trace predicts for a flow with the one that the case expects.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use ferrovia_core::model::Protocol;
use ferrovia_core::trace::{OtherPorts, Outcome, Packet, Place, Trace, TraceContext, trace};
use ferrovia_lab::flow::{Action, Expectation, Flow, Line, Route, SourceSeen, Spread};
use ferrovia_lab::layout::{self, NODE_ADDRESSES, Pod};

/// Endpoint lists are rounded to slots, so shares may differ by this much.
const TOLERANCE: f64 = 0.01;

/// The lines for which the trace predicts another outcome than the case expects.
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
    let (place, usual) = match route.host {
        layout::ClientHost::Node => {
            let primary = NODE_ADDRESSES
                .into_iter()
                .find(|ip| ip.is_ipv4() == to.is_ipv4());
            let primary = primary.expect("the node has both families");
            (Place::Node, context.node_source(to, primary))
        }
        layout::ClientHost::Node2 => (Place::Outside, like("198.51.100.20", "2001:db8:51::20")),
        layout::ClientHost::Outside => (Place::Outside, like("192.0.2.9", "2001:db8:2::9")),
        layout::ClientHost::Pod(pod) if Pod::LOCAL.contains(&pod) => {
            (Place::LocalPod, pod.address(to))
        }
        layout::ClientHost::Pod(pod) => (Place::RemotePod, pod.address(to)),
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

/// The difference between trace and expectation, if any.
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
        // A packet that is for no Service may be refused or dropped by the network, unless the mode itself handles that address.
        (Expectation::Refused | Expectation::Dropped, Outcome::NotAService)
            if trace
                .hints
                .iter()
                .all(|hint| !is_handled_by_mode(trace, hint)) =>
        {
            None
        }
        (_, outcome) => Some(format!("predicted {outcome:?}")),
    }
}

/// Whether a hint says that the destination is an address of a Service, in a mode that handles all ports of such addresses.
fn is_handled_by_mode(trace: &Trace, hint: &str) -> bool {
    let names_service_address = match trace.profile.other_ports {
        OtherPorts::RejectedOnClusterIps => hint.contains("has this cluster IP"),
        OtherPorts::RejectedOnServiceAddresses => hint.contains(" has this "),
        OtherPorts::Routed => false,
    };
    names_service_address && !NODE_ADDRESSES.contains(&trace.packet.destination)
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
    // A trace does not know affinity entries: a returning client gets one of the predicted endpoints.
    let has_affinity = trace
        .service
        .as_ref()
        .is_some_and(|s| s.affinity_seconds.is_some());
    let right = predicted == expected || has_affinity && expected.is_subset(&predicted);
    (!right).then(|| format!("predicted answers from {predicted:?}"))
}

fn sources(trace: &Trace, seen: SourceSeen) -> Option<String> {
    let is_right = |ip: IpAddr, masqueraded: bool| match seen {
        SourceSeen::Own => !masqueraded,
        // Packets from the node to one of its own addresses have its address even without masquerading.
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
