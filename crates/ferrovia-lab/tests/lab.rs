//! The lab on the real kernel: reachability, outcomes of real rules, and cleaning up. Needs root.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use ferrovia_lab::client::{Caller, PATIENCE};
use ferrovia_lab::namespace::{run as run_here, succeed};
use ferrovia_lab::waiting::wait_until;
use ferrovia_lab::{Case, ClientHost, Outcome, Pod, Protocol, Role, Session, Spec, World};

const CLIENT_HOSTS: [ClientHost; 6] = [
    ClientHost::Node,
    ClientHost::Node2,
    ClientHost::Outside,
    ClientHost::Pod(Pod::A),
    ClientHost::Pod(Pod::D),
    ClientHost::Pod(Pod::Y),
];

fn world() -> World {
    World::new(Spec::default()).unwrap()
}

/// Runs flow lines as a one-step case; returns the failures.
fn run(session: &mut Session<'_>, flows: &str) -> Vec<String> {
    let text = format!("# flows\n-- step1.yaml --\n-- flows --\n{flows}\n");
    let case = Case::parse(Path::new("test.case"), &text).unwrap();
    session.run(case.steps.first().unwrap().flows(&["nft"]))
}

fn assert_flows(world: &World, flows: &str) {
    let failures = run(&mut Session::new(world), flows);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Loads rules in the node of a world.
fn load(world: &World, rules: &str) {
    succeed(world.exec(Role::Node, "nft").args(["-f", "-"]), rules);
}

fn assert_all_hosts_reach_all_pods(world: &World) {
    for host in CLIENT_HOSTS {
        let caller = Caller::enter(world, host.role()).unwrap();
        for pod in Pod::ALL {
            for address in [IpAddr::V4(pod.v4()), IpAddr::V6(pod.v6())] {
                for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
                    let to = SocketAddr::new(address, 8080);
                    let from = host.source(address);
                    let what = format!("{host} > {to} {protocol:?}");
                    match caller.connect(protocol, from, to, PATIENCE) {
                        Outcome::Answer(answer) => {
                            assert_eq!(answer.pod, pod.name(), "{what}");
                            assert_eq!(answer.endpoint, to, "{what}");
                            assert_eq!(answer.seen_source, answer.own_source, "{what}");
                        }
                        other => panic!("{what}: {other}"),
                    }
                }
            }
        }
    }
}

#[test]
fn all_hosts_reach_all_pods() {
    let begin = Instant::now();
    let world = world();
    println!("World::new took {:?}", begin.elapsed());
    let begin = Instant::now();
    assert_all_hosts_reach_all_pods(&world);
    println!("252 calls took {:?}", begin.elapsed());
    let begin = Instant::now();
    drop(world);
    println!("dropping took {:?}", begin.elapsed());
}

#[test]
fn all_hosts_reach_all_pods_on_a_bridge() {
    let world = World::new(Spec {
        bridge: true,
        ..Spec::default()
    })
    .unwrap();
    assert_all_hosts_reach_all_pods(&world);
    let links = succeed(world.exec(Role::Node, "ip").args(["-br", "link"]), "");
    assert!(links.contains("cbr0"), "{links}");

    load(&world, RULES);
    assert_flows(
        &world,
        "pod-a > 10.96.0.1:80 => 10.244.1.10:80 | 10.244.2.11:80 hairpin
         pod-b > 10.96.0.1:80/udp => 10.244.1.10:80 | 10.244.2.11:80
         pod-c > [fd00:10:96::1]:80 => [fd00:10:244:1::10]:80 | [fd00:10:244:2::11]:80
         outside > 10.96.0.2:80 => 10.244.1.11:80 masq
         pod-c > [fd00:10:96::2]:80 => [fd00:10:244:1::11]:80 masq
         pod-c > [fd00:10:96::4]:80 => refused",
    );
}

