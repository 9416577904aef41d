//! What becomes of connections, and of clients' affinity.

use std::time::Instant;

use ferrovia_lab::uml::suite::Test;
use ferrovia_lab::waiting::{SOON, wait};
use ferrovia_lab::{Pod, Protocol, Role};

use crate::stage::{Manifest, Stage, at, expect_alive};

pub(crate) const TESTS: [Test; 4] = [
    (
        "affinity: kept and forgotten",
        affinity_is_kept_and_forgotten,
    ),
    (
        "drain: under a live connection",
        draining_under_a_live_connection,
    ),
    ("drain: UDP and SCTP do not", udp_and_sctp_do_not_drain),
    (
        "restart: killed, and nothing is written",
        killed_and_nothing_is_written,
    ),
];

const VIP: &str = "10.96.0.10:80";
const BOTH: [(Pod, u32); 2] = [(Pod::A, 1), (Pod::X, 1)];

fn write(stage: &Stage, endpoints: &[(Pod, u32)]) {
    let manifest = Manifest {
        endpoints,
        ..Manifest::default()
    };
    manifest.write(stage);
}

fn affinity_is_kept_and_forgotten() {
    let stage = Stage::new();
    let manifest = Manifest {
        spec: "  sessionAffinity: ClientIP\n  sessionAffinityConfig: { clientIP: { timeoutSeconds: 6 } }\n",
        // Connections of TCP are remembered for two minutes, and clients as long as their connections are.
        protocol: "UDP",
        endpoints: &BOTH,
        ..Manifest::default()
    };
    manifest.write(&stage);
    let mut command = stage.command("ipvs");
    command.arg("--ipvs-udp-timeout=1s");
    stage.run(command);

    let call = |from| stage.call(Protocol::Udp, from, VIP);
    let first = call(Role::PodC);
    for _ in 0..4 {
        assert_eq!(call(Role::PodC), first);
    }
    // It is the client that has an endpoint. Another one is the next in turn's.
    let other = call(Role::PodD);
    assert_ne!(other, first);
    assert_eq!(call(Role::PodC), first);
    wait(|| match stage.node.on_node("ipvsadm", &["-Lnc"]) {
        connections if connections.contains(VIP) => Err(connections),
        _ => Ok(()),
    });
    // Both entries have expired, and round-robin continues where it was: the first client gets the first endpoint.
    assert_eq!(call(Role::PodD), first);
    assert_eq!(call(Role::PodC), other);
}

fn draining_under_a_live_connection() {
    let stage = Stage::new();
    write(&stage, &[(Pod::A, 1)]);
    stage.start("ipvs");
    let (mut kept, to) = stage.hold(VIP);
    assert_eq!(to, at(Pod::A));

    // Replaced, it gets no new connections, and the old one goes on.
    write(&stage, &[(Pod::X, 1)]);
    stage.expect_destinations(VIP, &[(Pod::A, 0), (Pod::X, 1)]);
    assert_eq!(stage.calls(VIP, 4), [at(Pod::X); 4]);
    expect_alive(&mut kept);

    // So it is for a daemon that finds it draining, which takes it back into service if it is wanted again.
    stage.node.stop(libc::SIGKILL);
    stage.start("ipvs");
    assert!(
        !stage.node.log().contains("wrote the rules"),
        "{}",
        stage.node.log()
    );
    stage.expect_destinations(VIP, &[(Pod::A, 0), (Pod::X, 1)]);
    write(&stage, &BOTH);
    stage.expect_destinations(VIP, &BOTH);
    expect_alive(&mut kept);

    // One without connections goes soon.
    write(&stage, &[(Pod::A, 1), (Pod::X, 1), (Pod::Y, 1)]);
    stage.expect_destinations(VIP, &[(Pod::A, 1), (Pod::X, 1), (Pod::Y, 1)]);
    write(&stage, &BOTH);
    stage.expect_destinations(VIP, &BOTH);
    flap(&stage);
    expect_alive(&mut kept);
}

