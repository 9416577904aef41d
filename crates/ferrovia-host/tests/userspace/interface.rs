//! Service addresses on another process's interface, and on one that comes and goes.

use std::net::IpAddr;

use ferrovia_core::family::Family;
use ferrovia_host::portals::{Interface, InterfaceChoice};

use crate::support::{in_namespace, run};

const THEIRS: &str = "203.0.113.1";
const OURS: &str = "203.0.113.2";

fn address(ip: &str) -> IpAddr {
    ip.parse().unwrap()
}

fn loopback() -> Interface {
    Interface::open(&InterfaceChoice::Named("lo".to_owned())).unwrap()
}

#[test]
fn an_address_that_was_there_before_stays_when_its_service_goes() {
    in_namespace(|| {
        run(&format!("ip address add {THEIRS}/32 dev lo"));
        let both = [address(THEIRS), address(OURS)];
        let mut interface = loopback();
        interface.add(&both).unwrap();
        assert_eq!(interface.addresses(Family::V4).unwrap(), [address(OURS)]);
        interface.remove(&both).unwrap();
        let left = run("ip -o address show dev lo");
        assert!(left.contains(THEIRS) && !left.contains(OURS), "{left}");
    });
}

#[test]
fn recreated_interface_gets_its_addresses_again() {
    in_namespace(|| {
        let make = || run("ip link add services type veth peer name other");
        make();
        let mut interface =
            Interface::open(&InterfaceChoice::Named("services".to_owned())).unwrap();
        let ours = [address(OURS)];
        interface.add(&ours).unwrap();
        assert_eq!(interface.addresses(Family::V4).unwrap(), ours);
        run("ip link delete services");
        let gone = interface.addresses(Family::V4).unwrap_err();
        assert!(
            gone.to_string().contains("cannot find interface services"),
            "{gone}"
        );
        make();
        assert!(interface.addresses(Family::V4).unwrap().is_empty());
        interface.add(&ours).unwrap();
        assert_eq!(interface.addresses(Family::V4).unwrap(), ours);
    });
}

#[test]
fn an_address_that_is_refused_keeps_no_other_out() {
    in_namespace(|| {
        let mut interface = loopback();
        // No interface can have a multicast address.
        let all = [address("ff02::1"), address("fd00::10")];
        let refusal = interface.add(&all).unwrap_err();
        assert!(refusal.to_string().contains("ff02::1"), "{refusal}");
        assert_eq!(interface.addresses(Family::V6).unwrap(), [all[1]]);
    });
}