#[test]
fn unknown_ports_are_refused_and_unknown_addresses_dropped() {
    assert_flows(
        &world(),
        "pod-a > 10.244.1.11:7 => refused
         outside > [fd00:10:244:2::10]:7/udp => refused
         node > 10.244.2.10:7 => refused
         outside > 203.0.113.5:80 => dropped
         pod-x > 10.96.0.1:80/udp => dropped
         node > [2001:db8:99::1]:80 => dropped
         outside > 198.51.100.10:80 => refused
         outside > [2001:db8:51::11]:80 => refused
         node2 > 198.51.100.11:80 => refused
         pod-a > 192.0.2.50:80 => dropped
         pod-a > [2001:db8:2::50]:80 => dropped",
    );
}

#[test]
fn calls_use_the_given_source_address() {
    assert_flows(
        &world(),
        "outside@203.0.113.200 > 10.244.1.10:80 => 10.244.1.10:80
         outside@192.0.2.77 > 10.244.2.10:80/udp => 10.244.2.10:80
         outside@2001:db8:113::200 > [fd00:10:244:1::10]:80 => [fd00:10:244:1::10]:80
         node@198.51.100.11 > 10.244.1.10:80 => 10.244.1.10:80
         node@2001:db8:51::11 > [fd00:10:244:2::12]:80 => [fd00:10:244:2::12]:80",
    );
}

/// One Service address for each outcome, in both families.
const RULES: &str = "
table ip t {
    map weighted {
        typeof numgen random mod 4 : ip daddr
        elements = { 0 : 10.244.1.10, 1 : 10.244.1.10, 2 : 10.244.1.10, 3 : 10.244.2.10 }
    }
    chain nat-pre { type nat hook prerouting priority -100; jump nat; }
    chain nat-out { type nat hook output priority -100; jump nat; }
    chain nat {
        ip daddr 10.96.0.1 meta l4proto { tcp, udp, sctp } dnat to numgen random mod 2 map { 0 : 10.244.1.10, 1 : 10.244.2.11 }
        ip daddr 10.96.0.2 meta mark set 1 dnat to 10.244.1.11
        ip daddr 10.96.0.3 dnat to numgen random mod 4 map @weighted
        ip daddr 10.96.0.7 meta mark set 1 dnat to 10.244.2.10
        ip daddr 10.96.0.6 dnat to jhash ip saddr mod 3 map { 0 : 10.244.1.10, 1 : 10.244.1.11, 2 : 10.244.1.12 }
    }
    chain nat-post {
        type nat hook postrouting priority 100;
        meta mark 1 masquerade
        ip saddr 10.244.1.10 ip daddr 10.244.1.10 masquerade
    }
    chain filter-in { type filter hook input priority 0; jump filter; }
    chain filter-fwd { type filter hook forward priority 0; jump filter; }
    chain filter-out { type filter hook output priority 0; jump filter; }
    chain filter {
        ip daddr 10.96.0.4 reject
        ip daddr 10.96.0.5 drop
        ip daddr 10.96.0.8 reject with icmp type host-unreachable
    }
}
table ip6 t {
    chain nat-pre { type nat hook prerouting priority -100; jump nat; }
    chain nat-out { type nat hook output priority -100; jump nat; }
    chain nat {
        ip6 daddr fd00:10:96::1 dnat to numgen random mod 2 map { 0 : fd00:10:244:1::10, 1 : fd00:10:244:2::11 }
        ip6 daddr fd00:10:96::2 meta mark set 1 dnat to fd00:10:244:1::11
        ip6 daddr fd00:10:96::7 meta mark set 1 dnat to fd00:10:244:2::10
    }
    chain nat-post {
        type nat hook postrouting priority 100;
        meta mark 1 masquerade
        ip6 saddr fd00:10:244:1::10 ip6 daddr fd00:10:244:1::10 masquerade
    }
    chain filter-fwd { type filter hook forward priority 0; jump filter; }
    chain filter-out { type filter hook output priority 0; jump filter; }
    chain filter {
        ip6 daddr fd00:10:96::4 reject
        ip6 daddr fd00:10:96::5 drop
    }
}
";

