//! The lock, the tools, the privileges.

use std::fs::{self, File};

use ferrovia_host::iptables::Backend;
use ferrovia_lab::Role;
use ferrovia_lab::daemon::manifests::web;
use ferrovia_lab::plain_http::try_request;
use ferrovia_lab::waiting::wait;

use super::{BACKENDS, Machine, said_by};

#[test]
fn waits_for_a_lock_that_another_process_holds() {
    let machine = Machine::without_kubelet(Backend::Legacy);
    let node = &machine.node;
    // Leftovers of a kube-proxy for one backend, and foreign rules for the other.
    machine.tool("", &["-t", "nat", "-N", "KUBE-SERVICES"]);
    let others = ["-A", "INPUT", "-p", "tcp", "--dport", "9", "-j", "DROP"];
    said_by(machine.program(Backend::Nft.as_str()).args(others));
    node.write("web.yaml", &web(&["2.10"]));
    let lock = File::create(machine.lock_file()).expect("the folder is ours");
    lock.lock().expect("nobody else holds it");
    node.spawn(machine.iptables_mode());
    node.wait_for_log("Waiting for the xtables lock");
    let log = node.log();
    for words in [
        // A held lock must not hide where the rules are.
        "kube-proxy's rules are there",
        "Found the xtables lock held by another process",
        &format!("process {}", std::process::id()),
    ] {
        assert!(log.contains(words), "{words}:\n{log}");
    }
    assert!(!log.contains("ready: all services"), "{log}");
    lock.unlock().expect("we hold it");
    node.wait_until_ready();
    node.expect("pod-c > 10.96.0.10:80 => 10.244.2.10:8080");
}

/// Load balancers must not take a node that has never written a rule for one that has nothing to do.
#[test]
fn is_unhealthy_while_the_first_write_is_blocked() {
    let machine = Machine::new(Backend::Legacy);
    let node = &machine.node;
    node.write("web.yaml", &web(&["2.10"]));
    let lock = File::create(machine.lock_file()).expect("the folder is ours");
    lock.lock().expect("nobody else holds it");
    node.spawn(machine.iptables_mode());
    node.wait_for_log("Waiting for the xtables lock");
    let _inside = node.world.enter(Role::Node).expect("it is there");
    let answers = |path: &str, code: u16| {
        let address = ([127, 0, 0, 1], 10256).into();
        wait(|| match try_request(address, "GET", path, &[], "") {
            Ok(reply) if reply.code == code => Ok(()),
            other => Err(format!("{path}: {other:?}; log:\n{}", node.log())),
        });
    };
    answers("/healthz", 503);
    answers("/livez", 503);
    lock.unlock().expect("we hold it");
    node.wait_until_ready();
    answers("/healthz", 200);
}

#[test]
fn reports_missing_tools() {
    let machine = Machine::new(Backend::Nft);
    let mut command = machine.iptables_mode();
    let output = command
        .env("PATH", machine.node.folder())
        .output()
        .expect("ferrovia can be started");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let errors: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("iptables-save"))
        .collect();
    assert_eq!(errors.len(), 1, "{said}");
    assert!(errors[0].contains("install iptables"), "{said}");
}

