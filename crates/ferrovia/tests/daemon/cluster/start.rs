//! How it starts, what it may do, and what makes it end at once.

use std::process::Command;

use ferrovia_lab::Role;
use ferrovia_lab::daemon::kube_proxy::{HEALTH, METRICS};
use ferrovia_lab::daemon::manifests::web;
use ferrovia_lab::waiting::{SOON, wait};

use super::Cluster;

const ANSWERS: &str = "pod-c > 10.96.0.10:80 => 10.244.2.10:8080
pod-c > [fd00:10:96::a]:80 => [fd00:10:244:2::10]:8080";

/// CAP_NET_ADMIN as the kernel writes a set of capabilities.
const NET_ADMIN: &str = "0000000000001000";

impl Cluster {
    fn tables(&self) -> String {
        self.node.on_node("nft", &["list", "tables"])
    }

    /// Runs to the end; answers with the exit code, standard output and standard error.
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut command = self.node.world.exec(Role::Node, "timeout");
        let output = command
            .arg(SOON.as_secs().to_string())
            .arg(self.node.folder().join("kube-proxy"))
            .args(self.node.kube_proxy_arguments())
            .args(arguments)
            .output();
        let output = output.expect("it can be started");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    }

    /// It ends with 1 and one line with these words, and has written nothing.
    fn refuses(&self, words: &[&str]) {
        let (code, _, said) = self.run(&[]);
        assert_eq!(code, Some(1), "{said}");
        // What is logged before is not the message.
        let message: Vec<_> = said
            .lines()
            .filter(|line| line.starts_with("ferrovia: ") || line.starts_with("kube-proxy: "))
            .collect();
        assert_eq!(message.len(), 1, "{said}");
        for word in words {
            assert!(message[0].contains(word), "no {word:?} in {said}");
        }
        assert_eq!(said.lines().last(), Some(message[0]), "{said}");
        assert_eq!(self.tables(), "", "{said}");
    }

    /// What all threads of the daemon may do now: the sets of this name, without repetition.
    fn capabilities(&self, set: &str) -> Vec<String> {
        let tasks = format!("/proc/{}/task", self.node.pid());
        let tasks = std::fs::read_dir(tasks).expect("the daemon runs");
        let mut sets: Vec<String> = tasks
            .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("status")).ok())
            .filter_map(|status| {
                let line = status.lines().find_map(|line| line.strip_prefix(set))?;
                Some(line.trim().to_owned())
            })
            .collect();
        sets.sort_unstable();
        sets.dedup();
        sets
    }
}

#[test]
fn reports_startup_errors_in_one_line_and_does_not_touch_the_kernel() {
    let cluster = Cluster::new();
    let good = cluster.node.config();
    for (from, to, words) in [
        (
            "mode: nftables",
            "mode: fast",
            &["mode", "\"fast\"", "nftables"][..],
        ),
        ("10.244.0.0/16", "10.244.0.0/33", &["clusterCIDR", "/33"]),
        (
            "nodePortAddresses: null",
            "nodePortAddresses: [nonsense]",
            &["nodePortAddresses", "nonsense"],
        ),
        (
            "healthzBindAddress: \"\"",
            "healthzBindAddress: nowhere",
            &["healthzBindAddress", "nowhere"],
        ),
        (
            "kubeconfig: ",
            "kubeconfig: /does/not/exist",
            &["/does/not/exist"],
        ),
        (
            "mode:",
            "featureGates: { Nonsense: true }\nmode:",
            &["Nonsense"],
        ),
    ] {
        cluster.node.write("config.conf", &good);
        cluster.node.edit_config(from, to);
        cluster.refuses(words);
    }
}

#[test]
fn reports_the_error_in_an_invalid_kubeconfig() {
    let cluster = Cluster::new();
    let folder = cluster.node.folder();
    let good = std::fs::read_to_string(folder.join("kubeconfig")).expect("it is there");
    cluster
        .node
        .write("kubeconfig", "apiVersion: v1\nclusters: [");
    cluster.refuses(&["kubeconfig"]);
    cluster.node.write(
        "kubeconfig",
        &good.replace("current-context: lab", "current-context: other"),
    );
    cluster.refuses(&["kubeconfig", "other"]);
    cluster.node.write("kubeconfig", &good);
    let authority = std::fs::read_to_string(folder.join("ca.crt")).expect("it is there");
    let no_certificate = "-----BEGIN CERTIFICATE-----\nbm9uc2Vuc2U=\n-----END CERTIFICATE-----\n";
    for (bad, words) in [
        ("", "ca.crt"),
        ("nonsense", "ca.crt"),
        (no_certificate, "root certificate"),
    ] {
        cluster.node.write("ca.crt", bad);
        cluster.refuses(&[words]);
    }
    cluster.node.write("ca.crt", &authority);
    cluster.node.remove("token");
    cluster.refuses(&["token"]);
}