#[test]
fn flows_distinguish_all_outcomes() {
    let world = world();
    load(&world, RULES);
    let begin = Instant::now();
    assert_flows(
        &world,
        "pod-a > 10.96.0.1:80 => 10.244.1.10:80 | 10.244.2.11:80 hairpin
         pod-b > 10.96.0.1:80/udp => 10.244.1.10:80 | 10.244.2.11:80
         pod-b > 10.96.0.1:80/sctp => 10.244.1.10:80 | 10.244.2.11:80 kept
         node > 10.96.0.1:80 => 10.244.1.10:80 | 10.244.2.11:80
         outside > 10.96.0.1:53/udp => 10.244.1.10:53 | 10.244.2.11:53
         outside > 10.96.0.2:80 => 10.244.1.11:80 masq
         outside > 10.96.0.2:80/udp => 10.244.1.11:80 masq
         outside > 10.96.0.2:80/sctp => 10.244.1.11:80 masq
         pod-x > 10.96.0.2:80 => 10.244.1.11:80 masq
         node > 10.96.0.2:80 => 10.244.1.11:80 masq
         outside > 10.96.0.3:80 => 10.244.1.10:80 | 10.244.2.10:80 share 3:1
         pod-d > 10.96.0.6:80 => 10.244.1.10:80 | 10.244.1.11:80 | 10.244.1.12:80 sticky
         outside > 10.96.0.7:80 => 10.244.2.10:80 masq
         pod-x > 10.96.0.7:80 => 10.244.2.10:80 masq
         outside > [fd00:10:96::7]:80 => [fd00:10:244:2::10]:80 masq
         pod-b > 10.96.0.8:80 => unreachable
         node > 10.96.0.8:80 => unreachable
         pod-a > 10.96.0.4:80 => refused
         pod-a > 10.96.0.4:80/udp => refused
         pod-a > 10.96.0.4:80/sctp => refused
         outside > 10.96.0.4:80 => refused
         pod-x > 10.96.0.4:80 => refused
         node > 10.96.0.4:80 => refused
         node > 10.96.0.4:80/udp => refused
         pod-a > 10.96.0.5:80 => dropped
         outside > 10.96.0.5:80/udp => dropped
         outside > 10.96.0.5:80/sctp => dropped
         node > 10.96.0.5:80 => dropped
         node > 10.96.0.5:80/udp => dropped
         pod-a > [fd00:10:96::1]:80 => [fd00:10:244:1::10]:80 | [fd00:10:244:2::11]:80 hairpin
         node > [fd00:10:96::1]:80/udp => [fd00:10:244:1::10]:80 | [fd00:10:244:2::11]:80
         outside > [fd00:10:96::1]:80/sctp => [fd00:10:244:1::10]:80 | [fd00:10:244:2::11]:80
         outside > [fd00:10:96::2]:80 => [fd00:10:244:1::11]:80 masq
         outside > [fd00:10:96::2]:80/sctp => [fd00:10:244:1::11]:80 masq
         pod-y > [fd00:10:96::2]:80/udp => [fd00:10:244:1::11]:80 masq
         pod-a > [fd00:10:96::4]:80 => refused
         outside > [fd00:10:96::4]:80/udp => refused
         outside > [fd00:10:96::4]:80/sctp => refused
         node > [fd00:10:96::4]:80 => refused
         pod-a > [fd00:10:96::5]:80 => dropped
         node > [fd00:10:96::5]:80 => dropped",
    );
    println!("41 flows took {:?}", begin.elapsed());
}

