//! Every scheduler of the kernel's, asked for by a Service's annotation, by its visible effect.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use ferrovia_lab::uml::suite::Test;
use ferrovia_lab::{Pod, Protocol, Role};

use crate::stage::{Manifest, Stage, at};

pub(crate) const TESTS: [Test; 1] = [("schedulers: each by its effect", each_by_its_effect)];

const LIGHT: Pod = Pod::A;
const HEAVY: Pod = Pod::X;
const EVEN: [(Pod, u32); 2] = [(LIGHT, 1), (HEAVY, 1)];
const UNEVEN: [(Pod, u32); 2] = [(LIGHT, 1), (HEAVY, 3)];

/// A Service's wish, its endpoints, what `ipvsadm` shows of it, and what is to be seen.
struct Trial {
    name: &'static str,
    annotations: &'static str,
    endpoints: [(Pod, u32); 2],
    shown: &'static str,
    effect: fn(&Stage, &str),
}

const fn trial(
    name: &'static str,
    annotations: &'static str,
    endpoints: [(Pod, u32); 2],
    shown: &'static str,
    effect: fn(&Stage, &str),
) -> Trial {
    Trial {
        name,
        annotations,
        endpoints,
        shown,
        effect,
    }
}

#[rustfmt::skip]
const TRIALS: [Trial; 16] = [
    trial("none", "{}", EVEN, "rr", in_turn),
    trial("rr", "{ ferrovia.io/scheduler: rr }", EVEN, "rr", in_turn),
    // Weights would be passed over by the scheduler that was asked for.
    trial("rr-weighted", "{ ferrovia.io/scheduler: rr }", UNEVEN, "wrr", by_weight),
    trial("wrr", "{ ferrovia.io/scheduler: wrr }", UNEVEN, "wrr", by_weight),
    trial("lc", "{ ferrovia.io/scheduler: lc }", EVEN, "lc", away_from_the_busy),
    trial("wlc", "{ ferrovia.io/scheduler: wlc }", UNEVEN, "wlc", kept_by_weight),
    trial("lblc", "{ ferrovia.io/scheduler: lblc }", EVEN, "lblc", one_for_all),
    trial("lblcr", "{ ferrovia.io/scheduler: lblcr }", EVEN, "lblcr", one_for_all),
    trial("dh", "{ ferrovia.io/scheduler: dh }", EVEN, "dh", one_for_all),
    trial("sh", "{ ferrovia.io/scheduler: sh }", EVEN, "sh -b sh-fallback", one_for_each_client),
    trial("mh", "{ ferrovia.io/scheduler: mh }", EVEN, "mh -b mh-fallback,mh-port", by_port),
    trial("source-hash", "{ ferrovia.io/algorithm: source-hash }", EVEN, "mh -b mh-fallback", one_for_each_client),
    trial("sed", "{ ferrovia.io/scheduler: sed }", UNEVEN, "sed", the_soonest_done),
    trial("nq", "{ ferrovia.io/scheduler: nq }", UNEVEN, "nq", the_idle_first),
    trial("fo", "{ ferrovia.io/scheduler: fo }", UNEVEN, "fo", the_heaviest),
    trial("ovf", "{ ferrovia.io/scheduler: ovf }", UNEVEN, "ovf", the_heaviest_until_full),
];

fn each_by_its_effect() {
    let stage = Stage::new();
    let ips: Vec<String> = (1..)
        .map(|n| format!("10.96.1.{n}"))
        .take(TRIALS.len())
        .collect();
    for (trial, ip) in TRIALS.iter().zip(&ips) {
        let manifest = Manifest {
            name: trial.name,
            annotations: trial.annotations,
            ip,
            endpoints: &trial.endpoints,
            ..Manifest::default()
        };
        manifest.write(&stage);
    }
    write_those_that_cannot_be(&stage);
    stage.start("ipvs");
    for (trial, ip) in TRIALS.iter().zip(&ips) {
        let vip = format!("{ip}:80");
        assert_eq!(stage.scheduler(&vip), trial.shown, "{}", trial.name);
        println!("  {}", trial.name);
        (trial.effect)(&stage, &vip);
    }
    expect_those_that_cannot_be(&stage);
}

const UNKNOWN: &str = "10.96.2.1";
/// Not every kernel has it.
const RARE: &str = "10.96.2.2";

fn write_those_that_cannot_be(stage: &Stage) {
    for (name, ip, scheduler) in [("unknown", UNKNOWN, "best"), ("rare", RARE, "twos")] {
        let manifest = Manifest {
            name,
            annotations: &format!("{{ ferrovia.io/scheduler: {scheduler} }}"),
            ip,
            endpoints: &EVEN,
            ..Manifest::default()
        };
        manifest.write(stage);
    }
}

