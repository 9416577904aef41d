//! The dummy device and its addresses.

use std::net::IpAddr;

use ferrovia_core::family::Family;
use ferrovia_host::link::{AddressChange, AddressCounts, DummyDevice, Error};
use ferrovia_host::portals::{Interface, InterfaceChoice};
use ferrovia_lab::uml::suite::Test;

use crate::support::{in_namespace, run};

pub(crate) const TESTS: [Test; 4] = [
    ("a device is made and removed", a_device_is_made_and_removed),
    ("addresses come and go", addresses_come_and_go),
    (
        "a device of another kind is not touched",
        a_device_of_another_kind_is_not_touched,
    ),
    (
        "a device of the userspace mode is made again",
        a_device_of_the_userspace_mode_is_made_again,
    ),
];

const NAME: &str = "kube-ipvs0";

fn a_device_is_made_and_removed() {
    in_namespace(|| {
        let mut device = DummyDevice::open(NAME).unwrap();
        assert_eq!(device.find().unwrap(), None);
        assert_eq!(device.addresses().unwrap(), [] as [IpAddr; 0]);
        let number = device.ensure().unwrap();
        assert_eq!(device.ensure().unwrap(), number);
        let shown = run("ip -d link show kube-ipvs0");
        assert!(
            shown.contains("dummy") && shown.contains("state DOWN") && !shown.contains(",UP"),
            "{shown}"
        );
        assert!(device.remove().unwrap());
        assert!(!device.remove().unwrap());
        assert_eq!(run("ip -br link"), run("ip -br link show lo"));
    });
}

fn addresses_come_and_go() {
    in_namespace(|| {
        let mut device = DummyDevice::open(NAME).unwrap();
        device.ensure().unwrap();
        let four: IpAddr = [10, 96, 0, 1].into();
        let six: IpAddr = "fd00::1".parse().unwrap();
        let both = [AddressChange::Bind(four), AddressChange::Bind(six)];
        assert_eq!(
            device.change(&both).unwrap(),
            AddressCounts {
                bound: 2,
                unbound: 0
            }
        );
        assert_eq!(device.change(&both).unwrap(), AddressCounts::default());
        assert_eq!(device.addresses().unwrap(), [four, six]);
        // The node takes packets to both for its own, although the device is down.
        for address in [four, six] {
            let route = run(&format!("ip route get {address}"));
            assert!(route.starts_with("local"), "{route}");
        }
        let away = [
            AddressChange::Unbind(four),
            AddressChange::Unbind([10, 96, 0, 9].into()),
        ];
        assert_eq!(
            device.change(&away).unwrap(),
            AddressCounts {
                bound: 0,
                unbound: 1
            }
        );
        assert_eq!(device.addresses().unwrap(), [six]);
        // A bad one is named and does not keep the others from being changed.
        let some = [
            AddressChange::Bind([224, 0, 0, 1].into()),
            AddressChange::Bind("ff02::1".parse().unwrap()),
            AddressChange::Bind(four),
        ];
        match device.change(&some) {
            Err(Error::Address {
                address,
                binding: true,
                ..
            }) => assert!(address.is_multicast()),
            other => panic!("{other:?}"),
        }
        assert!(device.addresses().unwrap().contains(&four));
    });
}

fn a_device_of_another_kind_is_not_touched() {
    in_namespace(|| {
        run("ip link add kube-ipvs0 type bridge");
        let mut device = DummyDevice::open(NAME).unwrap();
        let errors = [
            device.ensure().map(drop).unwrap_err(),
            device.remove().map(drop).unwrap_err(),
            device
                .change(&[AddressChange::Bind([10, 96, 0, 1].into())])
                .map(drop)
                .unwrap_err(),
        ];
        for error in errors {
            assert!(
                error
                    .to_string()
                    .starts_with("cannot use device kube-ipvs0: its kind is bridge"),
                "{error}"
            );
        }
        run("ip link show kube-ipvs0");
    });
}

/// Here because kernels of machines need not have dummy devices.
fn a_device_of_the_userspace_mode_is_made_again() {
    in_namespace(|| {
        let mut interface = Interface::open(&InterfaceChoice::Own).unwrap();
        assert_eq!(interface.name(), "ferrovia0");
        let service: [IpAddr; 1] = [[10, 96, 0, 1].into()];
        for _ in 0..2 {
            assert!(interface.addresses(Family::V4).unwrap().is_empty());
            interface.add(&service).unwrap();
            assert_eq!(interface.addresses(Family::V4).unwrap(), service);
            run("ip link delete ferrovia0");
        }
    });
}
