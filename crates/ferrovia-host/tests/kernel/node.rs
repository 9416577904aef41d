//! Addresses, and what the kernel can do.

use std::net::IpAddr;

use ferrovia_core::dialect::nft::bytecode::Expr;
use ferrovia_core::family::Family;
use ferrovia_host::addr::{AddressMonitor, local_addresses};
use ferrovia_host::nft::Nft;
use ferrovia_host::probe;

use crate::support::{in_namespace, run};

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn addresses_of_all_interfaces_are_read() {
    in_namespace(|| {
        assert_eq!(local_addresses().unwrap(), ips(&[]));
        run("ip link set lo up");
        run("ip link add veth0 type veth peer name veth1");
        run("ip link set veth0 up");
        run("ip addr add 192.0.2.1/24 dev veth0");
        run("ip addr add 192.0.2.2 peer 198.51.100.1 dev veth1");
        run("ip addr add 2001:db8::1/64 dev veth0 nodad");
        run("ip addr add fe80::1/64 dev veth0 nodad");
        // Found although its link is down; a peer's address and a link-local one are not.
        assert_eq!(
            local_addresses().unwrap(),
            ips(&["127.0.0.1", "192.0.2.1", "192.0.2.2", "::1", "2001:db8::1"])
        );
    });
}

#[test]
fn address_monitor_reports_changes() {
    in_namespace(|| {
        let mut monitor = AddressMonitor::open().unwrap();
        for change in [
            "ip addr add 192.0.2.1/24 dev lo",
            "ip addr del 192.0.2.1/24 dev lo",
            "ip addr add 2001:db8::1/64 dev lo nodad",
        ] {
            run(change);
            monitor.wait().unwrap();
        }
        assert_eq!(local_addresses().unwrap(), ips(&["2001:db8::1"]));
    });
}

#[test]
fn addresses_of_services_are_not_the_nodes_and_no_news() {
    in_namespace(|| {
        run("ip link add kube-ipvs0 type veth peer name other");
        run("ip addr add 10.96.0.10/32 dev kube-ipvs0");
        assert_eq!(local_addresses().unwrap(), ips(&[]));
        let mut monitor = AddressMonitor::open().unwrap();
        run("ip addr add 10.96.0.11/32 dev kube-ipvs0");
        run("ip addr add fd00:96::11/128 dev kube-ipvs0 nodad");
        run("ip addr add 192.0.2.1/24 dev other");
        monitor.wait().unwrap();
        run("ip addr add 10.96.0.12/32 dev kube-ipvs0");
        run("ip addr del 192.0.2.1/24 dev other");
        monitor.wait().unwrap();
        // Two notifications in all: the next one does not exist yet.
        run("ip addr add 10.96.0.13/32 dev kube-ipvs0");
        let later = std::thread::scope(|scope| {
            let notified = scope.spawn(|| monitor.wait().map(|()| std::time::Instant::now()));
            std::thread::sleep(std::time::Duration::from_millis(200));
            let said = std::time::Instant::now();
            run("ip addr add 192.0.2.2/24 dev other");
            notified.join().unwrap().unwrap() >= said
        });
        assert!(later, "an address of a service was reported");
        assert_eq!(local_addresses().unwrap(), ips(&["192.0.2.2"]));
    });
}

#[test]
fn this_kernel_can_run_the_nftables_mode_and_asking_leaves_no_trace() {
    in_namespace(|| {
        let mut nft = Nft::open().unwrap();
        let before = nft.generation().unwrap();
        probe::nftables(&Family::ALL).unwrap();
        assert_eq!(nft.generation().unwrap(), before);
        assert_eq!(run("nft list ruleset"), "");
    });
}

#[test]
fn an_instruction_the_kernel_lacks_is_found_without_harm_to_others() {
    in_namespace(|| {
        let mut nft = Nft::open().unwrap();
        let rules = [
            vec![Expr::Masquerade],
            vec![Expr::Foreign("teleport".into())],
            vec![Expr::Reject],
        ];
        for family in Family::ALL {
            let rehearsal = nft.rehearse(family, &rules).unwrap();
            assert_eq!(rehearsal.nat_chain, None);
            let errors: Vec<_> = rehearsal
                .rules
                .into_iter()
                .map(|refusal| refusal.map(|refusal| refusal.errno))
                .collect();
            assert_eq!(errors, [None, Some(libc::ENOENT), None]);
        }
        assert_eq!(run("nft list ruleset"), "");
    });
}

#[test]
fn without_the_right_the_probe_says_which() {
    in_namespace(|| {
        crate::support::drop_privileges();
        let error = probe::nftables(&Family::ALL).unwrap_err().to_string();
        assert!(error.contains("without CAP_NET_ADMIN"), "{error}");
    });
}

#[test]
fn a_family_that_is_switched_off_is_not_supported() {
    in_namespace(|| {
        assert_eq!(probe::supported_families(), Family::ALL);
        std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1").unwrap();
        assert_eq!(probe::supported_families(), [Family::V4]);
    });
}
