//! Which tools are used.

use ferrovia_core::family::Family;
use ferrovia_host::iptables::{Backend, detect};

use crate::support::{BACKENDS, in_namespace, run, tool};

fn do_to(family: Family, backend: Backend, command: &str) {
    let args: Vec<&str> = ["-w", "300"]
        .into_iter()
        .chain(command.split(' '))
        .collect();
    run(&tool(family, backend), &args, "");
}

fn detected() -> (Backend, usize) {
    let detected = detect(&Family::ALL).unwrap();
    let tools = &detected.tools;
    for family in Family::ALL {
        assert_eq!(
            tools[family].as_ref().unwrap().name(),
            tool(family, detected.backend)
        );
    }
    (detected.backend, detected.warnings.len())
}

#[test]
fn an_empty_node_gets_nft_and_stays_empty() {
    in_namespace(|| {
        assert_eq!(detected(), (Backend::Nft, 0));
        for list in ["ip_tables_names", "ip6_tables_names"] {
            let names = std::fs::read_to_string(format!("/proc/thread-self/net/{list}"));
            assert_eq!(names.unwrap_or_default(), "");
        }
    });
}

#[test]
fn rules_go_where_the_kubelet_or_kube_proxy_or_others_have_them() {
    for backend in BACKENDS {
        for family in Family::ALL {
            for command in [
                "-t mangle -N KUBE-IPTABLES-HINT",
                "-t mangle -N KUBE-KUBELET-CANARY",
                "-t nat -N KUBE-SERVICES",
                "-A INPUT -j ACCEPT",
            ] {
                in_namespace(|| {
                    do_to(family, backend, command);
                    assert_eq!(detected(), (backend, 0), "{command}");
                });
            }
        }
    }
}

#[test]
fn kubelet_hint_decides_and_mixed_rules_are_reported() {
    for (backend, other) in [
        (Backend::Nft, Backend::Legacy),
        (Backend::Legacy, Backend::Nft),
    ] {
        in_namespace(|| {
            do_to(Family::V4, backend, "-t mangle -N KUBE-IPTABLES-HINT");
            do_to(Family::V4, other, "-t nat -N KUBE-SERVICES");
            assert_eq!(detected(), (backend, 1));
        });
    }
}
