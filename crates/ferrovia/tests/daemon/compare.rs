//! `verify` and `diff`: the kernel against what is wanted, and one folder against another.

use std::process::Command;

use ferrovia_lab::daemon::TestNode;
use ferrovia_lab::daemon::manifests::{service, web};
use serde_json::{Value, json};

use super::inspect::{SHAPE, look, text, written};
use crate::FERROVIA;

#[test]
fn verify_and_diff_detect_every_kind_of_damage() {
    let node = written();
    let verify = || look(&node, &["verify"]);
    let (code, said) = verify();
    assert_eq!(code, 0, "{said}");
    assert!(
        said.starts_with("OK:") && said.lines().count() == 1,
        "{said}"
    );
    assert_eq!(look(&node, &["diff"]), (0, String::new()));
    for (damage, expected) in [
        (
            "delete element ip ferrovia services { 10.96.0.10 . tcp . 80 }",
            "@@ missing map ip ferrovia services @@",
        ),
        (
            "flush map ip6 ferrovia endpoints",
            "@@ missing map ip6 ferrovia endpoints @@",
        ),
        (
            "flush chain ip ferrovia services",
            "chain ip ferrovia services @@",
        ),
        (
            "insert rule ip ferrovia services counter drop",
            "@@ wrong chain ip ferrovia services @@",
        ),
        (
            "add element ip ferrovia dropped-services { 10.96.0.10 . tcp . 80 }",
            "@@ foreign set ip ferrovia dropped-services @@",
        ),
        (
            "add chain ip ferrovia pick-77
             add rule ip ferrovia pick-77 drop",
            "foreign chain ip ferrovia pick-77",
        ),
        ("delete table ip ferrovia", "+table ip ferrovia"),
        (
            "add table ip kube-proxy",
            "@@ foreign table ip kube-proxy @@",
        ),
    ] {
        node.feed("nft", &["-f", "-"], damage);
        let (code, said) = verify();
        assert_eq!(code, 1, "{damage}: {said}");
        assert!(
            said.starts_with("DRIFT:") && said.lines().count() == 1,
            "{said}"
        );
        assert_eq!(look(&node, &["verify", "--quiet"]), (1, String::new()));
        let (code, said) = look(&node, &["diff"]);
        assert_eq!(code, 1, "{damage}: {said}");
        assert!(said.contains(expected), "{damage}: {said}");
        // Looking changes nothing; the proxy mends it.
        assert_eq!(verify().0, 1, "{damage}");
        assert!(node.once().status.success());
        let (code, said) = verify();
        assert_eq!(code, 0, "after {damage}: {said}");
    }
}

#[test]
fn prints_differences_as_json() {
    let node = written();
    node.feed("nft", &["-f", "-"], "flush map ip ferrovia endpoints");
    let (code, said) = look(&node, &["diff", "-o", "json"]);
    assert_eq!(code, 1, "{said}");
    let printed: Value = serde_json::from_str(&said).expect("it is JSON");
    assert_eq!(
        (&printed["mode"], &printed["same"]),
        (&json!("nftables"), &json!(false))
    );
    let difference = &printed["families"][0]["differences"][0];
    assert_eq!(difference["kind"], "missing");
    assert_eq!(difference["place"], "map ip ferrovia endpoints");
    let wanted = difference["wanted"][0].as_str().expect("it is text");
    assert!(wanted.contains("10.244.1.10"), "{said}");
}

#[test]
fn iptables_chains_are_compared_too() {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["1.10", "2.10"]));
    node.on_node(
        "iptables-nft",
        &["-t", "mangle", "-N", "KUBE-IPTABLES-HINT"],
    );
    let output = node.once_with(&["--proxy-mode=iptables"]);
    assert!(output.status.success(), "{}", text(&output));
    let look = |arguments: &[&str]| look(&node, &[arguments, &["--mode=iptables"]].concat());
    assert_eq!(look(&["diff"]), (0, String::new()));
    for (damage, expected) in [
        (
            &["-t", "nat", "-F", "KUBE-MARK-MASQ"][..],
            "@@ missing chain nat KUBE-MARK-MASQ @@",
        ),
        (
            &["-t", "nat", "-A", "KUBE-POSTROUTING", "-j", "ACCEPT"],
            "@@ foreign chain nat KUBE-POSTROUTING @@\n--j ACCEPT",
        ),
        (
            &["-t", "nat", "-F", "KUBE-SERVICES"],
            "@@ missing chain nat KUBE-SERVICES @@",
        ),
        (
            &["-t", "nat", "-F", "PREROUTING"],
            "@@ missing chain nat PREROUTING @@",
        ),
    ] {
        node.on_node("iptables-nft", damage);
        let (code, said) = look(&["diff", "--family=ipv4"]);
        assert!(code == 1 && said.contains(expected), "{damage:?}: {said}");
        assert_eq!(look(&["verify", "-q"]), (1, String::new()), "{damage:?}");
        assert!(node.once_with(&["--proxy-mode=iptables"]).status.success());
        let (code, said) = look(&["diff"]);
        assert_eq!(code, 0, "after {damage:?}: {said}");
    }
    let (code, said) = look(&["trace", "10.244.1.12", "->", "10.96.0.10:80"]);
    assert_eq!(code, 0, "{said}");
    let chains: Vec<_> = ["nat KUBE-SERVICES", "nat KUBE-SVC-", "nat KUBE-SEP-"]
        .map(|chain| said.find(chain))
        .into();
    assert!(chains.is_sorted() && chains[0].is_some(), "{said}");
    assert!(said.contains("--to-destination 10.244.2.10:8080"), "{said}");
}

#[test]
fn two_folders_are_compared_in_words_and_as_a_plan() {
    let (old, new) = (TestNode::new(FERROVIA), TestNode::new(FERROVIA));
    old.write("web.yaml", &web(&["1.10", "2.10"]));
    new.write("web.yaml", &web(&["1.10", "2.11"]));
    new.write("more.yaml", &service("more", 11, 30081, &["2.10"]));
    let diff = |a: &TestNode, b: &TestNode, more: &[&str]| {
        let output = Command::new(FERROVIA)
            .arg("diff")
            .args([a.folder(), b.folder()])
            .args(SHAPE)
            .args(more)
            .output()
            .expect("ferrovia can be started");
        (output.status.code(), text(&output))
    };
    assert_eq!(diff(&old, &old, &[]), (Some(0), String::new()));
    for mode in ["--mode=nftables", "--mode=iptables"] {
        let (code, said) = diff(&old, &new, &[mode, "--family=ipv4"]);
        assert_eq!(code, Some(1), "{said}");
        for line in [
            "# default/more/tcp is added: cluster IP 10.96.0.11:80, node port 30081 with 1 endpoint",
            "# default/web/tcp gets endpoint 10.244.2.11:8080",
            "# default/web/tcp loses endpoint 10.244.2.10:8080",
        ] {
            assert!(said.contains(line), "{line}\n{said}");
        }
        assert!(said.contains("10.96.0.11"), "{said}");
    }
    let one = Command::new(FERROVIA)
        .arg("diff")
        .arg(old.folder())
        .output()
        .expect("ferrovia can be started");
    assert_eq!(one.status.code(), Some(2));
    assert!(text(&one).contains("give two"), "{}", text(&one));
}
