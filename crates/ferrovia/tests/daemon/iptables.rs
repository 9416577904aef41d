//! The daemon in the iptables mode.
//!
//! - `follow`: from an empty kernel through changes to the end, and starting again
//! - `switch`: from one mode to the other, and from a kube-proxy, under traffic
//! - `drift`: other people's hands in our chains
//! - `trouble`: the lock, the tools, the privileges
//! - `metrics`: what is counted
//! - `loopback`: node ports on 127.0.0.1, and neighbours who must not get there

mod drift;
mod follow;
mod loopback;
mod metrics;
mod switch;
mod trouble;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ferrovia_host::iptables::Backend;
use ferrovia_lab::daemon::TestNode;
use ferrovia_lab::waiting::wait_at_most;
use ferrovia_lab::{Folder, Role};

use crate::FERROVIA;

/// How long a comparison of all rules may be away. It is due after a hundred times what reading them takes, which on a loaded machine may
/// be much more than the sync period.
const NEXT_COMPARISON: Duration = Duration::from_secs(300);

const BACKENDS: [Backend; 2] = [Backend::Nft, Backend::Legacy];

/// How a kubelet says which tools it uses: by using them for this.
const KUBELETS_WORD: [&str; 4] = ["-t", "mangle", "-N", "KUBE-IPTABLES-HINT"];

/// How the tools' names end.
const ENDINGS: [&str; 3] = ["", "-save", "-restore"];

/// A node that uses one kind of the iptables tools.
struct Machine {
    node: TestNode,
    backend: Backend,
    /// The tools' lock, the record of their calls, and the stand-ins that keep it. Not in the daemon's folder, which is watched.
    own: Folder,
}

impl Machine {
    /// A node without rules, where a kubelet has said which tools it uses.
    fn new(backend: Backend) -> Self {
        let machine = Self::without_kubelet(backend);
        machine.tool("", &KUBELETS_WORD);
        machine
    }

    /// A node without any rules.
    fn without_kubelet(backend: Backend) -> Self {
        let own = Folder::new();
        fs::create_dir_all(own.join("bin")).expect("a temporary folder can be made");
        Self {
            node: TestNode::new(FERROVIA),
            backend,
            own,
        }
    }

    fn lock_file(&self) -> PathBuf {
        self.own.join("xtables.lock")
    }

    /// A program in the node's namespace with a lock of the node's own, as on a machine of its own.
    fn program(&self, name: &str) -> Command {
        let mut command = self.node.world.exec(Role::Node, name);
        command.env("XTABLES_LOCKFILE", self.lock_file());
        command
    }

    /// Runs the IPv4 tool whose name ends so; it must succeed. Answers with what it printed.
    fn tool(&self, ending: &str, arguments: &[&str]) -> String {
        said_by(
            self.program(&format!("{}{ending}", self.backend))
                .args(arguments),
        )
    }

    /// The daemon's command line in the iptables mode.
    fn iptables_mode(&self) -> Command {
        let mut command = self.node.run_command();
        command
            .args(["--proxy-mode=iptables", "--iptables-sync-period=1s"])
            .env("XTABLES_LOCKFILE", self.lock_file());
        command
    }

    /// The same without checks, so that all that happens comes of changes.
    fn without_checks(&self) -> Command {
        let mut command = self.iptables_mode();
        command.arg("--iptables-sync-period=1h");
        command
    }

    /// The same in the nftables mode.
    fn nftables_mode(&self) -> Command {
        let mut command = self.node.run_command();
        command
            .arg("--proxy-mode=nftables")
            .env("XTABLES_LOCKFILE", self.lock_file());
        command
    }

    /// Starts the daemon in the iptables mode and waits until all services are in the kernel.
    fn start(&self) {
        self.run(self.iptables_mode());
    }

    /// Starts a daemon and waits until all services are in the kernel.
    fn run(&self, command: Command) {
        self.node.spawn(command);
        self.node.wait_until_ready();
    }

    /// Lets the daemon use stand-ins for the tools, which keep a record of their calls.
    fn recorded(&self, command: Command) -> Command {
        let _ = fs::remove_file(self.own.join("record"));
        let mut command = self.with_stand_ins(command, "record.sh");
        command.env("RECORD", self.own.join("record"));
        command
    }

    /// Lets the daemon use a script of this folder in the place of the tools.
    fn with_stand_ins(&self, mut command: Command, script: &str) -> Command {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/daemon/iptables");
        let bin = self.own.join("bin");
        for name in tool_names() {
            // There may be one from an earlier start.
            let _ = fs::remove_file(bin.join(&name));
            symlink(folder.join(script), bin.join(name)).expect("the folder is ours");
        }
        let path = std::env::var("PATH").expect("there is a search path");
        command.env("PATH", format!("{}:{path}", bin.display()));
        command
    }

    /// The recorded calls, a line each.
    fn record(&self) -> String {
        fs::read_to_string(self.own.join("record")).unwrap_or_default()
    }

    /// All rules of both families and both kinds of tools, without counts, and without the chain that says they are ours: it comes some time
    /// after them.
    fn rules(&self) -> String {
        let mut rules = String::new();
        for save in tool_names().iter().filter(|name| name.ends_with("-save")) {
            let text = said_by(&mut self.program(save));
            let is_rule = |line: &&str| !line.starts_with('#') && !line.contains("FERROVIA-OWNED");
            for line in text.lines().filter(is_rule) {
                // `:CHAIN POLICY [packets:bytes]`
                let line = line.split(" [").next().unwrap_or_default();
                rules += &format!("{save}: {line}\n");
            }
        }
        rules
    }

    /// The rules become these, sooner or later.
    fn expect_rules(&self, wanted: &str) {
        wait_at_most(NEXT_COMPARISON, || match self.rules() {
            now if now == wanted => Ok(()),
            now => Err(format!(
                "{}\nlog:\n{}",
                difference(wanted, &now),
                self.node.log()
            )),
        });
    }
}

/// The names of all programs of both kinds of tools.
fn tool_names() -> Vec<String> {
    let tools = ["iptables", "ip6tables"]
        .into_iter()
        .flat_map(|tool| ["nft", "legacy"].map(|kind| format!("{tool}-{kind}")));
    tools
        .flat_map(|tool| ENDINGS.map(|ending| format!("{tool}{ending}")))
        .collect()
}

fn said_by(command: &mut Command) -> String {
    let output = command.output().expect("the program can be run");
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What is missing and what is too much, for people.
fn difference(wanted: &str, found: &str) -> String {
    let only = |these: &str, those: &str| {
        let lines = these
            .lines()
            .filter(|line| !those.lines().any(|other| other == *line));
        lines.collect::<Vec<_>>().join("\n  ")
    };
    format!(
        "missing:\n  {}\ntoo much:\n  {}",
        only(wanted, found),
        only(found, wanted)
    )
}
