//! A device that exists to have addresses: packets to them are the node's own, so that the load balancer in the kernel sees them.
//!
//! It is a dummy device and is never set up: the kernel knows its addresses as local anyway, and nothing can be sent by it.

use std::net::IpAddr;

use ferrovia_netlink::rtnetlink::{
    ADDRESS_HEADER_LEN, DUMMY_KIND, address_header, deprecated_address_lifetime, find_link,
    interface_index, link_header,
};
use ferrovia_netlink::uapi::if_addr::{IFA_ADDRESS, IFA_CACHEINFO, IFA_F_NODAD, IFA_LOCAL};
use ferrovia_netlink::uapi::if_link::{IFLA_IFNAME, IFLA_INFO_KIND, IFLA_LINKINFO, IFLA_TXQLEN};
use ferrovia_netlink::uapi::netlink::{NLM_F_CREATE, NLM_F_EXCL};
use ferrovia_netlink::uapi::rtnetlink::{
    RTM_DELADDR, RTM_DELLINK, RTM_GETADDR, RTM_NEWADDR, RTM_NEWLINK,
};
use ferrovia_netlink::{Error as Netlink, Protocol, Refusal, Request, Socket, Writer, and_more};

use crate::addr;

/// Something about the device could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A device of the name is there, but it is another process's.
    #[error(
        "cannot use device {name}: its kind is {kind}, not dummy; rename or remove it (ip link)"
    )]
    Foreign { name: String, kind: String },
    /// The kernel cannot make such devices.
    #[error(
        "cannot create dummy devices, which this kernel lacks (load or enable the module dummy): {0}"
    )]
    NoDummy(Netlink),
    /// The netlink socket failed, or the kernel refused something about the device as a whole.
    #[error("cannot {action} device {name}: {cause}")]
    Device {
        action: &'static str,
        name: String,
        cause: Netlink,
    },
    /// The kernel refused a change of addresses.
    #[error("cannot {} address {address} {} device {name}: {refusal}{}", if *.binding { "add" } else { "remove" }, if *.binding { "to" } else { "from" }, and_more(*.others))]
    Address {
        address: IpAddr,
        /// It was to be put on, not taken off.
        binding: bool,
        name: String,
        refusal: Refusal,
        others: usize,
    },
}

/// One change of the device's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressChange {
    /// Put an address on.
    Bind(IpAddr),
    Unbind(IpAddr),
}

