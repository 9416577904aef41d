//! The interface that service addresses are put on: a dummy device of our own, or one that somebody chose.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use ferrovia_core::family::Family;

use crate::addr;
use crate::netlink::{
    Attrs, Error as Netlink, Header, Message, Protocol, Refusal, Socket, Writer, flags, messages,
};

/// Message kinds of route netlink.
mod msg {
    pub(super) const NEW_LINK: u16 = 16;
    pub(super) const DEL_LINK: u16 = 17;
    pub(super) const GET_LINK: u16 = 18;
    pub(super) const NEW_ADDRESS: u16 = 20;
    pub(super) const DEL_ADDRESS: u16 = 21;
    pub(super) const GET_ADDRESS: u16 = 22;
    pub(super) const GET_ROUTE: u16 = 26;
}

/// Attributes of a link: its name, and what it is, with the kind inside.
const NAME: u16 = 3;
const INFO: u16 = 18;
const KIND: u16 = 1;
/// Attributes of an address: itself, how long it is good for, and who put it there, which kernels before 5.18 do not keep.
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;
const TIMES: u16 = 6;
const ORIGIN: u16 = 11;
/// Our mark as who put an address there. The kernel itself uses 1 to 3.
const MARK: u8 = 0x66;
/// The scope of an address that nothing outside of this machine is sent from.
const SCOPE_HOST: u8 = 254;
/// The fixed header of address messages: family, prefix length, flags, scope, interface.
const ADDRESS_HEADER_LEN: usize = 8;
/// Of a route: where its kind is in the fixed header, the kind of those that end here, and the attribute of the destination.
const ROUTE_TYPE: usize = 7;
const LOCAL_ROUTE: u8 = 2;
const ROUTE_DESTINATION: u16 = 1;
/// How long the kernel may take to make the route to an address.
const ROUTE_LIMIT: Duration = Duration::from_secs(2);
const ROUTE_POLL: Duration = Duration::from_millis(1);
/// A flag of a request: what is there already is not replaced.
const EXCLUSIVE: u16 = 0x200;
/// A flag of an address: nobody need be asked whether it is taken.
const NO_DETECTION: u8 = 2;
/// The fixed header of link messages: family, type, number, flags, which flags count.
const LINK_HEADER_LEN: usize = 16;
/// The flag of a link that is up.
const UP: u32 = 1;
const DUMMY: &str = "dummy";
/// The device we make.
const OWN: &str = "ferrovia0";
/// The longest name of an interface.
const LONGEST_NAME: usize = 15;

/// Something about the interface could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such interface.
    #[error(
        "there is no interface {0}, which service addresses are to be put on (ferrovia.userspace.interface)"
    )]
    Missing(String),
    /// The conversation with the kernel broke, or it refused something about the interface as a whole.
    #[error("cannot {action} the interface {name}: {cause}")]
    Interface {
        /// What was tried.
        action: &'static str,
        /// Which one.
        name: String,
        /// Why not.
        cause: Netlink,
    },
    /// The kernel refused a change of an address.
    #[error("cannot {action} the address {address} on the interface {name}: {cause}")]
    Address {
        /// What was tried.
        action: &'static str,
        /// The address.
        address: IpAddr,
        /// The interface.
        name: String,
        /// Why not.
        cause: Netlink,
    },
}

/// Which interface to use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum InterfaceChoice {
    /// A dummy device of our own, or loopback if the kernel has no such devices.
    #[default]
    Own,
    /// The one of this name, which must be there.
    Named(String),
}

/// An interface whose addresses we change.
#[derive(Debug)]
pub struct Interface {
    name: String,
    number: u32,
    /// It is our own device, so whatever is on it is ours.
    is_own: bool,
    /// Of somebody else's interface, the addresses that we put there.
    added: BTreeSet<IpAddr>,
    socket: Socket,
}

