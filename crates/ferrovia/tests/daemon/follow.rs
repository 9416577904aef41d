//! Changes while it runs.

use std::time::{Duration, Instant};

use ferrovia_lab::daemon::manifests::{service, web};
use ferrovia_lab::daemon::{TestNode, parse_flows};

use crate::FERROVIA;

const BOTH: &str = "pod-c > 10.96.0.10:80 => 10.244.1.10:8080 | 10.244.2.10:8080
pod-c > [fd00:10:96::a]:80 => [fd00:10:244:1::10]:8080 | [fd00:10:244:2::10]:8080";
const ONLY_REMOTE: &str = "pod-c > 10.96.0.10:80 => 10.244.2.10:8080
outside > 198.51.100.10:30080 => 10.244.2.10:8080 masq";

#[test]
fn follows_a_changed_file() {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["1.10", "2.10"]));
    node.start();
    node.expect(BOTH);
    node.write("web.yaml", &web(&["2.10"]));
    node.expect_soon(ONLY_REMOTE);
    node.remove("web.yaml");
    node.expect_soon("pod-c > 10.96.0.10:80 => dropped");
}

#[test]
fn keeps_the_last_valid_state_of_a_broken_file_and_reports_it() {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["1.10", "2.10"]));
    node.start();
    node.write(
        "web.yaml",
        "kind: Service\nmetadata: { name: web }\nspec:\n  ports: [{ port: many }]\n",
    );
    node.wait_for_log("web.yaml:4");
    node.write("other.yaml", &service("other", 11, 30081, &["2.11"]));
    node.expect_soon("pod-c > 10.96.0.11:80 => 10.244.2.11:8080");
    node.expect(BOTH);
    node.write("web.yaml", &web(&["2.10"]));
    node.expect_soon(ONLY_REMOTE);
}

#[test]
fn connections_survive_changes_of_other_endpoints() {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["1.10"]));
    node.start();
    let opened = parse_flows("hold kept outside > 198.51.100.10:30080");
    let checked = parse_flows("check kept");
    let mut session = ferrovia_lab::Session::new(&node.world);
    assert_eq!(
        session.run(opened.steps[0].flows(&["nft"])),
        Vec::<String>::new()
    );
    for pods in [
        &["1.10", "2.10"][..],
        &["1.10", "1.11", "2.10", "2.11"],
        &["2.11"],
        &[],
        &["1.12"],
    ] {
        node.write("web.yaml", &web(pods));
        // pod-d calls: it is not an endpoint.
        let endpoints: Vec<_> = pods
            .iter()
            .map(|pod| format!("10.244.{pod}:8080"))
            .collect();
        let outcome = if pods.is_empty() {
            "refused".to_owned()
        } else {
            endpoints.join(" | ")
        };
        node.expect_soon(&format!("pod-d > 10.96.0.10:80 => {outcome}"));
        assert_eq!(
            session.run(checked.steps[0].flows(&["nft"])),
            Vec::<String>::new(),
            "{pods:?}"
        );
    }
}

#[test]
fn a_new_address_of_the_node_answers_node_ports() {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["2.10"]));
    node.start();
    // `--nodeport-addresses=all` asks the kernel, so the set of addresses need not change; a range does.
    node.stop(libc::SIGTERM);
    let mut command = node.ferrovia();
    command.arg("run").arg("--manifests").arg(node.folder());
    command.args([
        "--node-name=node-1",
        "--nodeport-addresses=198.51.100.64/26",
        "--admin-socket=",
    ]);
    let mut child = command.spawn().expect("ferrovia can be started");
    node.expect_soon("outside > 198.51.100.10:30080 => refused");
    node.on_node("ip", &["address", "add", "198.51.100.70/24", "dev", "eth0"]);
    node.expect_soon("outside > 198.51.100.70:30080 => 10.244.2.10:8080 masq");
    node.expect("outside > 198.51.100.10:30080 => refused");
    node.on_node("ip", &["address", "del", "198.51.100.70/24", "dev", "eth0"]);
    child
        .kill()
        .and_then(|()| child.wait())
        .expect("the daemon can be killed");
}

#[test]
fn waits_for_the_minimum_period_between_writes() {
    const PERIOD: Duration = Duration::from_secs(3);
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["2.10"]));
    let mut command = node.ferrovia();
    command
        .arg("run")
        .arg("--manifests")
        .arg(node.folder())
        .args([
            "--node-name=node-1",
            "--min-sync-period=3s",
            "--admin-socket=",
        ]);
    let begin = Instant::now();
    let mut child = command.spawn().expect("ferrovia can be started");
    node.expect_soon("pod-c > 10.96.0.10:80 => 10.244.2.10:8080");
    node.write("web.yaml", &web(&["2.11"]));
    node.expect_soon("pod-c > 10.96.0.10:80 => 10.244.2.11:8080");
    let second = begin.elapsed();
    child
        .kill()
        .and_then(|()| child.wait())
        .expect("the daemon can be killed");
    // The first write came some time after the start, however late it was seen.
    assert!(
        second >= PERIOD,
        "the second write was seen after {second:?}"
    );
}
