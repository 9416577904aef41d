//! A device that exists to have addresses: packets to them are the node's own, so that the load balancer in the kernel sees them.
//!
//! It is a dummy device and is never set up: the kernel knows its addresses as local all the same, and nothing can be sent by it.

use std::net::IpAddr;

use crate::addr;
use crate::netlink::{
    Attrs, Error as Netlink, Message, Protocol, Refused, Request, Socket, Writer, and_more, flags,
};
use crate::rtnetlink::{address, link, msg};

/// Seconds that never end.
const FOR_EVER: u32 = u32::MAX;

/// Something about the device could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A device of the name is there, but it is somebody's.
    #[error(
        "the device {name} is of kind {kind}, not dummy, so it is not ours to use: rename or remove it (ip link)"
    )]
    Foreign {
        /// Its name.
        name: String,
        /// What it is.
        kind: String,
    },
    /// The kernel cannot make such devices.
    #[error("this kernel cannot make dummy devices (load or enable the module dummy): {0}")]
    NoDummy(Netlink),
    /// The conversation broke, or the kernel refused something about the device as a whole.
    #[error("cannot {action} the device {name}: {cause}")]
    Device {
        /// What was tried.
        action: &'static str,
        /// The device.
        name: String,
        /// Why not.
        cause: Netlink,
    },
    /// The kernel refused a change of addresses.
    #[error("cannot {} {address} {} the device {name}: {refusal}{}", if *.binding { "put" } else { "take" }, if *.binding { "on" } else { "off" }, and_more(*.others))]
    Address {
        /// The first address concerned.
        address: IpAddr,
        /// It was to be put on, not taken off.
        binding: bool,
        /// The device.
        name: String,
        /// The kernel's word.
        refusal: crate::netlink::Refusal,
        /// How many others were refused.
        others: usize,
    },
}

/// One change of the device's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Put an address on.
    Bind(IpAddr),
    /// Take one off.
    Unbind(IpAddr),
}

/// How many addresses came and went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Addresses that are on the device now and were not before.
    pub bound: usize,
    /// Addresses that were on it and are not any more.
    pub unbound: usize,
}

/// The dummy device of a name, there or not.
#[derive(Debug)]
pub struct DummyDevice {
    name: &'static str,
    socket: Socket,
}

impl DummyDevice {
    /// Looks at the device of this name in the calling thread's network namespace.
    ///
    /// # Errors
    /// If a system call fails.
    pub fn open(name: &'static str) -> Result<Self, Error> {
        let socket = Socket::open(Protocol::Route).map_err(|cause| Error::Device {
            action: "look for",
            name: name.to_owned(),
            cause,
        })?;
        Ok(Self { name, socket })
    }

    /// The number of the device, if it is there.
    ///
    /// # Errors
    /// [`Error::Foreign`] if it is not a dummy device.
    pub fn find(&mut self) -> Result<Option<u32>, Error> {
        let name = self.name;
        let asked = self.socket.ask(
            msg::GET_LINK,
            |w| {
                w.raw(&[0; link::HEADER_LEN]);
                w.text(link::NAME, name);
            },
            number_and_kind,
        );
        match asked {
            Ok((number, kind)) if kind == link::DUMMY => Ok(Some(number)),
            Ok((_, kind)) => Err(Error::Foreign {
                name: name.to_owned(),
                kind,
            }),
            Err(error) if error.errno() == Some(libc::ENODEV) => Ok(None),
            Err(cause) => Err(self.failed("look for", cause)),
        }
    }

    /// Makes the device unless it is there; its number.
    ///
    /// # Errors
    /// If it is not a dummy device or cannot be made.
    pub fn ensure(&mut self) -> Result<u32, Error> {
        if let Some(number) = self.find()? {
            return Ok(number);
        }
        let create = LinkRequest::Create(self.name);
        match self.request(&[create], "make")?.pop() {
            Some((_, refusal)) if refusal.errno == libc::EOPNOTSUPP => {
                return Err(Error::NoDummy(Netlink::Refused(refusal)));
            }
            // Somebody was faster: the next look says whether it is what we want.
            Some((_, refusal)) if refusal.errno == libc::EEXIST => {}
            Some((_, refusal)) => return Err(self.failed("make", Netlink::Refused(refusal))),
            None => {}
        }
        self.find()?
            .ok_or_else(|| self.failed("find", Netlink::Senseless))
    }

    /// Removes the device with all that is on it; says whether it was there.
    ///
    /// # Errors
    /// If it is not a dummy device or cannot be removed.
    pub fn remove(&mut self) -> Result<bool, Error> {
        let Some(number) = self.find()? else {
            return Ok(false);
        };
        match self
            .request(&[LinkRequest::Delete(number)], "remove")?
            .pop()
        {
            Some((_, refusal)) => Err(self.failed("remove", Netlink::Refused(refusal))),
            None => Ok(true),
        }
    }

