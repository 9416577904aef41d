//! The node's own addresses: read once, and heard of when they change.
//!
//! Addresses of services are not among them, although some modes put those on a device of their own, or on another one with a mark: whoever
//! took them for the node's would serve node ports on them. A device of their own may get thousands of addresses at once, so news of it are
//! passed over without a further look.

use std::collections::HashSet;
use std::net::IpAddr;

use crate::netlink::{Attr, Attrs, Error, Message, Protocol, Socket, messages};
use crate::rtnetlink::{address, interface, link, msg};

/// The devices that hold addresses of services: kube-proxy's and our ipvs mode's, and that of our userspace mode without rules.
const SERVICE_DEVICES: [&str; 2] = ["kube-ipvs0", "ferrovia0"];
/// The groups that hear of addresses.
const GROUPS: [u32; 2] = [5, 9];

/// Every address of every interface in this thread's network namespace, without those of services and without IPv6 link-local
/// ones: these mean nothing without an interface, so no service can be reached by them.
///
/// # Errors
/// If the conversation with the kernel breaks.
pub fn local_addresses() -> Result<Vec<IpAddr>, Error> {
    let mut socket = Socket::open(Protocol::Route)?;
    let passed_over = service_devices(&mut socket)?;
    let mut addresses: Vec<IpAddr> = socket.dump(
        msg::GET_ADDRESS,
        |w| w.raw(&[0; address::HEADER_LEN]),
        |all: &mut Vec<_>, message| {
            let counts = interface(message).is_some_and(|link| !passed_over.contains(&link));
            all.extend(address(message).filter(|_| counts && !is_of_services(message)));
        },
    )?;
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}

/// Hears of addresses that come and go.
#[derive(Debug)]
pub struct AddressMonitor {
    socket: Socket,
    /// For questions, so that answers and news do not mix.
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
        socket.wait_for_ever()?;
        for group in GROUPS {
            socket.join(group)?;
        }
        Ok(Self {
            socket,
            questions: Socket::open(Protocol::Route)?,
            passed_over: HashSet::new(),
        })
    }

    /// Waits until an address came, went or may have: the caller reads them all anew.
    ///
    /// # Errors
    /// If the conversation with the kernel breaks.
    pub fn wait(&mut self) -> Result<(), Error> {
        loop {
            match self.socket.receive() {
                Ok(datagram) => {
                    let news = messages(datagram);
                    let links = news
                        .filter(|message| address(message).is_some())
                        .filter_map(|message| interface(&message));
                    let links: HashSet<u32> = links.collect();
                    if self.concerns_the_node(&links)? {
                        return Ok(());
                    }
                }
                // What was lost may have been about addresses.
                Err(Error::Lost) => return self.socket.drain(),
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
        msg::GET_LINK,
        |w| w.raw(&link::header(0, 0)),
        |found: &mut HashSet<u32>, message| {
            let name = Attrs::of(message, link::HEADER_LEN).get(link::NAME);
            let name = name.map(|name| name.value.strip_suffix(&[0]).unwrap_or(name.value));
            let is_one = name.is_some_and(|name| {
                let mut devices = SERVICE_DEVICES.iter();
                devices.any(|device| device.as_bytes() == name)
            });
            found.extend(interface(message).filter(|_| is_one));
        },
    )
}

/// The address that a message is about was put there for services. Kernels before 5.18 cannot tell.
pub(crate) fn is_of_services(message: &Message<'_>) -> bool {
    let origin = Attrs::of(message, address::HEADER_LEN).get(address::ORIGIN);
    origin.and_then(|origin| origin.u8()) == Some(address::OF_SERVICES)
}

/// The address that a message is about, if it is one that counts.
pub(crate) fn address(message: &Message<'_>) -> Option<IpAddr> {
    if !matches!(message.kind, msg::NEW_ADDRESS | msg::DEL_ADDRESS) {
        return None;
    }
    let attrs = Attrs::of(message, address::HEADER_LEN);
    let ip = attrs
        .get(address::LOCAL)
        .or_else(|| attrs.get(address::ADDRESS))
        .and_then(Attr::ip)?;
    let link_local = matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
    (!link_local).then_some(ip)
}
