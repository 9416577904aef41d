//! Other people's hands in our chains.

use ferrovia_lab::daemon::manifests::web;

use super::{BACKENDS, Machine};

const ANSWERS: &str = "pod-c > 10.96.0.10:80 => 10.244.1.10:8080 | 10.244.2.10:8080
outside > 198.51.100.10:30080 => 10.244.1.10:8080 | 10.244.2.10:8080 masq";

/// Damages the rules with these commands of the tool and waits until they are whole again.
fn damaged_by(damage: &[&[&str]]) {
    for backend in BACKENDS {
        let machine = Machine::new(backend);
        machine.node.write("web.yaml", &web(&["1.10", "2.10"]));
        machine.start();
        let whole = machine.rules();
        for command in damage {
            // A check of the daemon may hold the lock.
            machine.tool("", &[&["-w", "60"], *command].concat());
        }
        machine.expect_rules(&whole);
        machine.node.expect(ANSWERS);
        machine.node.wait_for_log("somebody changed our rules");
    }
}

#[test]
fn restores_a_deleted_rule() {
    damaged_by(&[&["-t", "nat", "-D", "KUBE-SERVICES", "1"]]);
}

#[test]
fn restores_a_deleted_jump() {
    damaged_by(&[&["-t", "nat", "-D", "PREROUTING", "1"]]);
}

#[test]
fn restores_a_flushed_chain() {
    damaged_by(&[&["-t", "nat", "-F", "KUBE-POSTROUTING"]]);
}

#[test]
fn restores_a_flushed_table() {
    damaged_by(&[&["-t", "nat", "-F"]]);
}

#[test]
fn everything_comes_back() {
    damaged_by(&[
        &["-t", "nat", "-F"],
        &["-t", "filter", "-F"],
        &["-t", "mangle", "-X", "KUBE-PROXY-CANARY"],
    ]);
}

#[test]
fn removes_a_foreign_rule_in_our_chain() {
    damaged_by(&[&["-t", "nat", "-I", "KUBE-SERVICES", "-j", "RETURN"]]);
}

#[test]
fn does_not_touch_foreign_rules() {
    for backend in BACKENDS {
        let machine = Machine::new(backend);
        machine.node.write("web.yaml", &web(&["1.10", "2.10"]));
        machine.start();
        let mine = [
            "-t",
            "nat",
            "-A",
            "PREROUTING",
            "-p",
            "tcp",
            "--dport",
            "9",
            "-j",
            "RETURN",
        ];
        machine.tool("", &[&["-w", "60"], &mine[..]].concat());
        let whole = machine.rules();
        machine.tool("", &["-w", "60", "-t", "nat", "-F", "KUBE-SERVICES"]);
        machine.expect_rules(&whole);
    }
}
