//! Failures half-way, the lock, and texts that want to be rules.

use std::fs::File;
use std::time::Duration;

use ferrovia_core::dialect::iptables::{IptablesRule, Restore, RestoreSection, TableName};
use ferrovia_core::family::Family;
use ferrovia_core::plan::{ObservedPolicy, Planner};
use ferrovia_host::Applier;
use ferrovia_host::iptables::{AcctCounter, AcctCounters, ApplyError, Backend};
use ferrovia_lab::kube_proxy_rules;

use crate::support::{BACKENDS, Node, in_namespace, restore, shape};

#[test]
fn a_write_that_fails_names_the_line_and_the_next_full_one_mends_all() {
    for backend in BACKENDS {
        in_namespace(|| {
            let mut node = Node::written(&shape("S9"), backend);
            // Another process removes a rule that our next change wants to remove.
            let jump = "-d 1.2.3.4/32 -p tcp -m comment --comment \"ns1/svc1:p80 loadbalancer IP\" -m tcp --dport 80 -j KUBE-EXT-XPGD46QRK7WJZT7O";
            restore(
                Family::V4,
                backend,
                &format!("*nat\n-D KUBE-SERVICES {jump}\nCOMMIT\n"),
            );
            let error = node.change(shape("S1").desired()).unwrap_err();
            let error = error.to_string();
            assert!(error.contains("(line: "), "{error}");
            node.full(ObservedPolicy::Adopt).unwrap();
            assert_eq!(
                kube_proxy_rules::rules(&node.save()),
                shape("S1").expected(),
                "{backend}"
            );
        });
    }
}

#[test]
fn a_write_cut_off_anywhere_is_completed() {
    for backend in BACKENDS {
        let sections = in_namespace(|| plan("S9", "S11", backend).sections().len());
        assert!(sections >= 2);
        for cut in 0..sections {
            in_namespace(|| {
                let mut node = Node::written(&shape("S9"), backend);
                node.desired = shape("S11").desired();
                let observed = node.applier.observe().unwrap();
                let whole = node
                    .planner
                    .full(&node.desired, &observed, ObservedPolicy::Adopt);
                let mut part = Restore::default();
                whole.sections()[..cut]
                    .iter()
                    .for_each(|section| part.push(section.clone()));
                node.applier.apply(&part).unwrap();
                node.restart();
                node.full(ObservedPolicy::Adopt).unwrap();
                assert_eq!(
                    kube_proxy_rules::rules(&node.save()),
                    shape("S11").expected(),
                    "{backend} {cut}"
                );
            });
        }
    }
}

/// What is written to get from one shape to another by a comparison.
fn plan(from: &str, to: &str, backend: Backend) -> Restore {
    let mut node = Node::written(&shape(from), backend);
    let observed = node.applier.observe().unwrap();
    node.planner
        .full(&shape(to).desired(), &observed, ObservedPolicy::Adopt)
}

#[test]
fn waits_for_the_lock_and_names_its_holder() {
    in_namespace(|| {
        let mut node = Node::new(&shape("S1"), Backend::Legacy);
        let lock = File::create(std::env::var_os("XTABLES_LOCKFILE").unwrap()).unwrap();
        // Other tests use it too.
        lock.lock().unwrap();
        node.applier = node.applier.with_lock_limit(Duration::from_millis(100));
        let error = node.full(ObservedPolicy::Adopt).unwrap_err();
        assert!(matches!(error, ApplyError::Lock(_)), "{error}");
        let me = format!("process {} (", std::process::id());
        assert!(error.to_string().contains(&me), "{error}");
        lock.unlock().unwrap();
        node.applier = node.applier.with_lock_limit(Duration::from_secs(60));
        node.full(ObservedPolicy::Adopt).unwrap();
        let usage = node.applier.lock_usage().get();
        assert_eq!(usage.times, 1);
        assert!(usage.last_held > Duration::ZERO && usage.held == usage.last_held);
    });
    in_namespace(|| {
        let node = Node::written(&shape("S1"), Backend::Nft);
        assert_eq!(node.applier.lock_usage().get().times, 0, "nft has no lock");
    });
}

#[test]
fn no_text_becomes_anything_but_a_comment() {
    let texts = [
        "x\"",
        "\\",
        "\\\"",
        "' -j DROP",
        "a\" -j DROP -m comment --comment \"b",
        "a\nCOMMIT\n*filter\n-A INPUT -j DROP",
        "a\r\n-X",
        "tab\there",
        "é ü 中",
        "-j DROP",
        "$(reboot) `reboot` ; reboot",
        "",
    ];
    for backend in BACKENDS {
        in_namespace(|| {
            let mut node = Node::written(&shape("base"), backend);
            let before = kube_proxy_rules::rules(&node.save());
            let mut section = RestoreSection::new(TableName::Nat);
            let rules = texts.map(|text| {
                IptablesRule::jump("KUBE-MARK-MASQ")
                    .comment(text)
                    .to_string()
            });
            section.fill("HOSTILE", &rules);
            let mut plan = Restore::default();
            plan.push(section);
            node.applier.apply(&plan).unwrap();
            let mut after = kube_proxy_rules::rules(&node.save());
            let written = after.remove(&("nat".into(), "HOSTILE".into())).unwrap();
            assert_eq!(after, before);
            assert_eq!(written, rules, "{backend}");
        });
    }
}

#[test]
fn loopback_is_opened_only_behind_its_guard() {
    const SETTING: &str = "/proc/sys/net/ipv4/conf/all/route_localnet";
    let setting = || std::fs::read_to_string(SETTING).unwrap().trim().to_owned();
    in_namespace(|| {
        let mut node = Node::new(&shape("S5"), Backend::Nft);
        node.applier.observe().unwrap();
        assert_eq!(setting(), "0");
        node.full(ObservedPolicy::Adopt).unwrap();
        assert_eq!(setting(), "1");
        let rules = kube_proxy_rules::rules(&node.save());
        assert!(rules.contains_key(&("filter".into(), "KUBE-FIREWALL".into())));
    });
}

#[test]
fn counters_are_made_once_and_can_be_read() {
    in_namespace(|| {
        let mut counters = AcctCounters::open().unwrap();
        assert!(counters.packets(AcctCounter::Invalid).is_err());
        for _ in 0..2 {
            counters.ensure(AcctCounter::Invalid).unwrap();
        }
        assert_eq!(counters.packets(AcctCounter::Invalid).unwrap(), 0);
    });
}
