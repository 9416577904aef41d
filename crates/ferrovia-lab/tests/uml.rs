//! User-mode Linux: it boots, runs a program, returns its output and exit code, and a world can be created inside.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ferrovia_lab::client::{Caller, PATIENCE};
use ferrovia_lab::namespace::run;
use ferrovia_lab::uml::{self, Error, Job, Machine, suite};
use ferrovia_lab::{ClientHost, Outcome, Pod, Protocol, Spec, World};

fn main() -> ExitCode {
    uml::become_init_if_asked();
    if !suite::is_inside() {
        returns_output_and_exit_code();
        stops_a_program_that_hangs();
        reports_a_missing_program();
    }
    suite::main(&[
        ("all hosts reach all pods", all_hosts_reach_all_pods),
        ("legacy iptables works", legacy_iptables_works),
        ("the kernel has ipvs and sets", the_kernel_has_ipvs_and_sets),
    ])
}

fn shell(script: &str, limit: Duration) -> (Result<i32, Error>, String) {
    let job = Job::new("/bin/sh", ["-c", script].map(str::to_owned)).unwrap();
    let mut output = Vec::new();
    let result = Machine::default().limit(limit).run(&job, &mut output);
    (result, String::from_utf8(output).unwrap())
}

fn returns_output_and_exit_code() {
    let script = "echo one; printf two >&2; touch /nowhere 2>/dev/null && echo writable; exit 7";
    let (result, output) = shell(script, Duration::from_secs(300));
    assert_eq!(result.unwrap(), 7);
    assert_eq!(output, "one\ntwo\n");
}

fn stops_a_program_that_hangs() {
    let start = Instant::now();
    // The first limit is long enough unless the machine is very busy.
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

fn reports_a_missing_program() {
    let job = Job::new("/nonexistent/program", []).unwrap();
    let mut output = Vec::new();
    let code = Machine::default().run(&job, &mut output).unwrap();
    assert_eq!(code, 127);
    assert!(String::from_utf8(output).unwrap().contains("No such file"));
}

fn all_hosts_reach_all_pods() {
    let world = World::new(Spec::default()).unwrap();
    for host in [
        ClientHost::Node,
        ClientHost::Outside,
        ClientHost::Pod(Pod::A),
    ] {
        let caller = Caller::enter(&world, host.role()).unwrap();
        for pod in Pod::ALL {
            for address in [IpAddr::V4(pod.v4()), IpAddr::V6(pod.v6())] {
                for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
                    let to = SocketAddr::new(address, 8080);
                    match caller.connect(protocol, host.source(address), to, PATIENCE) {
                        Outcome::Answer(answer) => assert_eq!(answer.pod, pod.name()),
                        other => panic!("{host} > {to} {protocol:?}: {other}"),
                    }
                }
            }
        }
    }
}

/// The nft tools do not: this kernel has nf_tables without its IPv4 and IPv6 tables.
fn legacy_iptables_works() {
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