#[test]
fn writes_the_configuration_and_exits() {
    let cluster = Cluster::new();
    let path = cluster.node.folder().join("written");
    let (code, _, said) = cluster.run(&[&format!("--write-config-to={}", path.display())]);
    assert_eq!(code, Some(0), "{said}");
    let written = std::fs::read_to_string(path).expect("it was written");
    for line in ["mode: nftables", "hostnameOverride: node-1", "- primary"] {
        assert!(written.contains(line), "{written}");
    }
    assert_eq!(cluster.tables(), "");
    assert_eq!(cluster.api.requests().len(), 0);
}

#[test]
fn init_only_writes_no_rules() {
    let cluster = Cluster::new();
    cluster.apply(&web(&["2.10"]));
    let (code, _, said) = cluster.run(&["--init-only"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(cluster.tables(), "");
}

#[test]
fn rules_outlive_the_daemon_until_cleanup() {
    let cluster = Cluster::new();
    cluster.apply(&web(&["2.10"]));
    cluster.start();
    assert_eq!(cluster.node.stop(libc::SIGTERM), Some(0));
    cluster.node.expect(ANSWERS);
    let others = "add table ip kube-proxy\nadd table ip6 kube-proxy\nadd table ip others\n";
    cluster.node.feed("nft", &["-f", "-"], others);
    // It does not take an API server to clean up.
    cluster.api.refuse_connections(true).expect("it runs");
    let (code, said, log) = cluster.run(&["--cleanup"]);
    assert_eq!(code, Some(0), "{log}");
    assert!(
        said.contains("ferrovia") && said.contains("kube-proxy"),
        "{said}"
    );
    assert_eq!(cluster.tables(), "table ip others\n");
    let (code, said, _) = cluster.run(&["--cleanup"]);
    assert_eq!(
        (code, said.contains("nothing to remove")),
        (Some(0), true),
        "{said}"
    );
}

#[test]
fn a_running_daemon_has_only_the_needed_privileges() {
    let cluster = Cluster::new();
    cluster.apply(&web(&["2.10"]));
    cluster.start();
    // A while after the start, when what a kube-proxy may have left is gone.
    for set in ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"] {
        wait(|| match cluster.capabilities(set) {
            sets if sets == [NET_ADMIN] => Ok(()),
            sets => Err(format!("{set} {sets:?}")),
        });
    }
    assert_eq!(cluster.capabilities("NoNewPrivs:"), ["1"]);
}

#[test]
fn one_capability_is_enough() {
    let cluster = Cluster::new();
    cluster.apply(&web(&["2.10"]));
    let few = |user: &[&str]| -> Command {
        let mut command = cluster.node.world.exec(Role::Node, "setpriv");
        command
            .args(user)
            .args(["--bounding-set=-all,+net_admin", "--no-new-privs"])
            .arg(cluster.node.folder().join("kube-proxy"))
            .args(cluster.node.kube_proxy_arguments());
        command
    };
    // As root in a container, and as another user under systemd.
    let nobody = [
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--inh-caps=-all,+net_admin",
        "--ambient-caps=-all,+net_admin",
    ];
    for user in [&["--inh-caps=-all,+net_admin"][..], &nobody] {
        cluster.node.spawn(few(user));
        cluster.node.wait_until_ready();
        cluster.node.expect(ANSWERS);
        cluster.apply(&web(&["2.11"]));
        cluster
            .node
            .expect_soon("pod-c > 10.96.0.10:80 => 10.244.2.11:8080");
        assert_eq!(cluster.capabilities("CapEff:"), [NET_ADMIN]);
        cluster.apply(&web(&["2.10"]));
        cluster.node.expect_soon(ANSWERS);
        assert_eq!(cluster.node.stop(libc::SIGTERM), Some(0));
    }
}

#[test]
fn serves_a_port_in_use_once_it_is_free() {
    let cluster = Cluster::new();
    cluster.apply(&web(&["2.10"]));
    let taken = [
        cluster.take_port("0.0.0.0:10256"),
        cluster.take_port(METRICS),
    ];
    cluster.start();
    cluster.node.expect(ANSWERS);
    drop(taken);
    cluster.get_soon(HEALTH, "/healthz", 200);
    cluster.get_soon(METRICS, "/metrics", 200);
}

#[test]
fn exits_if_a_required_port_is_in_use() {
    let cluster = Cluster::new();
    cluster.apply(&web(&["2.10"]));
    cluster
        .node
        .edit_config("HardFail: false", "HardFail: true");
    let _taken = cluster.take_port("0.0.0.0:10256");
    cluster.refuses(&["0.0.0.0:10256", "bindAddressHardFail"]);
}
