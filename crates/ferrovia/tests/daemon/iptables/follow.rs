//! From an empty kernel through changes to the end, and starting again.

use ferrovia_lab::daemon::manifests::{service, web};
use ferrovia_lab::waiting::wait;

use super::{BACKENDS, Machine, said_by};
use crate::FERROVIA;

const ANSWERS: &str = "pod-c > 10.96.0.10:80 => 10.244.1.10:8080 | 10.244.2.10:8080
pod-c > [fd00:10:96::a]:80 => [fd00:10:244:1::10]:8080 | [fd00:10:244:2::10]:8080
node > 10.96.0.10:80 => 10.244.1.10:8080 | 10.244.2.10:8080
outside > 198.51.100.10:30080 => 10.244.1.10:8080 | 10.244.2.10:8080 masq";

#[test]
fn follows_added_changed_and_deleted_services() {
    for backend in BACKENDS {
        let machine = Machine::new(backend);
        let node = &machine.node;
        node.write("web.yaml", &web(&["1.10", "2.10"]));
        machine.start();
        node.expect(ANSWERS);
        node.write("web.yaml", &web(&["2.11"]));
        node.expect_soon(
            "pod-c > 10.96.0.10:80 => 10.244.2.11:8080
            node > 10.96.0.10:80 => 10.244.2.11:8080
            outside > 198.51.100.10:30080 => 10.244.2.11:8080 masq",
        );
        node.write("web.yaml", &web(&[]));
        node.expect_soon("pod-c > 10.96.0.10:80 => refused");
        node.write("more.yaml", &service("more", 11, 30081, &["2.10"]));
        node.remove("web.yaml");
        node.expect_soon("pod-c > 10.96.0.11:80 => 10.244.2.10:8080");
        wait(|| match machine.rules() {
            rules if rules.contains("default/web") => Err(rules),
            _ => Ok(()),
        });
    }
}

#[test]
fn rules_outlive_the_daemon_and_a_restart_writes_nothing() {
    for backend in BACKENDS {
        let machine = Machine::new(backend);
        let node = &machine.node;
        node.write("web.yaml", &web(&["1.10", "2.10"]));
        node.write("more.yaml", &service("more", 11, 30081, &["1.11", "2.11"]));
        machine.run(machine.recorded(machine.iptables_mode()));
        assert!(
            machine.record().contains("-restore --noflush"),
            "the record is kept:\n{}",
            machine.record()
        );
        // History that a fresh plan would not repeat.
        node.write("more.yaml", &service("more", 11, 30081, &["2.11", "2.12"]));
        node.expect_soon("pod-d > 10.96.0.11:80 => 10.244.2.11:8080 | 10.244.2.12:8080");
        wait(|| match machine.rules() {
            rules if rules.contains("10.244.1.11") => Err(rules),
            _ => Ok(()),
        });
        let before = machine.rules();
        assert_eq!(node.stop(libc::SIGTERM), Some(0));
        assert_eq!(machine.rules(), before);
        node.expect(ANSWERS);
        machine.run(machine.recorded(machine.iptables_mode()));
        // The takeover and some checks have come after the start.
        let calls_at_start = machine.record().lines().count();
        wait(|| match machine.record() {
            record if record.lines().count() < calls_at_start + 12 => Err(record),
            _ => Ok(()),
        });
        let record = machine.record();
        assert!(!record.contains("-restore"), "{record}\n{}", node.log());
        assert_eq!(machine.rules(), before);
    }
}

#[test]
fn cleanup_removes_only_our_rules() {
    for backend in BACKENDS {
        let machine = Machine::new(backend);
        let node = &machine.node;
        machine.tool("", &["-t", "nat", "-N", "MINE"]);
        machine.tool("", &["-t", "nat", "-A", "PREROUTING", "-j", "MINE"]);
        machine.tool(
            "",
            &["-A", "INPUT", "-p", "tcp", "--dport", "9", "-j", "DROP"],
        );
        let others = machine.rules();
        node.write("web.yaml", &web(&["1.10", "2.10"]));
        machine.start();
        assert_eq!(node.stop(libc::SIGTERM), Some(0));
        let cleanup = || {
            let mut command = machine.program(FERROVIA);
            said_by(command.arg("--cleanup"))
        };
        cleanup();
        let left = machine.rules();
        // Chains that a kubelet shares stay, because it may need them.
        let ours: Vec<&str> = left
            .lines()
            .filter(|line| line.contains("KUBE-") && !line.contains("KUBE-FIREWALL"))
            .filter(|line| !others.lines().any(|other| other == *line))
            .collect();
        assert_eq!(ours, Vec::<&str>::new(), "{left}");
        for line in others.lines() {
            assert!(left.lines().any(|other| other == line), "{line}\n{left}");
        }
        cleanup();
        assert_eq!(machine.rules(), left);
    }
}
