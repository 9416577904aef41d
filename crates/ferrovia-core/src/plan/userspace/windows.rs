//! The commands by which Windows puts addresses on an interface, as kube-proxy's winuserspace mode gave them.
//!
//! Lists of arguments for `netsh`, and the reading of what it prints; running it is left to the host crate. kube-proxy gave up a service's
//! address when the first of its ports went; here an address comes and goes once, because the plan counts its users. Its handling of
//! DNS suffixes, which it had from 1.6 to 1.21, is not repeated: it was removed there because resolvers do that themselves. It knew IPv4
//! only; the commands for IPv6 are ours.

use std::net::IpAddr;

use super::UserspacePlan;
use crate::family::Family;

/// The environment variable that names the interface.
pub const INTERFACE_VARIABLE: &str = "INTERFACE_TO_ADD_SERVICE_IP";
const DEFAULT_INTERFACE: &str = "vEthernet (HNS Internal NIC)";

/// One call of `netsh`, argument by argument: no shell is between, so an interface's name needs no quotes.
pub type NetshArguments = Vec<String>;

/// A call that adds an address or deletes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetshChange {
    pub ip: IpAddr,
    /// What `netsh` is called with.
    pub arguments: NetshArguments,
}

/// The interface that service addresses are put on: the one of the configuration, or of the environment, or the usual one.
pub fn interface<'a>(configured: Option<&'a str>, environment: Option<&'a str>) -> &'a str {
    let named = |name: &&str| !name.is_empty();
    configured
        .filter(named)
        .or(environment.filter(named))
        .unwrap_or(DEFAULT_INTERFACE)
}

/// The calls before proxies are opened: an address has to be there before anyone can listen on it.
pub fn before_opening(plan: &UserspacePlan, interface: &str) -> Vec<NetshChange> {
    let added = plan.new_addresses.iter();
    added.map(|ip| change("add", interface, *ip)).collect()
}

/// The calls after proxies are closed.
pub fn after_closing(plan: &UserspacePlan, interface: &str) -> Vec<NetshChange> {
    let removed = plan.old_addresses.iter();
    removed.map(|ip| change("delete", interface, *ip)).collect()
}

/// Asks for an interface's addresses. One that was added may take a while to be among them.
pub fn show(interface: &str, family: Family) -> NetshArguments {
    call(interface, family, "show")
}

/// The addresses in what [`show`] makes it print, whatever the language of the rest.
pub fn shown(printed: &str, family: Family) -> Vec<IpAddr> {
    match family {
        // Behind the colon of lines about an IP; other lines have masks and gateways.
        Family::V4 => {
            let lines = printed.lines().filter(|line| line.contains("IP"));
            let values = lines.filter_map(|line| Some(line.split_once(':')?.1.trim()));
            values
                .filter_map(|ip| ip.parse().ok().map(IpAddr::V4))
                .collect()
        }
        // In a headline for each, some with a zone behind them.
        Family::V6 => {
            let words = printed.split_whitespace();
            let words = words.map(|word| word.split_once('%').map_or(word, |(ip, _zone)| ip));
            words
                .filter_map(|ip| ip.parse().ok().map(IpAddr::V6))
                .collect()
        }
    }
}

fn change(action: &str, interface: &str, ip: IpAddr) -> NetshChange {
    let mut arguments = call(interface, Family::of(ip), action);
    arguments.push(format!("address={ip}"));
    NetshChange { ip, arguments }
}

fn call(interface: &str, family: Family, action: &str) -> NetshArguments {
    let (family, name) = match family {
        Family::V4 => ("ipv4", "name"),
        Family::V6 => ("ipv6", "interface"),
    };
    let interface = format!("{name}={interface}");
    ["interface", family, action, "address", &interface]
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

    fn lines(changes: Vec<NetshChange>) -> Vec<NetshArguments> {
        changes.into_iter().map(|change| change.arguments).collect()
    }

    #[test]
    fn addresses_come_first_and_go_last() {
        let before = before_opening(&plan(), DEFAULT_INTERFACE);
        let addresses: Vec<_> = before.iter().map(|change| change.ip).collect();
        assert_eq!(addresses, plan().new_addresses);
        assert_eq!(
            lines(before),
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
            lines(after_closing(&plan(), "Ethernet 2")),
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
    fn the_interface_comes_from_the_variable_before_the_default() {
        assert_eq!(interface(None, None), DEFAULT_INTERFACE);
        assert_eq!(interface(None, Some("")), DEFAULT_INTERFACE);
        assert_eq!(interface(None, Some("Ethernet")), "Ethernet");
        assert_eq!(interface(Some("Loopback"), Some("Ethernet")), "Loopback");
    }

    #[test]
    fn what_is_there_is_read_in_any_language() {
        assert_eq!(
            show("Ethernet", Family::V4),
            ["interface", "ipv4", "show", "address", "name=Ethernet"]
        );
        let printed = "\r\nConfiguration for interface \"Ethernet\"\r\n    DHCP enabled:                         No\r\n    IP Address:                           10.96.0.10\r\n    Subnet Prefix:                        10.96.0.10/32 (mask 255.255.255.255)\r\n    IP-Adresse:                           10.96.0.11\r\n    Default Gateway:                      10.96.0.1\r\n    InterfaceMetric:                      25\r\n";
        assert_eq!(
            shown(printed, Family::V4),
            [IpAddr::from([10, 96, 0, 10]), IpAddr::from([10, 96, 0, 11])]
        );
    }

    #[test]
    fn of_ipv6_the_headlines_are_read() {
        assert_eq!(
            show("Ethernet", Family::V6),
            ["interface", "ipv6", "show", "address", "interface=Ethernet"]
        );
        let printed = "\r\nAddress fd00:10:96::10 Parameters\r\n-------------------------\r\nInterface Luid     : Ethernet\r\nScope Id           : 0.0\r\nValid Lifetime     : 29d23h59m59s\r\nDAD State          : Preferred\r\nSkip as Source     : false\r\n\r\nAdresse fe80::1%5 Parameter\r\n";
        let expected: [IpAddr; 2] = ["fd00:10:96::10", "fe80::1"].map(|ip| ip.parse().unwrap());
        assert_eq!(shown(printed, Family::V6), expected);
    }

    #[test]
    fn no_address_is_read_out_of_anything_else() {
        let others = [
            "",
            "The filename, directory name, or volume label syntax is incorrect.",
            "IP\r\nIP:\r\n:IP: 300.1.1.1\r\nIP Address: 10.96.0.10/32\r\nIP Address: ::1",
            "a:b fe80:: :%5 1::2::3 fd00::1/64 %",
        ];
        for printed in others {
            assert!(shown(printed, Family::V4).is_empty(), "{printed}");
        }
        assert!(shown(others[1], Family::V6).is_empty());
        assert_eq!(
            shown(others[3], Family::V6),
            ["fe80::".parse::<IpAddr>().unwrap()]
        );
    }
}
