//! The node's own addresses: read once, and monitored for changes.
//!
//! Addresses of services are not among them, although some modes put those on a device of their own, or on another one with a mark: otherwise node
//! ports would be served on them. Such a device may get thousands of addresses at once, so its notifications are skipped without a further
//! look.

use std::collections::HashSet;
use std::net::IpAddr;

use ferrovia_netlink::rtnetlink::{
    ADDRESS_HEADER_LEN, LINK_HEADER_LEN, interface_index, link_header,
};
use ferrovia_netlink::uapi::if_addr::{IFA_ADDRESS, IFA_LOCAL, IFA_PROTO};
use ferrovia_netlink::uapi::if_link::IFLA_IFNAME;
use ferrovia_netlink::uapi::rtnetlink::{
    RTM_DELADDR, RTM_GETADDR, RTM_GETLINK, RTM_NEWADDR, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR,
};
use ferrovia_netlink::{Attr, Attrs, Error, Message, Protocol, Socket, messages};

/// The devices that hold addresses of services: kube-proxy's and our ipvs mode's, and that of our userspace mode without rules.
const SERVICE_DEVICES: [&str; 2] = ["kube-ipvs0", "ferrovia0"];
/// `IFA_PROTO` of addresses that bind portals put on an interface. The kernel itself uses 1 to 3; kernels before 5.18 do not keep it.
pub(crate) const IFA_PROTO_SERVICE: u8 = 0x66;

/// Every address of every interface in this thread's network namespace, without those of services and without IPv6 link-local
/// ones: these mean nothing without an interface, so no service can be reached by them.
///
/// # Errors
/// If the netlink socket fails.
pub fn local_addresses() -> Result<Vec<IpAddr>, Error> {
    let mut socket = Socket::open(Protocol::Route)?;
    let passed_over = service_devices(&mut socket)?;
    let mut addresses: Vec<IpAddr> = socket.dump(
        RTM_GETADDR,
        |w| w.raw(&[0; ADDRESS_HEADER_LEN]),
        |all: &mut Vec<_>, message| {
            let counts = interface_index(message).is_some_and(|link| !passed_over.contains(&link));
            all.extend(address(message).filter(|_| counts && !is_of_services(message)));
        },
    )?;
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}

/// Monitors addresses that are added and removed.
#[derive(Debug)]
pub struct AddressMonitor {
    socket: Socket,
    /// For requests, so that replies and notifications do not mix.
    questions: Socket,
    passed_over: HashSet<u32>,
}

impl AddressMonitor {
    /// Starts listening. Read the addresses after this, so that no change falls in between.
    ///
    /// # Errors
    /// If a system call fails.
    pub fn open() -> Result<Self, Error> {
        let socket = Socket::open(Protocol::Route)?;
        socket.disable_timeout()?;
        for group in [RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR] {
            socket.join(group)?;
        }
        Ok(Self {
            socket,
            questions: Socket::open(Protocol::Route)?,
            passed_over: HashSet::new(),
        })
    }

    /// Waits until an address came, went or may have: the caller reads them all again.
    ///
    /// # Errors
    /// If the netlink socket fails.
    pub fn wait(&mut self) -> Result<(), Error> {
        loop {
            match self.socket.receive() {
                Ok(datagram) => {
                    let links = messages(datagram)
                        .filter(|message| address(message).is_some())
                        .filter_map(|message| interface_index(&message));
                    let links: HashSet<u32> = links.collect();
                    if self.concerns_the_node(&links)? {
                        return Ok(());
                    }
                }
                // What was lost may have been about addresses.
                Err(Error::Overrun) => return self.socket.drain(),
                Err(error) => return Err(error),
            }
        }
    }

    /// One of these interfaces is not a device of services. A number that is not known may be one that has just been made.
    fn concerns_the_node(&mut self, links: &HashSet<u32>) -> Result<bool, Error> {
        if links.is_subset(&self.passed_over) {
            return Ok(false);
        }
        self.passed_over = service_devices(&mut self.questions)?;
        Ok(!links.is_subset(&self.passed_over))
    }
}

/// The numbers of the devices that hold addresses of services.
fn service_devices(socket: &mut Socket) -> Result<HashSet<u32>, Error> {
    socket.dump(
        RTM_GETLINK,
        |w| w.raw(&link_header(0, 0)),
        |found: &mut HashSet<u32>, message| {
            let name = Attrs::of(message, LINK_HEADER_LEN).get(IFLA_IFNAME);
            let name = name.map(|name| name.value.strip_suffix(&[0]).unwrap_or(name.value));
            let is_one = name.is_some_and(|name| {
                let mut devices = SERVICE_DEVICES.iter();
                devices.any(|device| device.as_bytes() == name)
            });
            found.extend(interface_index(message).filter(|_| is_one));
        },
    )
}

/// The address that a message is about was put there for services. Kernels before 5.18 do not say.
pub(crate) fn is_of_services(message: &Message<'_>) -> bool {
    let origin = Attrs::of(message, ADDRESS_HEADER_LEN).get(IFA_PROTO);
    origin.and_then(|origin| origin.u8()) == Some(IFA_PROTO_SERVICE)
}

/// The address that a message is about, if it is one that counts.
pub(crate) fn address(message: &Message<'_>) -> Option<IpAddr> {
    if !matches!(message.kind, RTM_NEWADDR | RTM_DELADDR) {
        return None;
    }
    let attrs = Attrs::of(message, ADDRESS_HEADER_LEN);
    let ip = attrs
        .get(IFA_LOCAL)
        .or_else(|| attrs.get(IFA_ADDRESS))
        .and_then(Attr::ip)?;
    let link_local = matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
    (!link_local).then_some(ip)
}
