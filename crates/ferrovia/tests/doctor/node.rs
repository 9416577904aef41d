//! Ports, settings, the self-test and rights.

use std::net::TcpListener;

use ferrovia_lab::Role;

use super::support::{Patient, Report, WEB};

#[test]
fn a_program_on_a_node_port_is_named() {
    let patient = Patient::new();
    let folder = patient.with_manifest(WEB);
    let arguments = ["--manifests", &folder, "--node-name", "node-1"];
    patient
        .examine(&arguments)
        .expect("ports/listeners", "ok", "looked at: 1");
    let _listener = {
        let _inside = patient
            .world
            .enter(Role::Node)
            .expect("the node can be entered");
        TcpListener::bind("0.0.0.0:30080").expect("the port is free")
    };
    let report = patient.examine(&arguments);
    report.expect("ports/listeners", "warning", "node port of shop/web:http");
    let pid = format!("(pid {})", std::process::id());
    report.expect("ports/listeners", "warning", &pid);
    assert_eq!(report.code, Some(1));
}

#[test]
fn node_ports_of_our_own_rules_are_looked_at_where_no_objects_are_given() {
    let patient = Patient::new();
    let folder = patient.with_manifest(WEB);
    let flags = ["--once", "--node-name=node-1", "--nodeport-addresses=all"];
    let output = patient.ferrovia(&[&["run", "--manifests", &folder], &flags[..]].concat());
    assert!(output.status.success(), "{output:?}");
    patient.run("sysctl -qw net.ipv4.ip_local_port_range='1024 60999'");
    let report = patient.examine(&[]);
    report.expect("ports/ephemeral", "warning", "30080");
    patient.run("sysctl -qw net.ipv4.ip_local_reserved_ports=30000-32767");
    assert_eq!(patient.examine(&[]).finding("ports/ephemeral"), None);
}

#[test]
fn settings_of_the_node_are_read_in_its_namespace() {
    let patient = Patient::new();
    patient.run("sysctl -qw net.ipv4.conf.all.route_localnet=1 net.ipv4.ip_forward=0");
    let report = patient.examine(&[]);
    report.expect("settings/route-localnet", "warning", "all");
    report.expect("settings/ip-forward", "problem", "net.ipv4.ip_forward is 0");
    assert_eq!(report.code, Some(2));
    patient.run("sysctl -qw net.ipv4.conf.all.route_localnet=0 net.ipv4.ip_forward=1");
    let report = patient.examine(&[]);
    assert_eq!(report.finding("settings/route-localnet"), None);
    report.expect("settings/ip-forward", "ok", "");
}

#[test]
fn reports_interfaces_with_a_larger_mtu_than_the_uplink() {
    let patient = Patient::new();
    patient.run("ip link set uplink mtu 1400");
    let report = patient.examine(&[]);
    report.expect("interfaces/pod-mtu", "warning", "uplink (1400)");
}

#[test]
fn the_self_test_works_and_leaves_the_node_as_it_was() {
    let patient = Patient::new();
    let state = "nft list ruleset; ip -o link; ip -o address; ip route; sysctl net.ipv4.ip_forward";
    let before = patient.run(state);
    let report = Report::of(&patient.ferrovia(&["doctor", "-o", "json"]));
    for check in [
        "cluster-ip",
        "node-port",
        "loopback",
        "hairpin",
        "from-pod",
        "no-endpoints",
    ] {
        report.expect(&format!("self-test/{check}"), "ok", "");
    }
    assert_eq!(
        patient.run(state),
        before,
        "not even iptables' tables may come to be"
    );
}

#[test]
fn without_rights_it_says_what_it_could_not_see() {
    let patient = Patient::new();
    let output = patient
        .command("setpriv")
        .args([
            "--bounding-set=-all",
            "--inh-caps=-all",
            env!("CARGO_BIN_EXE_ferrovia"),
        ])
        .args(["doctor", "-o", "json"])
        .output()
        .expect("setpriv can be started");
    let report = Report::of(&output);
    report.expect("settings/ip-forward", "ok", "");
    let unseen = report.json["notLookedAt"].to_string();
    assert!(unseen.contains("CAP_NET_ADMIN"), "{unseen}");
    assert_eq!(report.code, Some(3), "{:#}", report.json);
}

#[test]
fn objects_that_cannot_be_read_are_no_finding() {
    let patient = Patient::new();
    let output = patient.ferrovia(&["doctor", "--manifests", "/does/not/exist"]);
    assert_eq!(output.status.code(), Some(3));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("/does/not/exist") && said.lines().count() == 1,
        "{said}"
    );
}

#[test]
fn the_text_has_a_summary_and_no_colours_in_a_pipe() {
    let patient = Patient::new();
    let output = patient.ferrovia(&["doctor", "--no-self-test"]);
    let text = String::from_utf8_lossy(&output.stdout);
    let first = text.lines().next().unwrap_or_default();
    assert!(
        first.contains("should be") || first.contains("could not be"),
        "{text}"
    );
    assert!(!text.contains('\u{1b}'), "{text}");
}

/// The plugin portmap sets it on the bridge, for host ports on 127.0.0.1.
#[test]
fn routed_loopback_of_the_plugin_portmap_is_explained() {
    let makes_rules = [
        "iptables-nft -w 30 -t nat -N CNI-HOSTPORT-DNAT
         iptables-nft -w 30 -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT",
        "iptables-legacy -w 30 -t nat -N CNI-HOSTPORT-DNAT
         iptables-legacy -w 30 -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT",
        "nft add table ip cni_hostport
         nft 'add chain ip cni_hostport prerouting { type nat hook prerouting priority -100; }'",
    ];
    for rules in makes_rules {
        let patient = Patient::new();
        patient.run("ip link add cni0 type bridge; sysctl -qw net.ipv4.conf.cni0.route_localnet=1");
        let report = patient.examine(&[]);
        report.expect("settings/route-localnet", "warning", "cni0");
        patient.run(rules);
        let report = patient.examine(&[]);
        report.expect("settings/route-localnet", "note", "cni0");
    }
}
