//! The report as people and programs read it.

use std::fs;
use std::path::Path;

use ferrovia_core::family::Family;
use ferrovia_core::model::Protocol;
use ferrovia_host::survey::sockets::Listener;

use super::facts::Conntrack;
use super::selftest::Trial;
use super::text::{Colour, Text};
use super::*;

/// A node with something of every kind.
fn ill() -> Facts {
    let mut facts = Facts {
        families: Family::ALL.to_vec(),
        conntrack: Some(Conntrack {
            used: 230_000,
            max: 262_144,
            totals: None,
        }),
        localnet_routed: vec!["all".into()],
        node_ports: vec![NodePort {
            port: 30080,
            protocol: Protocol::Tcp,
            service: "default/web:http".into(),
        }],
        listeners: Some(vec![Listener {
            protocol: Protocol::Tcp,
            address: [0, 0, 0, 0].into(),
            port: 30080,
            inode: 7,
        }]),
        owners: [(7, "nginx (pid 812)".to_owned())].into(),
        trials: vec![Trial {
            check: "self-test/hairpin",
            what: "a pod reaches itself through its Service",
            family: Family::V4,
            outcome: Ok(()),
        }],
        unseen: vec![Unseen {
            what: "other proxies and firewalls by their processes".into(),
            why: "only some of the machine's processes can be seen from here".into(),
            essential: false,
        }],
        ..Facts::default()
    };
    facts.kernel.release = "6.1.0".into();
    facts.kernel.nftables = Some(Ok(()));
    facts.settings.insert("net/ipv4/ip_forward", "0".into());
    facts
        .settings
        .insert("net/ipv6/conf/all/forwarding", "0".into());
    facts
}

#[test]
fn the_text_is_as_it_was_agreed_upon() {
    let report = examine(&ill());
    let colour = Colour::Off;
    let text = Text {
        report: &report,
        colour,
    }
    .to_string();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/inspect/doctor/tests/ill.txt");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&golden, &text).unwrap();
    }
    assert_eq!(
        text,
        fs::read_to_string(&golden).unwrap(),
        "BLESS=1 rewrites it"
    );
    assert!(text.lines().all(|line| line.chars().count() <= 100));
}

#[test]
fn colours_change_nothing_but_colours() {
    let report = examine(&ill());
    let text = |colour| {
        Text {
            report: &report,
            colour,
        }
        .to_string()
    };
    let mut plain = text(Colour::On);
    for code in [
        "\u{1b}[1;31m",
        "\u{1b}[31m",
        "\u{1b}[32m",
        "\u{1b}[33m",
        "\u{1b}[36m",
        "\u{1b}[1m",
        "\u{1b}[0m",
    ] {
        plain = plain.replace(code, "");
    }
    assert_eq!(plain, text(Colour::Off));
}

#[test]
fn programs_get_the_same() {
    let report = examine(&ill());
    let json = to_json(&report);
    assert_eq!(json["exitCode"], 2);
    assert_eq!(json["problems"], 1);
    let first = &json["findings"][0];
    assert_eq!(first["check"], "kernel/nftables");
    assert_eq!(first["severity"], "ok");
    let findings = json["findings"].as_array().unwrap();
    let forward = findings
        .iter()
        .find(|one| one["check"] == "settings/ip-forward")
        .unwrap();
    assert_eq!(forward["area"], "settings");
    assert!(forward["do"].as_str().unwrap().starts_with("sysctl -w"));
    assert_eq!(json["notLookedAt"][0]["essential"], false);
}

#[test]
fn every_finding_that_asks_for_something_says_why() {
    for finding in examine(&ill()).findings {
        let is_bad = finding.severity >= Severity::Warning;
        assert_eq!(
            is_bad,
            is_bad && !finding.why.is_empty() && !finding.remedy.is_empty(),
            "{finding:?}"
        );
    }
}
