//! The monitor reports changes of other processes and not our own.

use ferrovia_core::dialect::nft::{Element, KeyBuilder, NftOp};
use ferrovia_core::family::Family;
use ferrovia_core::model::Protocol;
use ferrovia_host::nft::{Monitor, Nft, RulesetChange};

use crate::sample;
use crate::support::{TABLE, apply, in_namespace, load, run};

/// Our ruleset in both families, and a monitor that started after it was written.
fn ruleset_and_monitor() -> (Nft, Monitor) {
    let mut nft = Nft::open().unwrap();
    for family in Family::ALL {
        apply(&mut nft, family, sample::frame(family));
        apply(&mut nft, family, sample::elements(family));
    }
    let monitor = Monitor::open(nft.port_id(), &[TABLE, "kube-proxy"]).unwrap();
    (nft, monitor)
}

/// An operation whose notifications take more than the monitor's 16 MiB: key, data and comment of each
/// element.
fn more_than_fits() -> NftOp {
    let element = |n: u32| {
        let key = KeyBuilder::new()
            .ip(sample::service_ip(Family::V4, 1000 + n))
            .proto(Protocol::Udp)
            .port(53);
        Element::value(key.build(), KeyBuilder::new().number(1).build())
            .with_comment(&"x".repeat(128))
    };
    NftOp::AddElements(
        sample::Sets::of(Family::V4).services,
        (0..100_000).map(element).collect(),
    )
}

fn touched(family: Family, table: &str) -> RulesetChange {
    RulesetChange::Table {
        family,
        table: table.to_owned(),
    }
}

#[test]
fn monitor_reports_changes_by_other_processes() {
    let commands = [
        "nft delete element ip ferrovia picks { 0:3 }",
        "nft add element ip ferrovia service-cidrs { 10.200.0.0/16 }",
        "nft add rule ip ferrovia rules drop",
        "nft flush chain ip ferrovia rules",
        "nft add chain ip ferrovia intruder",
        "nft flush set ip ferrovia hairpin",
        "nft delete table ip ferrovia",
        "nft add table ip ferrovia",
    ];
    in_namespace(move || {
        let (_nft, mut monitor) = ruleset_and_monitor();
        for command in commands {
            run(command);
            // What comes next is a change to the other family's table, so that a command that was
            // not reported is noticed at once.
            run("nft add rule ip6 ferrovia rules accept");
            assert_eq!(
                monitor.wait().unwrap(),
                touched(Family::V4, TABLE),
                "{command}"
            );
            assert_eq!(
                monitor.wait().unwrap(),
                touched(Family::V6, TABLE),
                "{command}"
            );
        }
    });
}

#[test]
fn a_flush_of_everything_touches_every_table_once() {
    in_namespace(|| {
        let (_nft, mut monitor) = ruleset_and_monitor();
        run("nft flush ruleset");
        run("nft add table ip kube-proxy");
        assert_eq!(monitor.wait().unwrap(), touched(Family::V4, TABLE));
        assert_eq!(monitor.wait().unwrap(), touched(Family::V6, TABLE));
        assert_eq!(monitor.wait().unwrap(), touched(Family::V4, "kube-proxy"));
    });
}

#[test]
fn monitor_ignores_own_commits_and_other_tables() {
    in_namespace(|| {
        let (mut nft, mut monitor) = ruleset_and_monitor();
        apply(
            &mut nft,
            Family::V4,
            vec![NftOp::FlushChain("rules".into())],
        );
        load("table ip nat {\nchain c {\n}\n}\ntable inet ferrovia { }\n");
        apply(&mut nft, Family::V4, vec![NftOp::DeleteTable]);
        // A second connection of this process is another process too.
        apply(
            &mut Nft::open().unwrap(),
            Family::V6,
            vec![NftOp::DeleteTable],
        );
        assert_eq!(monitor.wait().unwrap(), touched(Family::V6, TABLE));
    });
}

#[test]
fn our_own_hundred_thousand_elements_do_not_drown_news_of_others() {
    in_namespace(|| {
        let (mut nft, mut monitor) = ruleset_and_monitor();
        apply(&mut nft, Family::V4, vec![more_than_fits()]);
        run("nft add rule ip6 ferrovia rules accept");
        assert_eq!(monitor.wait().unwrap(), touched(Family::V6, TABLE));
    });
}

#[test]
fn more_news_than_fit_are_reported_as_lost() {
    in_namespace(|| {
        let (_nft, mut monitor) = ruleset_and_monitor();
        apply(
            &mut Nft::open().unwrap(),
            Family::V4,
            vec![more_than_fits()],
        );
        assert_eq!(monitor.wait().unwrap(), RulesetChange::Lost);
        // It receives again by then, so that nothing is missed while everything is verified.
        run("nft add rule ip6 ferrovia rules accept");
        assert_eq!(monitor.wait().unwrap(), touched(Family::V6, TABLE));
    });
}
