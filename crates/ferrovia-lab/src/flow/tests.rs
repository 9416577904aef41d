use super::*;
use crate::layout::Pod;

fn flow(text: &str) -> Flow {
    match parse_action(text).unwrap() {
        Action::Call(flow) => flow,
        other => panic!("{other:?} is not a call"),
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn parses_endpoints_and_flags() {
    let flow = flow("pod-a   >  10.96.0.1:80/tcp =>10.244.1.10:80 | 10.244.2.10:80  masq sticky");
    assert_eq!(flow.route.host, ClientHost::Pod(Pod::A));
    assert_eq!(flow.route.protocol, Protocol::Tcp);
    assert_eq!(
        flow.expectation,
        Expectation::Answer {
            endpoints: vec![address("10.244.1.10:80"), address("10.244.2.10:80")],
            source: SourceSeen::Node,
            spread: Spread::Sticky,
        }
    );
}

#[test]
fn parses_sources_protocols_and_outcomes() {
    let udp = flow("outside@2001:db8:2::77 > [2001:db8::1]:53/udp => dropped");
    assert_eq!(udp.route.from, Some("2001:db8:2::77".parse().unwrap()));
    assert_eq!(udp.route.to, address("[2001:db8::1]:53"));
    assert_eq!(udp.route.protocol, Protocol::Udp);
    assert_eq!(udp.expectation, Expectation::Dropped);
    assert_eq!(
        flow("node > 10.0.0.1:1/sctp => refused").route.protocol,
        Protocol::Sctp
    );
    assert_eq!(
        flow("node2 > 10.0.0.1:1 => unreachable").expectation,
        Expectation::Unreachable
    );
}

#[test]
fn defaults_to_kept_source_and_all_endpoints() {
    let Expectation::Answer { source, spread, .. } =
        flow("node > 10.0.0.1:1 => 10.0.0.2:2").expectation
    else {
        panic!("expected an answer");
    };
    assert_eq!((source, spread), (SourceSeen::Own, Spread::Each));
}

#[test]
fn requires_a_weight_for_each_endpoint() {
    let Expectation::Answer { spread, .. } =
        flow("node > 10.0.0.1:1 => 10.0.0.2:2 | 10.0.0.3:2 share 3:1").expectation
    else {
        panic!("expected an answer");
    };
    assert_eq!(spread, Spread::Share(vec![3, 1]));
    assert!(parse_action("node > 10.0.0.1:1 => 10.0.0.2:2 share 3:1").is_err());
    assert!(parse_action("node > 10.0.0.1:1 => 10.0.0.2:2 share 0").is_err());
    assert!(parse_action("node > 10.0.0.1:1 => 10.0.0.2:2 share").is_err());
}

#[test]
fn parses_hold_and_check() {
    let Action::Hold { name, route } = parse_action("hold c1 pod-x > 10.0.0.1:1/udp").unwrap()
    else {
        panic!("expected a hold");
    };
    assert_eq!((name.as_str(), route.protocol), ("c1", Protocol::Udp));
    let state = |text| match parse_action(text).unwrap() {
        Action::Check { state, .. } => state,
        other => panic!("{other:?} is not a check"),
    };
    assert_eq!(state("check c1"), HeldState::Works);
    assert_eq!(state("check c1 closed"), HeldState::Closed);
    assert_eq!(
        state("check c1 => 10.0.0.2:80"),
        HeldState::AnsweredBy(address("10.0.0.2:80"))
    );
}

#[test]
fn reports_syntax_errors() {
    for (text, part) in [
        ("pod-q > 10.0.0.1:1 => refused", "pod-q"),
        ("pod-a 10.0.0.1:1 => refused", "<source> > <destination>"),
        ("pod-a > 10.0.0.1 => refused", "invalid address and port"),
        ("pod-a > 10.0.0.1:1/icmp => refused", "icmp"),
        ("pod-a > 10.0.0.1:1", "<expectation>"),
        ("pod-a > 10.0.0.1:1 =>", "invalid address|missing"),
        ("pod-a > 10.0.0.1:1 => 10.0.0.2:2 often", "often"),
        ("pod-a > 10.0.0.1:1 => 10.0.0.2:2 masq kept", "contradicts"),
        (
            "pod-a > 10.0.0.1:1 => [fd00::1]:2",
            "endpoint and destination",
        ),
        ("pod-a@fd00::1 > 10.0.0.1:1 => refused", "families"),
        (
            "pod-a > 10.0.0.1:1/udp => unreachable",
            "only possible for TCP",
        ),
        ("check c1 open", "closed"),
        ("hold c1 pod-a > 10.0.0.1:1/sctp", "TCP and UDP"),
    ] {
        let error = parse_action(text).unwrap_err();
        assert!(
            part.split('|').any(|part| error.contains(part)),
            "{text}: {error}"
        );
    }
}
