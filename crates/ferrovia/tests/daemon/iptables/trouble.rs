//! The lock, the tools, the privileges.

use std::fs::File;

use ferrovia_host::iptables::Backend;

use super::super::support::web;
use super::{BACKENDS, Machine, said_by};

#[test]
fn a_lock_that_somebody_holds_is_waited_for() {
    let machine = Machine::without_kubelet(Backend::Legacy);
    let node = &machine.node;
    // A kube-proxy was here, and on the other side somebody who is none.
    machine.tool("", &["-t", "nat", "-N", "KUBE-SERVICES"]);
    let others = ["-A", "INPUT", "-p", "tcp", "--dport", "9", "-j", "DROP"];
    said_by(machine.program(Backend::Nft.as_str()).args(others));
    node.write("web.yaml", &web(&["2.10"]));
    let lock = File::create(machine.lock_file()).expect("the folder is ours");
    lock.lock().expect("nobody else holds it");
    node.spawn(machine.iptables_mode());
    node.wait_for_log("waiting for the xtables lock");
    let log = node.log();
    for words in [
        // A held lock must not hide where the rules are.
        "kube-proxy's rules are there",
        &format!("process {}", std::process::id()),
    ] {
        assert!(log.contains(words), "{words}:\n{log}");
    }
    assert!(!log.contains("ready: all services"), "{log}");
    lock.unlock().expect("we hold it");
    node.wait_until_ready();
    node.expect("pod-c > 10.96.0.10:80 => 10.244.2.10:8080");
}

#[test]
fn without_the_tools_there_is_one_clear_error() {
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
fn it_can_run_the_tools_when_it_has_dropped_its_privileges() {
    for backend in BACKENDS {
        let machine = Machine::new(backend);
        let node = &machine.node;
        node.write("web.yaml", &web(&["2.10"]));
        machine.start();
        let status = std::fs::read_to_string(format!("/proc/{}/status", node.process()))
            .expect("the daemon runs");
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