#[test]
fn reports_tools_that_are_too_old() {
    let machine = Machine::new(Backend::Nft);
    let output = machine
        .with_stand_ins(machine.iptables_mode(), "old.sh")
        .output()
        .expect("ferrovia can be started");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    for words in ["iptables-nft is too old", "v1.4.21", "1.6.2 or newer"] {
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn recovers_from_a_tool_that_is_killed_half_way() {
    for backend in BACKENDS {
        let machine = Machine::new(backend);
        let node = &machine.node;
        machine.tool("", &["-t", "nat", "-A", "PREROUTING", "-j", "ACCEPT"]);
        node.write("web.yaml", &web(&["1.10", "2.10"]));
        let killed = machine.own.join("killed");
        fs::write(&killed, "").expect("the folder is ours");
        let mut command = machine.with_stand_ins(machine.iptables_mode(), "killed.sh");
        command.env("KILL", &killed);
        node.spawn(command);
        // More than once, so that a write over a half-finished one fails as well.
        wait(|| match fs::read_to_string(&killed) {
            Ok(names) if names.lines().count() >= 2 => Ok(()),
            other => Err(format!("{other:?}; log:\n{}", node.log())),
        });
        fs::remove_file(&killed).expect("it was there");
        node.wait_until_ready();
        let log = node.log();
        for words in ["cannot write the rules; trying again", "signal: 9"] {
            assert!(log.contains(words), "{words}:\n{log}");
        }
        node.expect("pod-c > 10.96.0.10:80 => 10.244.1.10:8080 | 10.244.2.10:8080");
        let whole = machine.rules();
        assert!(whole.contains("PREROUTING -j ACCEPT"), "{whole}");
        // As if nothing had happened: a fresh start finds nothing to write.
        assert_eq!(node.stop(libc::SIGTERM), Some(0));
        machine.run(machine.recorded(machine.iptables_mode()));
        let record = machine.record();
        assert!(!record.contains("-restore"), "{record}");
        assert_eq!(machine.rules(), whole);
    }
}

#[test]
fn reports_and_takes_over_a_foreign_chain_with_our_name() {
    for backend in BACKENDS {
        let machine = Machine::new(backend);
        let node = &machine.node;
        for command in [
            &["-t", "nat", "-N", "KUBE-SERVICES"][..],
            &[
                "-t",
                "nat",
                "-A",
                "KUBE-SERVICES",
                "-p",
                "tcp",
                "-j",
                "RETURN",
            ],
            &["-t", "nat", "-N", "MINE"],
            &["-t", "nat", "-A", "MINE", "-j", "KUBE-SERVICES"],
        ] {
            machine.tool("", command);
        }
        node.write("web.yaml", &web(&["2.10"]));
        machine.start();
        node.expect("pod-c > 10.96.0.10:80 => 10.244.2.10:8080");
        let log = node.log();
        let message = "removing a foreign rule from our chain KUBE-SERVICES in table nat";
        assert!(log.contains(message), "{log}");
        let rules = machine.rules();
        assert!(
            !rules.contains("-A KUBE-SERVICES -p tcp -j RETURN"),
            "{rules}"
        );
        assert!(rules.contains("-A MINE -j KUBE-SERVICES"), "{rules}");
    }
}

#[test]
fn retries_a_takeover_that_the_lock_prevents() {
    let machine = Machine::new(Backend::Nft);
    let node = &machine.node;
    // A kube-proxy was here with the other tools.
    let legacy = |arguments: &[&str]| {
        said_by(machine.program(Backend::Legacy.as_str()).args(arguments));
    };
    legacy(&["-t", "nat", "-N", "KUBE-SERVICES"]);
    legacy(&["-t", "nat", "-A", "PREROUTING", "-j", "KUBE-SERVICES"]);
    node.write("web.yaml", &web(&["2.10"]));
    let lock = File::create(machine.lock_file()).expect("the folder is ours");
    lock.lock().expect("nobody else holds it");
    machine.start();
    node.wait_for_log("cannot remove what another proxy left");
    let holder = format!("process {}", std::process::id());
    assert!(node.log().contains(&holder), "{}", node.log());
    assert!(
        machine
            .rules()
            .contains("legacy-save: -A PREROUTING -j KUBE-SERVICES")
    );
    lock.unlock().expect("we hold it");
    node.wait_for_log("Took over from a previous proxy");
    let rules = machine.rules();
    assert!(!rules.contains("legacy-save: :KUBE-SERVICES"), "{rules}");
}

#[test]
fn runs_the_tools_after_dropping_privileges() {
    for backend in BACKENDS {
        let machine = Machine::new(backend);
        let node = &machine.node;
        node.write("web.yaml", &web(&["2.10"]));
        machine.start();
        let status =
            fs::read_to_string(format!("/proc/{}/status", node.pid())).expect("the daemon runs");
        let permitted = status
            .lines()
            .find_map(|line| line.strip_prefix("CapPrm:"))
            .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .expect("the kernel says what it may do");
        // CAP_SYS_ADMIN, which no tool needs, is gone; CAP_NET_RAW, which the legacy ones do, is not.
        assert_eq!(permitted >> 21 & 1, 0, "{permitted:x}");
        assert_eq!(permitted >> 13 & 1, 1, "{permitted:x}");
        node.write("web.yaml", &web(&["2.11"]));
        node.expect_soon("pod-c > 10.96.0.10:80 => 10.244.2.11:8080");
    }
}
