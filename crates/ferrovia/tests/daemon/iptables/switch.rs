//! From one mode to the other, and from a kube-proxy, under traffic.

use std::io::Write as _;
use std::process::Stdio;

use ferrovia::mode::{InstallContext, IptablesMode, Mode as _, Removed};
use ferrovia_host::iptables::Backend;
use ferrovia_lab::daemon::manifests::web;
use ferrovia_lab::daemon::{OWNER_TABLE, answered_throughout, parse_flows};
use ferrovia_lab::waiting::wait;
use ferrovia_lab::{Role, Session};

use super::{BACKENDS, Machine, said_by};

/// A kube-proxy's rules among those of others.
const KUBE_PROXY: &str = include_str!(
    "../../../../ferrovia-core/src/dialect/iptables/leftovers/tests/iptables-mode.save"
);

const HOLD: &str = "hold kept outside > 198.51.100.10:30080\nhold inner pod-c > 10.96.0.10:80";
const CHECK: &str = "check kept\ncheck inner";

/// Goes on while new connections are made without pause and some old ones are kept; none may fail.
fn without_a_gap(machine: &Machine, happens: impl FnOnce()) {
    let mut session = Session::new(&machine.node.world);
    let mut run = |flows: &str| session.run(parse_flows(flows).steps[0].flows(&["iptables"]));
    assert_eq!(run(HOLD), Vec::<String>::new());
    answered_throughout(&machine.node, happens);
    assert_eq!(run(CHECK), Vec::<String>::new(), "{}", machine.node.log());
}

/// The tables of the nftables mode.
fn own_tables(machine: &Machine) -> String {
    let tables = machine.node.on_node("nft", &["list", "tables"]);
    let is_own = |line: &&str| line.contains("ferrovia") && !OWNER_TABLE.contains(*line);
    let own = tables.lines().filter(is_own);
    own.collect::<Vec<_>>().join("\n")
}

/// The chains of the iptables mode, without those that are shared with a kubelet.
fn own_chains(machine: &Machine) -> String {
    let rules = machine.rules();
    let own = rules.lines().filter(|line| {
        line.contains("KUBE-")
            && !line.contains("KUBE-FIREWALL")
            && !line.contains("KUBE-IPTABLES-HINT")
    });
    own.collect::<Vec<_>>().join("\n")
}

fn wait_until_gone(look: impl Fn() -> String) {
    wait(|| match look() {
        left if left.is_empty() => Ok(()),
        left => Err(left),
    });
}

#[test]
fn to_the_other_mode_and_back() {
    for backend in BACKENDS {
        let machine = Machine::new(backend);
        machine.node.write("web.yaml", &web(&["2.10"]));
        machine.run(machine.nftables_mode());
        without_a_gap(&machine, || {
            machine.node.stop(libc::SIGTERM);
            machine.start();
            wait_until_gone(|| own_tables(&machine));
        });
        assert!(!own_chains(&machine).is_empty());
        without_a_gap(&machine, || {
            machine.node.stop(libc::SIGTERM);
            machine.run(machine.nftables_mode());
            wait_until_gone(|| own_chains(&machine));
        });
        assert!(!own_tables(&machine).is_empty());
        machine.node.expect(
            "pod-c > 10.96.0.10:80 => 10.244.2.10:8080
            outside > 198.51.100.10:30080 => 10.244.2.10:8080 masq",
        );
    }
}

/// Puts a kube-proxy's rules, with the lab's endpoints, where these tools have theirs.
fn write_kube_proxys(machine: &Machine, backend: Backend) {
    let save = KUBE_PROXY
        .replace("10.244.1.2:", "10.244.1.10:")
        .replace("10.244.2.3:", "10.244.2.10:");
    let mut restore = machine
        .program(&format!("{backend}-restore"))
        .stdin(Stdio::piped())
        .spawn()
        .expect("the tool can be run");
    let mut input = restore.stdin.take().expect("it is piped");
    input.write_all(save.as_bytes()).expect("it reads");
    drop(input);
    assert!(restore.wait().expect("it is our child").success());
}

/// A kube-proxy's rules go and those of others stay, without a gap.
fn in_place_of_a_kube_proxy(machine: &Machine) {
    let before = machine.rules();
    machine.node.write("web.yaml", &web(&["1.10", "2.10"]));
    without_a_gap(machine, || {
        machine.start();
        wait_until_gone(|| {
            let rules = machine.rules();
            let stale = rules.lines().filter(|line| line.contains("web/shop"));
            stale.collect::<Vec<_>>().join("\n")
        });
    });
    let after = machine.rules();
    for stale in ["KUBE-SVC-ABCDEFGHIJKLMNOP", "KUBE-SEP-2222222222222222"] {
        assert!(!after.contains(stale), "{after}");
    }
    for line in before.lines().filter(|line| !line.contains("KUBE-")) {
        assert!(after.lines().any(|other| other == line), "{line}\n{after}");
    }
    machine.node.expect(
        "pod-c > 10.96.0.10:80 => 10.244.1.10:8080 | 10.244.2.10:8080
        outside > 198.51.100.10:30080 => 10.244.1.10:8080 | 10.244.2.10:8080 masq",
    );
}

#[test]
fn from_a_kube_proxy_with_the_same_tools() {
    for backend in BACKENDS {
        let machine = Machine::without_kubelet(backend);
        write_kube_proxys(&machine, backend);
        in_place_of_a_kube_proxy(&machine);
        let log = machine.node.log();
        assert!(!log.contains("Took over from a previous proxy"), "{log}");
    }
}

#[test]
fn from_a_kube_proxy_with_the_other_tools() {
    for (backend, other) in BACKENDS.into_iter().zip(BACKENDS.into_iter().rev()) {
        let machine = Machine::new(backend);
        // All but its kubelet, which has moved on already.
        write_kube_proxys(&machine, other);
        for chain in ["KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"] {
            said_by(
                machine
                    .program(other.as_str())
                    .args(["-t", "mangle", "-X", chain]),
            );
        }
        in_place_of_a_kube_proxy(&machine);
        let log = machine.node.log();
        assert!(log.contains("kube-proxy's rules are in"), "{log}");
        machine.node.wait_for_log("Took over from a previous proxy");
    }
}

#[test]
fn keeps_rules_when_a_kubelet_with_the_other_tools_starts_later() {
    let machine = Machine::without_kubelet(Backend::Nft);
    machine.node.write("web.yaml", &web(&["2.10"]));
    said_by(machine.iptables_mode().arg("--once"));
    let rules = machine.rules();
    let _inside = machine
        .node
        .world
        .enter(Role::Node)
        .expect("the node can be entered");
    let mut installed = IptablesMode::default()
        .install(&InstallContext::default())
        .expect("the mode works here");
    said_by(
        machine
            .program(Backend::Legacy.as_str())
            .args(super::KUBELETS_WORD),
    );
    let removed = (installed.take_over)(std::time::Duration::ZERO).expect("the tools work");
    assert_eq!(removed, Removed::default());
    let now = machine.rules();
    for rule in rules.lines() {
        assert!(now.lines().any(|line| line == rule), "{rule}\n{now}");
    }
}
