//! Other people's hands in our tables.

use ferrovia_lab::daemon::TestNode;
use ferrovia_lab::daemon::manifests::{service, web};
use ferrovia_lab::waiting::wait;

use crate::FERROVIA;

const ANSWERS: &str = "pod-c > 10.96.0.10:80 => 10.244.1.10:8080 | 10.244.2.10:8080
pod-c > [fd00:10:96::a]:80 => [fd00:10:244:1::10]:8080 | [fd00:10:244:2::10]:8080
outside > 198.51.100.10:30080 => 10.244.1.10:8080 | 10.244.2.10:8080 masq
pod-c > 10.96.0.10:81 => refused";

/// Damages the rules in one transaction, for they are mended before a second one could come, and waits until they are whole again.
fn damaged_by(damage: &str) {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["1.10", "2.10"]));
    node.start();
    let whole = listing(&node);
    node.feed("nft", &["-f", "-"], damage);
    wait(|| match listing(&node) {
        now if now == whole => Ok(()),
        now => Err(format!("{now}\nlog:\n{}", node.log())),
    });
    node.expect(ANSWERS);
    node.wait_for_log("somebody changed our rules");
}

/// What the tables hold, without counts; elements sorted, because their order means nothing.
fn listing(node: &TestNode) -> String {
    let text = node.on_node("nft", &["--stateless", "--numeric", "list", "ruleset"]);
    let mut lines: Vec<&str> = text
        .lines()
        .map(|line| line.trim_end_matches([',', ' ', '}']).trim())
        .collect();
    lines.sort_unstable();
    lines.join("\n").replace("elements = { ", "")
}

#[test]
fn restores_a_flushed_ruleset() {
    damaged_by("flush ruleset");
}

#[test]
fn restores_a_deleted_table() {
    damaged_by("delete table ip ferrovia");
}

#[test]
fn restores_a_flushed_chain() {
    damaged_by("flush chain ip6 ferrovia services");
}

#[test]
fn restores_a_flushed_map() {
    damaged_by("flush map ip ferrovia endpoints");
}

#[test]
fn restores_a_deleted_element() {
    damaged_by("delete element ip ferrovia services { 10.96.0.10 . tcp . 80 }");
}

#[test]
fn removes_foreign_rules_elements_and_chains() {
    damaged_by(
        "add chain ip ferrovia mine
         add rule ip ferrovia mine drop
         insert rule ip ferrovia services jump mine
         add element ip ferrovia dropped-services { 10.96.0.10 . tcp . 80 }",
    );
}

#[test]
fn removes_a_foreign_chain_with_our_name() {
    damaged_by(
        "add chain ip ferrovia pick-20
         add rule ip ferrovia pick-20 drop",
    );
}

#[test]
fn a_foreign_set_goes() {
    damaged_by("add set ip ferrovia mine { type ipv4_addr; }");
}

#[test]
fn removes_changes_that_disable_the_table() {
    damaged_by("add table ip ferrovia { flags dormant; }");
    damaged_by("add chain ip ferrovia filter-forward { policy drop; }");
    damaged_by("add element ip ferrovia rejected-services { * }");
}

#[test]
fn recreates_a_table_that_cannot_be_repaired() {
    let node = TestNode::new(FERROVIA);
    // A chain of ours that is attached where it must not be, and a set that holds one element.
    node.feed(
        "nft",
        &["-f", "-"],
        "table ip ferrovia {
            chain pick-2 { type filter hook input priority 0; }
            set cluster-ips { type ipv4_addr; size 1; }
        }",
    );
    node.write("web.yaml", &web(&["1.10", "2.10"]));
    node.write("more.yaml", &service("more", 11, 30081, &["2.10"]));
    node.start();
    node.expect(ANSWERS);
}

#[test]
fn does_not_touch_other_tables() {
    let node = TestNode::new(FERROVIA);
    node.on_node("nft", &["add", "table", "ip", "mine"]);
    node.on_node(
        "nft",
        &[
            "add",
            "chain",
            "ip",
            "mine",
            "c",
            "{ type filter hook input priority 0; }",
        ],
    );
    node.write("web.yaml", &web(&["1.10", "2.10"]));
    node.start();
    let output = node
        .ferrovia()
        .args(["cleanup", "--force"])
        .output()
        .expect("ferrovia can be started");
    assert!(output.status.success());
    assert!(
        node.on_node("nft", &["list", "tables"])
            .contains("table ip mine")
    );
}