/// How many addresses came and went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressCounts {
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
            action: "find",
            name: name.to_owned(),
            cause,
        })?;
        Ok(Self { name, socket })
    }

    /// The index of the device, if it is there.
    ///
    /// # Errors
    /// [`Error::Foreign`] if it is not a dummy device.
    pub fn find(&mut self) -> Result<Option<u32>, Error> {
        match find_link(&mut self.socket, self.name) {
            Ok((number, kind)) if kind == DUMMY_KIND => Ok(Some(number)),
            Ok((_, kind)) => Err(Error::Foreign {
                name: self.name.to_owned(),
                kind,
            }),
            Err(error) if error.errno() == Some(libc::ENODEV) => Ok(None),
            Err(cause) => Err(self.failed("find", cause)),
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
        let name = self.name;
        let make = NLM_F_CREATE | NLM_F_EXCL;
        let made = self.socket.request(RTM_NEWLINK, make, |w| {
            w.raw(&link_header(0, 0));
            w.text(IFLA_IFNAME, name);
            w.u32(IFLA_TXQLEN, 0);
            w.nested(IFLA_LINKINFO, |w| w.text(IFLA_INFO_KIND, DUMMY_KIND));
        });
        match made {
            Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => Err(Error::NoDummy(error)),
            // Another process was faster: the next look returns whether it is what we want.
            Err(error) if error.errno() != Some(libc::EEXIST) => Err(self.failed("create", error)),
            _ => self.require(),
        }
    }

    /// Removes the device with all that is on it; returns whether it was there.
    ///
    /// # Errors
    /// If it is not a dummy device or cannot be removed.
    pub fn remove(&mut self) -> Result<bool, Error> {
        let Some(number) = self.find()? else {
            return Ok(false);
        };
        let header = link_header(number, 0);
        let removed = self.socket.request(RTM_DELLINK, 0, |w| w.raw(&header));
        removed
            .map(|()| true)
            .map_err(|cause| self.failed("remove", cause))
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
            RTM_GETADDR,
            |w| w.raw(&[0; ADDRESS_HEADER_LEN]),
            |all: &mut Vec<IpAddr>, message| {
                if interface_index(message) == Some(number) {
                    all.extend(addr::address(message));
                }
            },
        );
        dumped.map_err(|cause| self.failed("read the addresses of", cause))
    }

    /// Puts addresses on the device and takes others off. That one is there already, or gone already, is no failure.
    ///
    /// # Errors
    /// [`Error::Address`] if the kernel refuses some; the others are changed anyway.
    pub fn change(&mut self, changes: &[AddressChange]) -> Result<AddressCounts, Error> {
        let number = self.require()?;
        let requests: Vec<_> = changes
            .iter()
            .map(|change| AddressRequest(number, *change))
            .collect();
        let answered = self.socket.pipeline(&requests);
        let mut refused =
            answered.map_err(|cause| self.failed("change the addresses of", cause))?;
        let mut changed = AddressCounts::default();
        for change in changes {
            match change {
                AddressChange::Bind(_) => changed.bound += 1,
                AddressChange::Unbind(_) => changed.unbound += 1,
            }
        }
        refused.retain(|(at, refusal)| match (changes.get(*at), refusal.errno) {
            (Some(AddressChange::Bind(_)), libc::EEXIST) => {
                changed.bound -= 1;
                false
            }
            (Some(AddressChange::Unbind(_)), libc::EADDRNOTAVAIL) => {
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
            Some(AddressChange::Bind(address)) => (*address, true),
            Some(AddressChange::Unbind(address)) => (*address, false),
            None => return Err(self.failed("change the addresses of", Netlink::UnexpectedReply)),
        };
        Err(Error::Address {
            address,
            binding,
            name: self.name.to_owned(),
            refusal,
            others,
        })
    }

    /// The index of the device, which must be there.
    fn require(&mut self) -> Result<u32, Error> {
        let gone = || {
            Netlink::Refused(Refusal {
                errno: libc::ENODEV,
                message: None,
                offset: None,
            })
        };
        self.find()?.ok_or_else(|| self.failed("find", gone()))
    }

    fn failed(&self, action: &'static str, cause: Netlink) -> Error {
        Error::Device {
            action,
            name: self.name.to_owned(),
            cause,
        }
    }
}

/// A change of the addresses of the device of a number.
struct AddressRequest(u32, AddressChange);

impl Request for AddressRequest {
    fn kind(&self) -> u16 {
        match self.1 {
            AddressChange::Bind(_) => RTM_NEWADDR,
            AddressChange::Unbind(_) => RTM_DELADDR,
        }
    }

    fn flags(&self) -> u16 {
        match self.1 {
            AddressChange::Bind(_) => NLM_F_CREATE | NLM_F_EXCL,
            AddressChange::Unbind(_) => 0,
        }
    }

    fn write(&self, w: &mut Writer) {
        let (AddressChange::Bind(address) | AddressChange::Unbind(address)) = self.1;
        let mut head = |family: libc::c_int, bits: u8, bytes: &[u8]| {
            w.raw(&address_header(family as u8, bits, IFA_F_NODAD, self.0));
            w.bytes(IFA_LOCAL, bytes);
            w.bytes(IFA_ADDRESS, bytes);
        };
        match address {
            IpAddr::V4(v4) => head(libc::AF_INET, 32, &v4.octets()),
            IpAddr::V6(v6) => {
                head(libc::AF_INET6, 128, &v6.octets());
                if let AddressChange::Bind(_) = self.1 {
                    w.bytes(IFA_CACHEINFO, &deprecated_address_lifetime());
                }
            }
        }
    }
}
