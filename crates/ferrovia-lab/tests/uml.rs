//! User-mode Linux: it boots, runs what it is given, brings back what came of it, and a world can be built inside.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ferrovia_lab::client::{Caller, PATIENCE};
use ferrovia_lab::namespace::run;
use ferrovia_lab::uml::{self, Error, Job, Machine, suite};
use ferrovia_lab::{Outcome, Place, Pod, Protocol, Spec, World};

fn main() -> ExitCode {
    uml::become_init_if_asked();
    if !suite::is_inside() {
        output_and_exit_code_come_back();
        a_program_that_hangs_is_ended();
        a_program_that_is_not_there_is_told();
    }
    suite::main(&[
        ("everybody reaches every pod", everybody_reaches_every_pod),
        (
            "iptables of the legacy kind works",
            iptables_of_the_legacy_kind_works,
        ),
        ("the kernel has ipvs and sets", the_kernel_has_ipvs_and_sets),
    ])
}

fn shell(script: &str, limit: Duration) -> (Result<i32, Error>, String) {
    let job = Job::new("/bin/sh", ["-c", script].map(str::to_owned)).unwrap();
    let mut output = Vec::new();
    let result = Machine::default().limit(limit).run(&job, &mut output);
    (result, String::from_utf8(output).unwrap())
}

fn output_and_exit_code_come_back() {
    let script = "echo one; printf two >&2; touch /nowhere 2>/dev/null && echo writable; exit 7";
    let (result, output) = shell(script, Duration::from_secs(300));
    assert_eq!(result.unwrap(), 7);
    assert_eq!(output, "one\ntwo\n");
}

fn a_program_that_hangs_is_ended() {
    let start = Instant::now();
    // The first is long enough unless the machine is very busy.
    let output = [1, 10, 100].into_iter().map(|limit| {
        let limit = Duration::from_secs(limit);
        let (result, output) = shell("echo begun; exec sleep 1000", limit);
        assert!(matches!(result, Err(Error::TimedOut { .. })), "{result:?}");
        output
    });
    assert_eq!(
        output.into_iter().find(|it| !it.is_empty()).unwrap(),
        "begun\n"
    );
    assert!(start.elapsed() < Duration::from_secs(900));
}

fn a_program_that_is_not_there_is_told() {
    let job = Job::new("/nonexistent/program", []).unwrap();
    let mut output = Vec::new();
    let code = Machine::default().run(&job, &mut output).unwrap();
    assert_eq!(code, 127);
    assert!(String::from_utf8(output).unwrap().contains("No such file"));
}

fn everybody_reaches_every_pod() {
    let world = World::new(Spec::default()).unwrap();
    for place in [Place::Node, Place::Outside, Place::Pod(Pod::A)] {
        let caller = Caller::enter(&world, place.role()).unwrap();
        for pod in Pod::ALL {
            for address in [IpAddr::V4(pod.v4()), IpAddr::V6(pod.v6())] {
                for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
                    let to = SocketAddr::new(address, 8080);
                    match caller.connect(protocol, place.source(address), to, PATIENCE) {
                        Outcome::Answer(answer) => assert_eq!(answer.pod, pod.name()),
                        other => panic!("{place} > {to} {protocol:?}: {other}"),
                    }
                }
            }
        }
    }
}

/// The nft kind does not: this kernel has nf_tables without its IPv4 and IPv6 tables.
fn iptables_of_the_legacy_kind_works() {
    let rule = "-t nat -A POSTROUTING -m mark --mark 0x4000/0x4000 -m comment --comment why -j MASQUERADE --random-fully";
    for tool in ["iptables-legacy", "ip6tables-legacy"] {
        run(&format!("{tool} {rule}"));
        run(&format!("{tool} -t nat -F"));
    }
}

fn the_kernel_has_ipvs_and_sets() {
    run("ipvsadm -A -t 192.0.2.1:80 -s mh -b mh-fallback");
    run("ipvsadm -C");
    run("ipset create test hash:ip,port,net family inet6");
    run("ipset destroy test");
    run("ip link add test type dummy");
    run("ip link del test");
}