/// Nobody knows when a flow of UDP is over, and an association of SCTP is none of IPVS's to keep: their destinations go at once, although
/// there are connections, and the next call is led elsewhere.
fn udp_and_sctp_do_not_drain() {
    let stage = Stage::new();
    for (protocol, name) in [(Protocol::Udp, "UDP"), (Protocol::Sctp, "SCTP")] {
        let write = |pod| {
            let manifest = Manifest {
                protocol: name,
                endpoints: &[(pod, 1)],
                ..Manifest::default()
            };
            manifest.write(&stage);
        };
        write(Pod::A);
        if !stage.node.log().contains("ready: all services") {
            stage.start("ipvs");
        }
        wait(|| has_destination(&stage, Pod::A));
        assert_eq!(stage.call(protocol, Role::PodC, VIP), at(Pod::A));
        let connections = stage.node.on_node("ipvsadm", &["-Lnc"]);
        assert!(
            connections.contains(&at(Pod::A).to_string()),
            "{connections}"
        );
        write(Pod::X);
        wait(|| has_destination(&stage, Pod::X));
        // Both changes were written together, or nearly so.
        wait(|| match has_destination(&stage, Pod::A) {
            Ok(()) => Err(stage.servers()),
            Err(_) => Ok(()),
        });
        assert_eq!(stage.call(protocol, Role::PodC, VIP), at(Pod::X));
    }
}

/// Fails with all servers unless one has a pod as destination.
fn has_destination(stage: &Stage, pod: Pod) -> Result<(), String> {
    let servers = stage.servers();
    let destination = format!("-r {} ", at(pod));
    servers.contains(&destination).then_some(()).ok_or(servers)
}

/// A service's only endpoint is replaced by one that drains, again and again: there is always one to go to.
fn flap(stage: &Stage) {
    for pod in [Pod::A, Pod::X].into_iter().cycle().take(20) {
        write(stage, &[(pod, 1)]);
        let start = Instant::now();
        // A call that is refused fails the test.
        while stage.call(Protocol::Tcp, Role::PodC, VIP) != at(pod) {
            assert!(start.elapsed() < SOON, "{}", stage.node.log());
        }
    }
}

/// How many connections a virtual server has seen, which is counted from when it was made.
fn seen(stage: &Stage) -> u64 {
    let stats = stage
        .node
        .on_node("ipvsadm", &["-Ln", "--stats", "--exact"]);
    let words = stats
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let found = words.into_iter().find(|words| words.get(1) == Some(&VIP));
    found.unwrap_or_else(|| panic!("{stats}"))[2]
        .parse()
        .unwrap()
}

fn killed_and_nothing_is_written() {
    let stage = Stage::new();
    write(&stage, &BOTH);
    stage.start("ipvs");
    stage.node.wait_for_log("wrote the rules");
    let (mut kept, to) = stage.hold(VIP);
    stage.calls(VIP, 3);
    let sets = || stage.node.on_node("ipset", &["save"]);
    let state = || (stage.servers(), sets(), seen(&stage));
    // The kernel sums its counters up every other second.
    wait(|| match seen(&stage) {
        4 => Ok(()),
        other => Err(format!("{other} connections were seen")),
    });
    let before = state();

    assert_eq!(stage.node.stop(libc::SIGKILL), None);
    expect_alive(&mut kept);
    stage.start("ipvs");
    assert!(
        !stage.node.log().contains("wrote the rules"),
        "{}",
        stage.node.log()
    );
    assert_eq!(state(), before);
    expect_alive(&mut kept);
    // The connection is still counted as its endpoint's.
    assert!(
        stage
            .node
            .on_node("ipvsadm", &["-Lnc"])
            .contains(&to.to_string())
    );

    // What changed while it was away is written.
    stage.node.stop(libc::SIGKILL);
    write(&stage, &[(Pod::Y, 1)]);
    stage.start("ipvs");
    stage.node.wait_for_log("wrote the rules");
    assert_eq!(stage.calls(VIP, 2), [at(Pod::Y); 2]);
    expect_alive(&mut kept);
}