impl Interface {
    /// Finds the interface, or makes it, in the network namespace of the caller.
    ///
    /// # Errors
    /// If it is not there, or the kernel refuses.
    pub fn open(choice: &InterfaceChoice) -> Result<Self, Error> {
        match choice {
            InterfaceChoice::Named(name) => Self::find(name, false),
            InterfaceChoice::Own => match Self::own() {
                Err(Error::Interface { cause, .. }) if cause.errno() == Some(libc::EOPNOTSUPP) => {
                    tracing::info!(
                        "this kernel cannot make dummy devices; service addresses are put on lo"
                    );
                    Self::find("lo", false)
                }
                result => result,
            },
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The addresses of a family that are ours to remove. Of an interface that is not ours those that carry our mark, or, where the kernel
    /// cannot mark, those that this process put there.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn addresses(&mut self, family: Family) -> Result<Vec<IpAddr>, Error> {
        let dumped = dump(&mut self.socket);
        let found = dumped.map_err(|cause| self.failed("read the addresses of", cause))?;
        let is_ours =
            |found: &Found| self.is_own || found.is_marked || self.added.contains(&found.ip);
        Ok(found
            .into_iter()
            .filter(|found| found.interface == self.number && Family::of(found.ip) == family)
            .filter(is_ours)
            .map(|found| found.ip)
            .collect())
    }

    /// Puts addresses on it. One that is there already stays, and stays somebody's if it was.
    ///
    /// # Errors
    /// If the kernel refuses; those before are there.
    pub fn add(&mut self, addresses: &[IpAddr]) -> Result<(), Error> {
        for ip in addresses {
            let exclusive = flags::CREATE | EXCLUSIVE;
            match self.change(msg::NEW_ADDRESS, exclusive, *ip) {
                Ok(()) => drop(self.added.insert(*ip)),
                Err(cause) if cause.errno() == Some(libc::EEXIST) => {}
                Err(cause) => return Err(self.failed_at("put", *ip, cause)),
            }
        }
        self.wait_until_local(addresses)
    }

    /// Takes addresses off it. One that is gone already is no failure.
    ///
    /// # Errors
    /// If the kernel refuses; those before are gone.
    pub fn remove(&mut self, addresses: &[IpAddr]) -> Result<(), Error> {
        for ip in addresses {
            match self.change(msg::DEL_ADDRESS, 0, *ip) {
                Ok(()) => {}
                Err(cause) if cause.errno() == Some(libc::EADDRNOTAVAIL) => {}
                Err(cause) => return Err(self.failed_at("remove", *ip, cause)),
            }
            self.added.remove(ip);
        }
        Ok(())
    }

    /// An IPv6 address is there at once, but the kernel makes the route by which packets find it a moment later.
    fn wait_until_local(&mut self, addresses: &[IpAddr]) -> Result<(), Error> {
        let end = Instant::now() + ROUTE_LIMIT;
        for ip in addresses.iter().filter(|ip| ip.is_ipv6()) {
            loop {
                let asked = is_local(&mut self.socket, *ip);
                let is_local = asked.map_err(|cause| self.failed_at("find", *ip, cause))?;
                if is_local {
                    break;
                }
                if Instant::now() > end {
                    tracing::warn!(address = %ip, interface = self.name, "the kernel does not yet take this address for its own");
                    return Ok(());
                }
                thread::sleep(ROUTE_POLL);
            }
        }
        Ok(())
    }

    fn own() -> Result<Self, Error> {
        let failed = |action| {
            move |cause| Error::Interface {
                action,
                name: OWN.to_owned(),
                cause,
            }
        };
        let mut socket = Socket::open(Protocol::Route).map_err(failed("look for"))?;
        let made = request(&mut socket, msg::NEW_LINK, flags::CREATE | EXCLUSIVE, |w| {
            w.raw(&[0; LINK_HEADER_LEN]);
            w.text(NAME, OWN);
            w.nested(INFO, |w| w.text(KIND, DUMMY));
        });
        match made {
            Ok(()) => {}
            Err(error) if error.errno() == Some(libc::EEXIST) => {}
            Err(cause) => return Err(failed("make")(cause)),
        }
        let mut found = Self::find(OWN, true)?;
        let number = found.number;
        request(&mut found.socket, msg::NEW_LINK, 0, |w| {
            w.raw(&[0; 4]);
            w.raw(&number.to_ne_bytes());
            w.raw(&UP.to_ne_bytes());
            w.raw(&UP.to_ne_bytes());
        })
        .map_err(failed("set up"))?;
        Ok(found)
    }

    /// Finds an interface. One that should be our own is only if it is a dummy device: it may have that name by chance.
    fn find(name: &str, wants_own: bool) -> Result<Self, Error> {
        if name.is_empty() || name.len() > LONGEST_NAME {
            return Err(Error::Missing(name.to_owned()));
        }
        let failed = |cause: Netlink| match cause.errno() {
            Some(libc::ENODEV) => Error::Missing(name.to_owned()),
            _ => Error::Interface {
                action: "look for",
                name: name.to_owned(),
                cause,
            },
        };
        let mut socket = Socket::open(Protocol::Route).map_err(failed)?;
        let body = |w: &mut Writer| {
            w.raw(&[0; LINK_HEADER_LEN]);
            w.text(NAME, name);
        };
        let read = |message: &Message<'_>| {
            let info = Attrs::of(message, LINK_HEADER_LEN).get(INFO);
            let kind = info.and_then(|info| info.nested().get(KIND)?.text());
            Some((number_of(message)?, kind == Some(DUMMY)))
        };
        let (number, is_dummy) = socket.ask(msg::GET_LINK, body, read).map_err(failed)?;
        Ok(Self {
            name: name.to_owned(),
            number,
            is_own: wants_own && is_dummy,
            added: BTreeSet::new(),
            socket,
        })
    }

    fn change(&mut self, kind: u16, how: u16, ip: IpAddr) -> Result<(), Netlink> {
        let number = self.number;
        request(&mut self.socket, kind, how, |w| {
            write_address(w, number, ip);
        })
    }

    fn failed(&self, action: &'static str, cause: Netlink) -> Error {
        Error::Interface {
            action,
            name: self.name.clone(),
            cause,
        }
    }

    fn failed_at(&self, action: &'static str, address: IpAddr, cause: Netlink) -> Error {
        Error::Address {
            action,
            address,
            name: self.name.clone(),
            cause,
        }
    }
}

