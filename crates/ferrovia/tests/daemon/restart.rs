//! Ending and starting again.

use std::time::Duration;

use ferrovia_lab::daemon::manifests::{service, web};
use ferrovia_lab::daemon::{TestNode, parse_flows};

use crate::FERROVIA;

const ANSWERS: &str = "pod-c > 10.96.0.10:80 => 10.244.1.10:8080 | 10.244.2.10:8080
outside > 198.51.100.10:30080 => 10.244.1.10:8080 | 10.244.2.10:8080 masq";

#[test]
fn rules_outlive_the_daemon_and_a_restart_writes_nothing() {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["1.10", "2.10"]));
    node.write(
        "more.yaml",
        &service("more", 11, 30081, &["1.10", "1.11", "2.11"]),
    );
    node.start();
    // History that a fresh plan would not repeat: slots that were refilled, chains that were left over.
    node.write(
        "more.yaml",
        &service("more", 11, 30081, &["1.11", "2.11", "2.12"]),
    );
    node.expect_soon(
        "pod-d > 10.96.0.11:80 => 10.244.1.11:8080 | 10.244.2.11:8080 | 10.244.2.12:8080",
    );
    assert_eq!(node.stop(libc::SIGTERM), Some(0));
    node.expect(ANSWERS);
    let before = node.generation();
    assert!(node.once().status.success());
    node.start();
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(
        node.generation(),
        before + 2,
        "nothing was written but who owns the node, twice:\n{}",
        node.log()
    );
    node.expect(ANSWERS);
}

#[test]
fn writes_changes_made_while_it_was_down_at_start() {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["1.10", "2.10"]));
    node.start();
    node.stop(libc::SIGKILL);
    node.write("web.yaml", &web(&["2.11"]));
    node.start();
    node.expect("pod-c > 10.96.0.10:80 => 10.244.2.11:8080");
}

#[test]
fn reaches_the_same_state_after_being_killed_at_any_moment() {
    let node = TestNode::new(FERROVIA);
    for number in 0..400 {
        node.write(
            &format!("{number}.yaml"),
            &service(
                &format!("s{number}"),
                1000 + number,
                30100 + number,
                &["1.10", "2.10"],
            ),
        );
    }
    // From before the first write to well behind it.
    for pause in [0, 5, 15, 30, 60, 100, 200, 400] {
        node.start_without_waiting();
        std::thread::sleep(Duration::from_millis(pause));
        node.stop(libc::SIGKILL);
    }
    node.start();
    let log = node.log();
    node.stop(libc::SIGTERM);
    let before = node.generation();
    assert!(node.once().status.success());
    assert_eq!(
        node.generation(),
        before + 1,
        "the state is whole, and nothing was written but who owns the node:\n{log}"
    );
    node.expect("pod-c > 10.96.3.232:80 => 10.244.1.10:8080 | 10.244.2.10:8080");
    node.expect("pod-c > 10.96.5.119:80 => 10.244.1.10:8080 | 10.244.2.10:8080");
}

#[test]
fn connections_survive_a_kill_and_a_restart() {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["1.10"]));
    node.start();
    let mut session = ferrovia_lab::Session::new(&node.world);
    let opened =
        parse_flows("hold kept outside > 198.51.100.10:30080\nhold inner pod-c > 10.96.0.10:80");
    let checked = parse_flows("check kept\ncheck inner");
    assert_eq!(
        session.run(opened.steps[0].flows(&["nft"])),
        Vec::<String>::new()
    );
    node.stop(libc::SIGKILL);
    assert_eq!(
        session.run(checked.steps[0].flows(&["nft"])),
        Vec::<String>::new()
    );
    node.start();
    assert_eq!(
        session.run(checked.steps[0].flows(&["nft"])),
        Vec::<String>::new()
    );
}

#[test]
fn keeps_rules_of_a_broken_file_across_a_restart() {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["1.10", "2.10"]));
    node.write("more.yaml", &service("more", 11, 30081, &["2.11"]));
    node.start();
    node.write("web.yaml", "kind: Service\nspec: {");
    node.wait_for_log("web.yaml:2");
    node.stop(libc::SIGTERM);
    // The new process has never seen what the broken file gave.
    node.write("more.yaml", &service("more", 11, 30081, &["2.12"]));
    node.start();
    node.expect(ANSWERS);
    node.expect("pod-c > 10.96.0.11:80 => 10.244.2.12:8080");
    node.write("new.yaml", &service("new", 12, 30082, &["2.10"]));
    node.expect_soon("pod-c > 10.96.0.12:80 => 10.244.2.10:8080");
    node.expect(ANSWERS);
    // Repaired to another state: rules that are no longer desired are removed.
    node.write("web.yaml", &service("other", 13, 30083, &["2.10"]));
    node.expect_soon("pod-c > 10.96.0.13:80 => 10.244.2.10:8080\npod-c > 10.96.0.10:80 => dropped");
}
