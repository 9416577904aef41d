//! What commands say and how they end.

use std::process::{Command, Output};

use ferrovia_lab::daemon::TestNode;
use ferrovia_lab::daemon::manifests::{service, web};

use crate::FERROVIA;

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

fn ferrovia(arguments: &[&str]) -> Output {
    Command::new(FERROVIA)
        .args(arguments)
        .output()
        .expect("ferrovia can be started")
}

#[test]
fn once_writes_and_ends() {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["1.10", "2.10"]));
    let output = node.once();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    node.expect("pod-c > 10.96.0.10:80 => 10.244.1.10:8080 | 10.244.2.10:8080");
}

#[test]
fn reports_a_missing_folder_in_one_line() {
    let output = ferrovia(&["plan", "--manifests", "/does/not/exist"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output);
    assert!(
        said.contains("/does/not/exist") && said.lines().count() == 1,
        "{said}"
    );
}

#[test]
fn reports_invalid_flags_with_valid_values() {
    let said = |arguments: &[&str]| {
        let output = ferrovia(&[&["plan", "--manifests", "."], arguments].concat());
        assert!(!output.status.success(), "{arguments:?}");
        text(&output)
    };
    assert!(said(&["--nodeport-addresses=primary,10.0.0.0/8"]).contains("cannot be combined"));
    assert!(said(&["--nodeport-addresses=10.20.30.40x"]).contains("192.0.2.0/24"));
    assert!(said(&["--cluster-cidr=10.0.0.0/8,10.1.0.0/16"]).contains("one range of each family"));
    assert!(said(&["--detect-local-mode=BridgeInterface"]).contains("--pod-bridge-interface"));
    assert!(said(&["--detect-local-mode=Guess"]).contains("ClusterCIDR"));
    assert!(
        said(&["--masquerade-bit=32"]).contains("0..=31")
            || said(&["--masquerade-bit=32"]).contains("0..32")
    );
    assert!(said(&["--node-name=  "]).contains("empty"));
}

#[test]
fn plan_needs_no_privileges_and_changes_nothing() {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["1.10", "2.10"]));
    let folder = node.folder().to_str().expect("the path is text");
    std::fs::set_permissions(
        node.folder(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .expect("it is ours");
    let output = node
        .world
        .exec(ferrovia_lab::Role::Node, "setpriv")
        .args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--bounding-set=-all",
        ])
        .args([
            FERROVIA,
            "plan",
            "--manifests",
            folder,
            "--node-name=node-1",
        ])
        .output()
        .expect("setpriv can be run");
    assert!(output.status.success(), "{}", text(&output));
    let plan = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        plan.contains("add table ip ferrovia") && plan.contains("10.96.0.10 . tcp . 80"),
        "{plan}"
    );
    assert_eq!(node.on_node("nft", &["list", "tables"]), "");
    // And it is what the tool reads.
    node.feed("nft", &["-f", "-"], &plan);
    node.expect("pod-c > 10.96.0.10:80 => 10.244.1.10:8080 | 10.244.2.10:8080");
}

#[test]
fn reports_a_missing_capability() {
    let node = TestNode::new(FERROVIA);
    let folder = node.folder().to_str().expect("the path is text");
    let output = node
        .world
        .exec(ferrovia_lab::Role::Node, "setpriv")
        .args(["--bounding-set=-net_admin", "--inh-caps=-net_admin"])
        .args([FERROVIA, "run", "--manifests", folder, "--once"])
        .output()
        .expect("setpriv can be run");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("CAP_NET_ADMIN"), "{}", text(&output));
}

#[test]
fn prints_help_and_version() {
    let help = text(&ferrovia(&["--help"]));
    for word in ["run", "plan", "counters", "cleanup", "CAP_NET_ADMIN"] {
        assert!(help.contains(word), "{help}");
    }
    assert!(text(&ferrovia(&["--version"])).starts_with("ferrovia "));
}

#[test]
fn exits_cleanly_when_its_output_is_closed() {
    let node = TestNode::new(FERROVIA);
    for number in 0..300 {
        node.write(
            &format!("{number}.yaml"),
            &service(
                &format!("s{number}"),
                1000 + number,
                30100 + number,
                &["1.10"],
            ),
        );
    }
    let mut child = Command::new(FERROVIA)
        .args(["plan", "--manifests"])
        .arg(node.folder())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("ferrovia can be started");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("it is our child").code(), Some(0));
}