/// Removes what an earlier run has left: our device, and addresses of ours on others. Answers with what was removed, in words.
///
/// # Errors
/// If the kernel refuses.
pub fn remove_leftovers() -> Result<Vec<String>, Error> {
    let mut removed = Vec::new();
    match Interface::find(OWN, true) {
        Ok(mut own) if own.is_own => {
            let number = own.number;
            let deleted = request(&mut own.socket, msg::DEL_LINK, 0, |w| {
                w.raw(&[0; 4]);
                w.raw(&number.to_ne_bytes());
                w.raw(&[0; 8]);
            });
            deleted.map_err(|cause| own.failed("remove", cause))?;
            removed.push(format!("the device {OWN} with all service addresses"));
        }
        Ok(_) | Err(Error::Missing(_)) => {}
        Err(error) => return Err(error),
    }
    let failed = |cause| Error::Interface {
        action: "remove service addresses from",
        name: "lo".to_owned(),
        cause,
    };
    let mut socket = Socket::open(Protocol::Route).map_err(failed)?;
    let mut marked = dump(&mut socket).map_err(failed)?;
    marked.retain(|found| found.is_marked);
    for Found { interface, ip, .. } in &marked {
        let body = |w: &mut Writer| write_address(w, *interface, *ip);
        request(&mut socket, msg::DEL_ADDRESS, 0, body).map_err(failed)?;
    }
    if !marked.is_empty() {
        removed.push(format!("{} service addresses", marked.len()));
    }
    Ok(removed)
}

/// An address that is there.
struct Found {
    interface: u32,
    ip: IpAddr,
    is_marked: bool,
}

fn dump(socket: &mut Socket) -> Result<Vec<Found>, Netlink> {
    socket.dump(
        msg::GET_ADDRESS,
        |w| w.raw(&[0; ADDRESS_HEADER_LEN]),
        |all: &mut Vec<Found>, message| {
            let origin = Attrs::of(message, ADDRESS_HEADER_LEN).get(ORIGIN);
            if let (Some(interface), Some(ip)) = (number_of(message), addr::address(message)) {
                all.push(Found {
                    interface,
                    ip,
                    is_marked: origin.and_then(|origin| origin.u8()) == Some(MARK),
                });
            }
        },
    )
}

/// Packets to an address stay on this machine.
fn is_local(socket: &mut Socket, ip: IpAddr) -> Result<bool, Netlink> {
    let IpAddr::V6(v6) = ip else {
        return Ok(true);
    };
    let asked = socket.ask(
        msg::GET_ROUTE,
        |w| {
            w.raw(&[libc::AF_INET6 as u8, 128, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            w.bytes(ROUTE_DESTINATION, &v6.octets());
        },
        |message| message.body.get(ROUTE_TYPE).copied(),
    );
    match asked {
        Ok(kind) => Ok(kind == LOCAL_ROUTE),
        // Neither local nor anywhere else.
        Err(error) if matches!(error.errno(), Some(libc::ENETUNREACH | libc::EHOSTUNREACH)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// An address of ours. It is never one to send from: what this machine sends should come from the machine, not from a service.
fn write_address(w: &mut Writer, interface: u32, ip: IpAddr) {
    let mut head = |family: libc::c_int, bits: u8, scope: u8| {
        w.raw(&[family as u8, bits, NO_DETECTION, scope]);
        w.raw(&interface.to_ne_bytes());
    };
    match ip {
        IpAddr::V4(v4) => {
            head(libc::AF_INET, 32, SCOPE_HOST);
            w.bytes(LOCAL, &v4.octets());
            w.bytes(ADDRESS, &v4.octets());
        }
        IpAddr::V6(v6) => {
            head(libc::AF_INET6, 128, 0);
            w.bytes(LOCAL, &v6.octets());
            w.bytes(ADDRESS, &v6.octets());
            // Preferred for no time, valid for ever; the other two are the kernel's.
            let times = [0, u32::MAX, 0, 0].map(u32::to_ne_bytes);
            w.bytes(TIMES, times.as_flattened());
        }
    }
    w.bytes(ORIGIN, &[MARK]);
}

/// Asks for a change and waits for the kernel's word.
fn request(
    socket: &mut Socket,
    kind: u16,
    how: u16,
    body: impl FnOnce(&mut Writer),
) -> Result<(), Netlink> {
    let seq = socket.next_seq();
    socket.skip_seqs(1);
    let mut writer = Writer::with_capacity(128);
    let flags = flags::REQUEST | flags::ACK | how;
    writer.message(Header { kind, flags, seq }, body);
    socket.send(&writer.finish()?)?;
    loop {
        let answer = messages(socket.receive()?).find(|message| message.seq == seq);
        match answer.as_ref().and_then(Refusal::read) {
            Some(Ok(())) => return Ok(()),
            Some(Err(refusal)) => return Err(Netlink::Refused(refusal)),
            None => {}
        }
    }
}

/// The interface that a message about a link or an address is about.
fn number_of(message: &Message<'_>) -> Option<u32> {
    let bytes = message.body.get(4..8)?;
    bytes.try_into().ok().map(u32::from_ne_bytes)
}
