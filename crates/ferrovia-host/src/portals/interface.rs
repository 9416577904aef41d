//! The interface that service addresses are put on: a dummy device of our own, or one that somebody chose.

use std::collections::BTreeSet;
use std::net::IpAddr;

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
}

/// Attributes of a link: its name, and what it is, with the kind inside.
const NAME: u16 = 3;
const INFO: u16 = 18;
const KIND: u16 = 1;
/// Attributes of an address.
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;
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

    /// Removes our own device with all that is on it; its name, if it was there.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn remove_own() -> Result<Option<&'static str>, Error> {
        let mut own = match Self::find(OWN, true) {
            Ok(found) if found.is_own => found,
            Ok(_) | Err(Error::Missing(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let number = own.number;
        let removed = request(&mut own.socket, msg::DEL_LINK, 0, |w| {
            w.raw(&[0; 4]);
            w.raw(&number.to_ne_bytes());
            w.raw(&[0; 8]);
        });
        match removed {
            Err(cause) => Err(own.failed("remove", cause)),
            Ok(()) => Ok(Some(OWN)),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The addresses of a family that are ours to remove. Of an interface that is not ours those that this process put there.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn addresses(&mut self, family: Family) -> Result<Vec<IpAddr>, Error> {
        let number = self.number;
        let dumped = self.socket.dump(
            msg::GET_ADDRESS,
            |w| w.raw(&[0; 8]),
            |all: &mut Vec<IpAddr>, message| {
                if number_of(message) == Some(number) {
                    all.extend(addr::address(message));
                }
            },
        );
        let mut there = dumped.map_err(|cause| self.failed("read the addresses of", cause))?;
        there.retain(|ip| Family::of(*ip) == family && (self.is_own || self.added.contains(ip)));
        Ok(there)
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
        Ok(())
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
            let mut body = |family: libc::c_int, bits: u8, bytes: &[u8]| {
                w.raw(&[family as u8, bits, NO_DETECTION, 0]);
                w.raw(&number.to_ne_bytes());
                w.bytes(LOCAL, bytes);
                w.bytes(ADDRESS, bytes);
            };
            match ip {
                IpAddr::V4(v4) => body(libc::AF_INET, 32, &v4.octets()),
                IpAddr::V6(v6) => body(libc::AF_INET6, 128, &v6.octets()),
            }
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