/// The default is kept, and a warning says so.
fn expect_those_that_cannot_be(stage: &Stage) {
    let vip = format!("{UNKNOWN}:80");
    assert_eq!(stage.scheduler(&vip), "rr");
    in_turn(stage, &vip);
    stage
        .node
        .wait_for_log("is not a scheduler of the kernel's");
    if stage.scheduler(&format!("{RARE}:80")) != "twos" {
        stage
            .node
            .wait_for_log("this kernel has no scheduler twos; rr is used");
    }
}

fn in_turn(stage: &Stage, vip: &str) {
    let calls = stage.calls(vip, 4);
    assert_ne!(calls[0], calls[1], "{calls:?}");
    assert_eq!(calls[..2], calls[2..], "{calls:?}");
}

/// How many of them led to the heavy one.
fn to_the_heavy(answers: &[SocketAddr]) -> usize {
    answers.iter().filter(|one| **one == at(HEAVY)).count()
}

fn by_weight(stage: &Stage, vip: &str) {
    let calls = stage.calls(vip, 8);
    assert_eq!(to_the_heavy(&calls), 6, "{calls:?}");
}

/// One has connections when another comes: the new one gets all until it has as many.
fn away_from_the_busy(stage: &Stage, vip: &str) {
    let write = |endpoints: &[(Pod, u32)]| {
        let (ip, _) = vip.split_once(':').unwrap();
        let manifest = Manifest {
            name: "lc",
            annotations: "{ ferrovia.io/scheduler: lc }",
            ip,
            endpoints,
            ..Manifest::default()
        };
        manifest.write(stage);
    };
    write(&[(LIGHT, 1)]);
    // It had no connections, so it is gone soon.
    stage.expect_destinations(vip, &[(LIGHT, 1)]);
    let _busy: Vec<_> = (0..3).map(|_| stage.hold(vip)).collect();
    write(&EVEN);
    stage.expect_destinations(vip, &EVEN);
    let new: Vec<_> = (0..3).map(|_| stage.hold(vip)).collect();
    assert!(new.iter().all(|(_, to)| *to == at(HEAVY)), "{new:?}");
}

/// Where connections lead to that are opened one after the other and kept.
fn kept(stage: &Stage, vip: &str, number: usize) -> Vec<SocketAddr> {
    let all: Vec<_> = (0..number).map(|_| stage.hold(vip)).collect();
    all.iter().map(|(_, to)| *to).collect()
}

fn kept_by_weight(stage: &Stage, vip: &str) {
    let kept = kept(stage, vip, 4);
    assert_eq!(to_the_heavy(&kept), 3, "{kept:?}");
}

/// All clients of a destination address get the same endpoint, unless it is overloaded.
fn one_for_all(stage: &Stage, vip: &str) {
    let callers = [Role::PodC, Role::PodD, Role::PodB, Role::PodC];
    let calls = callers.map(|from| stage.call(Protocol::Tcp, from, vip));
    assert!(calls.iter().all(|to| *to == calls[0]), "{calls:?}");
}

fn one_for_each_client(stage: &Stage, vip: &str) {
    for from in [Role::PodB, Role::PodC, Role::PodD] {
        let calls: BTreeSet<_> = (0..4)
            .map(|_| stage.call(Protocol::Tcp, from, vip))
            .collect();
        assert_eq!(calls.len(), 1, "{from:?}: {calls:?}");
    }
}

/// Each connection of a client has a port of its own, so they are spread. That forty lead to one place by chance happens once in 10¹².
fn by_port(stage: &Stage, vip: &str) {
    let calls: BTreeSet<_> = stage.calls(vip, 40).into_iter().collect();
    assert_eq!(calls.len(), 2, "{calls:?}");
}

/// With three times the weight, the second connection there is done sooner than the first one elsewhere.
fn the_soonest_done(stage: &Stage, vip: &str) {
    assert_eq!(kept(stage, vip, 2), [at(HEAVY), at(HEAVY)]);
}

/// Nobody waits behind another while an endpoint has nothing to do.
fn the_idle_first(stage: &Stage, vip: &str) {
    let kept: BTreeSet<_> = kept(stage, vip, 2).into_iter().collect();
    assert_eq!(kept.len(), 2, "{kept:?}");
}

fn the_heaviest(stage: &Stage, vip: &str) {
    assert_eq!(stage.calls(vip, 4), [at(HEAVY); 4]);
}

/// The kernel counts an endpoint as full when it has more connections than its weight.
fn the_heaviest_until_full(stage: &Stage, vip: &str) {
    let kept = kept(stage, vip, 5);
    assert_eq!(kept, [HEAVY, HEAVY, HEAVY, HEAVY, LIGHT].map(at));
}
