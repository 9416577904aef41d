//! The commands by which Windows puts addresses on an interface, as kube-proxy's winuserspace mode gave them.
//!
//! Lists of arguments for `netsh`, and the reading of what it prints; running it is left to others. kube-proxy gave up a service's address
//! when the first of its ports went; here an address comes and goes once, because the plan counts who wants it. Its handling of
//! DNS suffixes, which it had from 1.6 to 1.21, is not repeated: it was removed there because resolvers do that themselves.

use std::net::IpAddr;

use super::UserspacePlan;

/// The environment variable that names the interface.
pub const INTERFACE_VARIABLE: &str = "INTERFACE_TO_ADD_SERVICE_IP";
/// The interface, if nobody names one.
pub const DEFAULT_INTERFACE: &str = "vEthernet (HNS Internal NIC)";

/// One call of `netsh`, argument by argument: no shell is between, so an interface's name needs no quotes.
pub type Arguments = Vec<String>;

/// The interface that service addresses are put on: the one of the configuration, or of the environment, or the usual one.
pub fn interface<'a>(configured: Option<&'a str>, environment: Option<&'a str>) -> &'a str {
    let named = |name: &&str| !name.is_empty();
    configured
        .filter(named)
        .or(environment.filter(named))
        .unwrap_or(DEFAULT_INTERFACE)
}

/// The calls before proxies are opened: an address has to be there before anyone can listen on it.
pub fn before_opening(plan: &UserspacePlan, interface: &str) -> Vec<Arguments> {
    let added = plan.new_addresses.iter();
    added.map(|ip| change("add", interface, *ip)).collect()
}

/// The calls after proxies are closed.
pub fn after_closing(plan: &UserspacePlan, interface: &str) -> Vec<Arguments> {
    let removed = plan.old_addresses.iter();
    removed.map(|ip| change("delete", interface, *ip)).collect()
}

/// Asks for an interface's IPv4 addresses. One that was added may take a while to be among them.
pub fn show(interface: &str) -> Arguments {
    let name = format!("name={interface}");
    ["interface", "ipv4", "show", "address", &name]
        .map(str::to_owned)
        .into()
}

/// The addresses in what [`show`] makes it print: behind the colon of lines about an IP, whatever the language of the rest.
pub fn shown(printed: &str) -> Vec<IpAddr> {
    let lines = printed.lines().filter(|line| line.contains("IP"));
    lines
        .filter_map(|line| line.split_once(':')?.1.trim().parse().ok())
        .collect()
}

fn change(action: &str, interface: &str, ip: IpAddr) -> Arguments {
    let (family, name) = match ip {
        IpAddr::V4(_) => ("ipv4", "name"),
        IpAddr::V6(_) => ("ipv6", "interface"),
    };
    let interface = format!("{name}={interface}");
    let address = format!("address={ip}");
    ["interface", family, action, "address", &interface, &address]
        .map(str::to_owned)
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> UserspacePlan {
        UserspacePlan {
            new_addresses: vec![[10, 96, 0, 10].into(), "fd00:10:96::10".parse().unwrap()],
            old_addresses: vec![[203, 0, 113, 1].into()],
            ..UserspacePlan::default()
        }
    }

    #[test]
    fn addresses_come_first_and_go_last() {
        assert_eq!(
            before_opening(&plan(), DEFAULT_INTERFACE),
            [
                [
                    "interface",
                    "ipv4",
                    "add",
                    "address",
                    "name=vEthernet (HNS Internal NIC)",
                    "address=10.96.0.10"
                ],
                [
                    "interface",
                    "ipv6",
                    "add",
                    "address",
                    "interface=vEthernet (HNS Internal NIC)",
                    "address=fd00:10:96::10"
                ],
            ]
        );
        assert_eq!(
            after_closing(&plan(), "Ethernet 2"),
            [[
                "interface",
                "ipv4",
                "delete",
                "address",
                "name=Ethernet 2",
                "address=203.0.113.1"
            ]]
        );
    }

    #[test]
    fn the_interface_is_named_by_whoever_knows_best() {
        assert_eq!(interface(None, None), DEFAULT_INTERFACE);
        assert_eq!(interface(None, Some("")), DEFAULT_INTERFACE);
        assert_eq!(interface(None, Some("Ethernet")), "Ethernet");
        assert_eq!(interface(Some("Loopback"), Some("Ethernet")), "Loopback");
    }

    #[test]
    fn what_is_there_is_read_in_any_language() {
        assert_eq!(
            show("Ethernet"),
            ["interface", "ipv4", "show", "address", "name=Ethernet"]
        );
        let printed = "\r\nConfiguration for interface \"Ethernet\"\r\n    DHCP enabled:                         No\r\n    IP Address:                           10.96.0.10\r\n    Subnet Prefix:                        10.96.0.10/32 (mask 255.255.255.255)\r\n    IP-Adresse:                           10.96.0.11\r\n    InterfaceMetric:                      25\r\n";
        assert_eq!(
            shown(printed),
            [IpAddr::from([10, 96, 0, 10]), IpAddr::from([10, 96, 0, 11])]
        );
        let refusal = "The filename, directory name, or volume label syntax is incorrect.";
        assert!(shown(refusal).is_empty());
    }
}
