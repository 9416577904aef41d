//! From the iptables mode and back, under traffic.

use ferrovia_lab::daemon::answered_throughout;
use ferrovia_lab::daemon::manifests::web;
use ferrovia_lab::uml::suite::Test;
use ferrovia_lab::waiting::wait;

use crate::stage::{Stage, expect_alive};

pub(crate) const TESTS: [Test; 1] = [("switch: to iptables and back", to_the_other_mode_and_back)];

const VIP: &str = "10.96.0.10:80";
const ANSWERS: &str = "pod-c > 10.96.0.10:80 => 10.244.2.10:8080
outside > 198.51.100.10:30080 => 10.244.2.10:8080 masq";

/// The rules of the iptables mode that send connections to endpoints.
fn translations(stage: &Stage) -> String {
    let save = stage.node.on_node("iptables-legacy-save", &["-t", "nat"]);
    let own = save.lines().filter(|line| line.contains("KUBE-SEP-"));
    own.collect::<Vec<_>>().join("\n")
}

fn change(stage: &Stage, mode: &str) {
    stage.node.stop(libc::SIGTERM);
    stage.start(mode);
}

/// No new connection fails on the way, and those that were made before each change go on.
fn to_the_other_mode_and_back() {
    let stage = Stage::new();
    stage.node.write("web.yaml", &web(&["2.10"]));
    stage.start("iptables");
    let (mut translated, _) = stage.hold(VIP);

    answered_throughout(&stage.node, || change(&stage, "ipvs"));
    wait(|| match translations(&stage) {
        left if left.is_empty() => Ok(()),
        left => Err(left),
    });
    assert!(stage.servers().contains(VIP), "{}", stage.servers());
    stage.node.expect(ANSWERS);
    expect_alive(&mut translated);
    let (mut virtual_, _) = stage.hold(VIP);

    answered_throughout(&stage.node, || change(&stage, "iptables"));
    assert!(!translations(&stage).is_empty());
    stage.node.expect(ANSWERS);
    stage
        .node
        .wait_for_log("Keeping the virtual servers of the ipvs mode until their connections end");
    let log = stage.node.log();
    assert!(!log.contains("somebody else"), "{log}");
    expect_alive(&mut translated);
    expect_alive(&mut virtual_);

    // Whoever comes back finds the servers that were kept, and keeps them.
    answered_throughout(&stage.node, || change(&stage, "ipvs"));
    stage.node.expect(ANSWERS);
    expect_alive(&mut translated);
    expect_alive(&mut virtual_);
}