#[test]
fn wrong_expectations_fail_with_the_reason() {
    let world = world();
    load(&world, RULES);
    let flows = "pod-b > 10.96.0.1:80 => 10.244.1.10:80
        pod-b > 10.96.0.1:80 => 10.244.1.10:80 | 10.244.2.11:80 | 10.244.1.12:80
        pod-b > 10.96.0.1:80 => 10.244.1.10:80 | 10.244.2.11:80 masq
        pod-b > 10.96.0.1:80 => 10.244.1.10:80 | 10.244.2.11:80 sticky
        pod-b > 10.96.0.3:80 => 10.244.1.10:80 | 10.244.2.10:80 share 1:1
        pod-a > 10.96.0.1:80 => 10.244.1.10:80 | 10.244.2.11:80
        outside > 10.96.0.2:80 => 10.244.1.11:80
        outside > 10.96.0.4:80 => dropped
        outside > 10.96.0.5:80 => refused
        outside > 10.96.0.5:80 => 10.244.1.10:80
        outside > 10.96.0.1:80 => refused
        outside > 10.96.0.4:80 => unreachable
        check nothing";
    let failures = run(&mut Session::new(&world), flows);
    for (line, part) in [
        (4, "unexpected endpoint 10.244.2.11:80 (pod-y)"),
        (5, "10.244.1.12:80 (pod-c) never answered"),
        (6, "expected a node address as source"),
        (7, "expected a single endpoint"),
        (8, "expected 50 %"),
        (
            9,
            "expected a node address|expected the client's own address",
        ),
        (10, "expected the client's own address as source"),
        (11, "expected dropped, got refused"),
        (12, "expected refused, got dropped"),
        (13, "expected an answer, got dropped"),
        (14, "expected refused, got 10.244."),
        (15, "expected unreachable, got refused"),
        (16, "no connection with this name"),
    ] {
        let start = format!("line {line}: ");
        let message = failures
            .iter()
            .find(|message| message.starts_with(&start))
            .unwrap_or_else(|| panic!("line {line} did not fail: {failures:#?}"));
        assert!(
            part.split('|').any(|part| message.contains(part)),
            "{message}"
        );
    }
    assert_eq!(failures.len(), 13);
}

#[test]
fn held_connections_outlive_a_step() {
    let world = world();
    load(&world, RULES);
    let mut session = Session::new(&world);
    let opened = run(
        &mut session,
        "hold tcp outside > 10.96.0.2:80
         hold udp pod-a > 10.96.0.2:80/udp
         hold doomed pod-a > 10.244.2.10:80
         check tcp
         check udp",
    );
    assert!(opened.is_empty(), "{opened:?}");

    // NAT is decided once per flow, so that it continues without the rules. The chains must stay: the
    // kernel translates nothing without a hook of type nat.
    load(&world, "flush chain ip t nat");
    world.stop(Pod::X).unwrap();
    let checked = run(
        &mut session,
        "check tcp => 10.244.1.11:80
         check udp => 10.244.1.11:80
         check doomed closed
         outside > 10.244.2.10:80 => refused
         outside > 10.244.2.11:80 => 10.244.2.11:80
         outside > 10.96.0.2:80 => dropped",
    );
    assert!(checked.is_empty(), "{checked:?}");

    let wrong = run(
        &mut session,
        "check tcp closed\ncheck udp => 10.244.1.10:80\ncheck doomed",
    );
    assert_eq!(wrong.len(), 3, "{wrong:?}");

    world.start(Pod::X).unwrap();
    assert_flows(&world, "outside > 10.244.2.10:80 => 10.244.2.10:80");
}

#[test]
fn dropping_a_world_removes_everything() {
    let world = world();
    let names = Role::ALL.map(|role| Path::new("/run/netns").join(world.name(role)));
    assert!(names.iter().all(|name| name.exists()));
    let mut sleeper = world.exec(Role::Node, "sleep").arg("600").spawn().unwrap();
    drop(world);
    assert!(!names.iter().any(|name| name.exists()));
    wait_until("processes of the world have exited", || {
        sleeper.try_wait().unwrap().is_some()
    });
}

#[test]
fn a_thread_enters_a_namespace_and_returns() {
    let world = world();
    let here = || fs::read_link("/proc/thread-self/ns/net").unwrap();
    let home = here();
    let inside = world.enter(Role::PodB).unwrap();
    assert_ne!(here(), home);
    drop(inside);
    assert_eq!(here(), home);
}

#[test]
fn commands_run_inside_a_namespace() {
    let world = world();
    let addresses = succeed(world.exec(Role::PodC, "ip").args(["-4", "-br", "addr"]), "");
    assert!(addresses.contains("10.244.1.12"), "{addresses}");
}

#[test]
fn a_sweep_removes_only_orphans() {
    let world = world();
    // The process ID of an exited process.
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let orphan = format!("fv-{}-0-node", gone.id());
    run_here(&format!("ip netns add {orphan}"));
    World::sweep().unwrap();
    assert!(!Path::new("/run/netns").join(&orphan).exists());
    assert!(
        Path::new("/run/netns")
            .join(world.name(Role::Node))
            .exists()
    );
}
