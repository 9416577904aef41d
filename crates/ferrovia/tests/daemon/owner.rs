//! Two daemons on one node: one writes, the other waits or exits.

use std::fs::File;
use std::net::SocketAddr;
use std::process::{Child, Command, Output};

use ferrovia_lab::daemon::manifests::{service, web};
use ferrovia_lab::daemon::{TestNode, answered_throughout, parse_flows};
use ferrovia_lab::plain_http::{HttpResponse, try_request};
use ferrovia_lab::waiting::wait;
use ferrovia_lab::{Folder, Role, Session};

use crate::FERROVIA;

const WAITING: &str = "Waiting for another proxy to exit";
const CONTINUING: &str = "The other proxy has exited";
const HEALTH: &str = "127.0.0.1:10266";

/// A daemon beside the node's own, with other settings and servers.
struct Second<'n> {
    node: &'n TestNode,
    folder: Folder,
    child: Child,
}

impl<'n> Second<'n> {
    fn command(node: &TestNode) -> Command {
        let mut command = node.run_command();
        command.args([
            "--masquerade-all",
            &format!("--healthz-bind-address={HEALTH}"),
            "--metrics-bind-address=127.0.0.1:10269",
            "--web-bind-address=",
        ]);
        command
    }

    fn start(node: &'n TestNode, flags: &[&str]) -> Self {
        let folder = Folder::new();
        let log = File::create(folder.join("log")).expect("the folder is writable");
        let child = Self::command(node)
            .args(flags)
            .stderr(log)
            .spawn()
            .expect("ferrovia can be started");
        Self {
            node,
            folder,
            child,
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).expect("the log can be read")
    }

    fn wait_for_log(&self, words: &str) {
        wait(|| match self.log() {
            log if log.contains(words) => Ok(()),
            log => Err(format!("no {words:?} in the log:\n{log}")),
        });
    }

    fn get(&self, path: &str) -> Option<HttpResponse> {
        let _inside = self.node.world.enter(Role::Node).expect("it can be");
        let address: SocketAddr = HEALTH.parse().expect("an address");
        try_request(address, "GET", path, &[], "").ok()
    }

    fn wait_for_code(&self, path: &str, code: u16) {
        wait(|| match self.get(path) {
            Some(reply) if reply.code == code => Ok(()),
            other => Err(format!("{path}: {other:?}; log:\n{}", self.log())),
        });
    }
}

impl Drop for Second<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn said(output: &Output) -> String {
    let texts = [&output.stdout, &output.stderr];
    texts
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .concat()
}

#[test]
fn a_second_daemon_waits_and_continues_when_the_first_is_killed() {
    for mode in ["nftables", "iptables"] {
        let node = TestNode::new(FERROVIA);
        let flag = format!("--proxy-mode={mode}");
        node.write("web.yaml", &web(&["1.10"]));
        let mut first = node.run_command();
        first.arg(&flag);
        node.spawn(first);
        node.wait_until_ready();
        let second = Second::start(&node, &[&flag]);
        second.wait_for_log(WAITING);
        let line = second.log();
        let owner = format!("mode {mode}, pid {}, since 2", node.pid());
        assert!(line.contains(&owner), "no {owner:?} in\n{line}");
        second.wait_for_code("/livez", 200);
        second.wait_for_code("/healthz", 503);

        // The first goes on alone.
        let before = node.generation();
        node.write("more.yaml", &service("more", 11, 30081, &["2.11"]));
        node.expect_soon("pod-c > 10.96.0.11:80 => 10.244.2.11:8080");
        if mode == "nftables" {
            assert!(node.generation() <= before + 2, "one transaction a family");
        }
        assert!(!node.log().contains("somebody changed"), "{}", node.log());

        answered_throughout(&node, || {
            node.stop(libc::SIGKILL);
            second.wait_for_log(CONTINUING);
            second.wait_for_log("ready: all services");
        });
        second.wait_for_code("/healthz", 200);
        node.write("more.yaml", &service("more", 11, 30081, &["2.12"]));
        // It masquerades everything.
        node.expect_soon("pod-c > 10.96.0.11:80 => 10.244.2.12:8080 masq");
        let log = second.log();
        for words in [WAITING, CONTINUING] {
            assert_eq!(log.matches(words).count(), 1, "{log}");
        }
    }
}

/// As in a rolling update: the new pod starts while the old one still runs.
#[test]
fn no_connection_is_lost_when_the_first_is_replaced() {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["1.10"]));
    node.start();
    let mut session = Session::new(&node.world);
    let opened =
        parse_flows("hold kept outside > 198.51.100.10:30080\nhold inner pod-c > 10.96.0.10:80");
    let checked = parse_flows("check kept\ncheck inner");
    let none = Vec::<String>::new();
    assert_eq!(session.run(opened.steps[0].flows(&["nft"])), none);
    let second = Second::start(&node, &[]);
    second.wait_for_log(WAITING);
    answered_throughout(&node, || {
        assert_eq!(node.stop(libc::SIGTERM), Some(0));
        second.wait_for_log("ready: all services");
    });
    assert_eq!(session.run(checked.steps[0].flows(&["nft"])), none);
}

#[test]
fn a_second_daemon_exits_if_it_is_set_to() {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["1.10"]));
    node.start();
    let before = node.generation();
    let output = Second::command(&node)
        .arg("--when-owned=exit")
        .output()
        .expect("ferrovia can be started");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = said(&output);
    let owner = format!("pid {}", node.pid());
    assert!(said.contains("cannot proxy: another proxy"), "{said}");
    assert!(said.contains(&owner), "{said}");
    assert_eq!(node.generation(), before);
}

#[test]
fn a_waiting_daemon_stops_when_asked() {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["1.10"]));
    node.start();
    let mut second = Second::start(&node, &[]);
    second.wait_for_log(WAITING);
    second.wait_for_code("/livez", 200);
    let pid = second.child.id().to_string();
    assert!(
        Command::new("kill")
            .arg(pid)
            .status()
            .is_ok_and(|it| it.success())
    );
    assert_eq!(second.child.wait().expect("our child").code(), Some(0));
}

#[test]
fn cleanup_refuses_while_a_daemon_runs_unless_forced() {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["1.10"]));
    node.start();
    let owner = format!("pid {}", node.pid());
    let run = |arguments: &[&str]| {
        let output = node.ferrovia().args(arguments).output();
        output.expect("ferrovia can be started")
    };
    for arguments in [&["cleanup"][..], &["run", "--cleanup", "--manifests=/x"]] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = said(&output);
        assert!(
            said.contains("cannot remove the rules: a proxy uses them"),
            "{said}"
        );
        assert!(said.contains(&owner) && said.contains("--force"), "{said}");
    }
    node.expect("pod-c > 10.96.0.10:80 => 10.244.1.10:8080");
    for arguments in [
        &["cleanup", "--force"][..],
        &["run", "--cleanup", "--force", "--manifests=/x"],
    ] {
        let output = run(arguments);
        assert!(output.status.success(), "{output:?}");
        assert!(
            said(&output).contains("removed IPv4 table ferrovia"),
            "{output:?}"
        );
        // The daemon writes them again.
        node.expect_soon("pod-c > 10.96.0.10:80 => 10.244.1.10:8080");
    }
    node.stop(libc::SIGTERM);
    let output = run(&["cleanup"]);
    assert!(
        said(&output).contains("removed IPv4 table ferrovia"),
        "{output:?}"
    );
}