    /// The addresses on the device; nothing if it is not there.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn addresses(&mut self) -> Result<Vec<IpAddr>, Error> {
        let Some(number) = self.find()? else {
            return Ok(Vec::new());
        };
        let dumped = self.socket.dump(
            msg::GET_ADDRESS,
            |w| w.raw(&[0; 8]),
            |all: &mut Vec<IpAddr>, message| {
                if message.body.get(4..8).and_then(self::number) == Some(number) {
                    all.extend(addr::address(message));
                }
            },
        );
        dumped.map_err(|cause| self.failed("read the addresses of", cause))
    }

    /// Puts addresses on the device and takes others off. That one is there already, or gone already, is no failure.
    ///
    /// # Errors
    /// [`Error::Address`] if the kernel refuses some; the others are changed all the same.
    pub fn change(&mut self, changes: &[Change]) -> Result<Changed, Error> {
        let number = self
            .find()?
            .ok_or_else(|| self.failed("find", Netlink::Senseless))?;
        let requests: Vec<_> = changes
            .iter()
            .map(|change| AddressRequest(number, *change))
            .collect();
        let mut refused = self.request(&requests, "change the addresses of")?;
        let mut changed = Changed::default();
        for change in changes {
            match change {
                Change::Bind(_) => changed.bound += 1,
                Change::Unbind(_) => changed.unbound += 1,
            }
        }
        refused.retain(|(at, refusal)| match (changes.get(*at), refusal.errno) {
            (Some(Change::Bind(_)), libc::EEXIST) => {
                changed.bound -= 1;
                false
            }
            (Some(Change::Unbind(_)), libc::EADDRNOTAVAIL) => {
                changed.unbound -= 1;
                false
            }
            _ => true,
        });
        let others = refused.len().saturating_sub(1);
        let Some((at, refusal)) = refused.into_iter().next() else {
            return Ok(changed);
        };
        let (address, binding) = match changes.get(at) {
            Some(Change::Bind(address)) => (*address, true),
            Some(Change::Unbind(address)) => (*address, false),
            None => return Err(self.failed("change the addresses of", Netlink::Senseless)),
        };
        Err(Error::Address {
            address,
            binding,
            name: self.name.to_owned(),
            refusal,
            others,
        })
    }

    fn request(
        &mut self,
        requests: &[impl Request],
        action: &'static str,
    ) -> Result<Vec<Refused>, Error> {
        let answered = self.socket.pipeline(requests);
        answered.map_err(|cause| self.failed(action, cause))
    }

    fn failed(&self, action: &'static str, cause: Netlink) -> Error {
        Error::Device {
            action,
            name: self.name.to_owned(),
            cause,
        }
    }
}

enum LinkRequest {
    Create(&'static str),
    Delete(u32),
}

impl Request for LinkRequest {
    fn kind(&self) -> u16 {
        match self {
            Self::Create(_) => msg::NEW_LINK,
            Self::Delete(_) => msg::DEL_LINK,
        }
    }

    fn flags(&self) -> u16 {
        match self {
            Self::Create(_) => flags::CREATE | flags::EXCL,
            Self::Delete(_) => 0,
        }
    }

    fn write(&self, w: &mut Writer) {
        match self {
            Self::Create(name) => {
                w.raw(&[0; link::HEADER_LEN]);
                w.text(link::NAME, name);
                w.u32(link::QUEUE_LENGTH, 0);
                w.nested(link::INFO, |w| w.text(link::INFO_KIND, link::DUMMY));
            }
            Self::Delete(number) => {
                w.raw(&[0; 4]);
                w.raw(&number.to_ne_bytes());
                w.raw(&[0; 8]);
            }
        }
    }
}

/// A change of the addresses of the device of a number.
struct AddressRequest(u32, Change);

impl Request for AddressRequest {
    fn kind(&self) -> u16 {
        match self.1 {
            Change::Bind(_) => msg::NEW_ADDRESS,
            Change::Unbind(_) => msg::DEL_ADDRESS,
        }
    }

    fn flags(&self) -> u16 {
        match self.1 {
            Change::Bind(_) => flags::CREATE | flags::EXCL,
            Change::Unbind(_) => 0,
        }
    }

    fn write(&self, w: &mut Writer) {
        let (Change::Bind(address) | Change::Unbind(address)) = self.1;
        let mut head = |family: libc::c_int, bits: u8, bytes: &[u8]| {
            w.raw(&[family as u8, bits, address::NO_DETECTION, 0]);
            w.raw(&self.0.to_ne_bytes());
            w.bytes(address::LOCAL, bytes);
            w.bytes(address::ADDRESS, bytes);
        };
        match address {
            IpAddr::V4(v4) => head(libc::AF_INET, 32, &v4.octets()),
            IpAddr::V6(v6) => {
                head(libc::AF_INET6, 128, &v6.octets());
                if let Change::Bind(_) = self.1 {
                    w.bytes(address::LIFETIME, &never_preferred());
                }
            }
        }
    }
}

/// A lifetime that has the kernel choose the address as the source of nothing: masquerading under IPv6 takes the address nearest to the
/// destination from any interface, which would be a service's more often than the node's.
fn never_preferred() -> Vec<u8> {
    let (preferred, valid, made, changed) = (0, FOR_EVER, 0, 0);
    let lifetime = [preferred, valid, made, changed];
    lifetime.map(u32::to_ne_bytes).concat()
}

/// The number and kind of the link that a message is about. A link without a kind is hardware.
fn number_and_kind(message: &Message<'_>) -> Option<(u32, String)> {
    let number = message.body.get(4..8).and_then(number)?;
    let info = Attrs::of(message, link::HEADER_LEN).get(link::INFO);
    let kind = info.and_then(|info| info.nested().get(link::INFO_KIND)?.text());
    Some((number, kind.unwrap_or("hardware").to_owned()))
}

fn number(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_ne_bytes)
}

/// Reads a message as one about a link.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_hostile(message: &Message<'_>) -> usize {
    usize::from(number_and_kind(message).is_some())
}
