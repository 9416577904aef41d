//! The interface that service addresses are put on: a dummy device of our own, or one that another process chose.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use ferrovia_core::family::Family;
use ferrovia_netlink::rtnetlink::{DUMMY_KIND, find_link};
use ferrovia_netlink::{Error as Netlink, Protocol, Socket};

use super::route::{self, InterfaceAddress};

/// How long the kernel may take to make the route to an address.
const ROUTE_LIMIT: Duration = Duration::from_secs(2);
const ROUTE_POLL: Duration = Duration::from_millis(1);
const OWN: &str = "ferrovia0";
/// What takes its place where none can be made.
const LOOPBACK: &str = "lo";
/// The longest name of an interface.
const LONGEST_NAME: usize = 15;

/// Something about the interface could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such interface.
    #[error("cannot find interface {0} for service addresses (ferrovia.userspace.interface)")]
    Missing(String),
    /// The netlink socket failed, or it refused something about the interface as a whole.
    #[error("cannot {action} interface {name}: {cause}")]
    Interface {
        action: &'static str,
        name: String,
        cause: Netlink,
    },
    /// The kernel refused a change of an address.
    #[error("cannot {action} address {address} on interface {name}: {cause}")]
    Address {
        action: &'static str,
        address: IpAddr,
        name: String,
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
    choice: InterfaceChoice,
    name: String,
    number: u32,
    /// It is our own device, so whatever is on it is ours.
    is_own: bool,
    /// Of another process's interface, the addresses that we put there.
    added: BTreeSet<IpAddr>,
    socket: Socket,
}

/// The addresses of a family on the interface that is chosen, no matter who added them, and whether it is our own device. None if it is not
/// there: nothing is made.
///
/// # Errors
/// If they cannot be read.
pub fn addresses_on(
    choice: &InterfaceChoice,
    family: Family,
) -> Result<(Vec<IpAddr>, bool), Error> {
    let found = match choice {
        InterfaceChoice::Named(name) => Interface::find(choice, name),
        InterfaceChoice::Own => match Interface::find(choice, OWN) {
            Err(Error::Missing(_)) => Interface::find(choice, LOOPBACK),
            found => found,
        },
    };
    let mut interface = match found {
        Err(Error::Missing(_)) => return Ok((Vec::new(), false)),
        found => found?,
    };
    let dumped = route::addresses(&mut interface.socket);
    let all = dumped.map_err(|cause| interface.failed("read the addresses of", cause))?;
    let here = all
        .into_iter()
        .filter(|found| found.interface == interface.number && Family::of(found.ip) == family);
    Ok((here.map(|found| found.ip).collect(), interface.is_own))
}

impl Interface {
    /// Finds the interface, or makes it, in the network namespace of the caller.
    ///
    /// # Errors
    /// If it is not there, or the kernel refuses.
    pub fn open(choice: &InterfaceChoice) -> Result<Self, Error> {
        match choice {
            InterfaceChoice::Named(name) => Self::find(choice, name),
            InterfaceChoice::Own => match Self::own() {
                Err(Error::Interface { cause, .. }) if cause.errno() == Some(libc::EOPNOTSUPP) => {
                    tracing::info!(
                        interface = LOOPBACK,
                        "Using the loopback interface for service addresses because this kernel has no dummy devices"
                    );
                    Self::find(choice, LOOPBACK)
                }
                result => result,
            },
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The addresses of a family that are ours to remove. Of an interface that is not ours those that carry our mark, or, where the kernel
    /// cannot mark, those that this process put there. If another process has removed the interface, it is the one that is there by now.
    ///
    /// # Errors
    /// If they cannot be read, or the interface is gone and not ours to make.
    pub fn addresses(&mut self, family: Family) -> Result<Vec<IpAddr>, Error> {
        self.follow()?;
        let mut ours = self.ours()?;
        ours.retain(|ip| Family::of(*ip) == family);
        Ok(ours)
    }

    /// Goes over to another interface if the one we had is gone: the kernel numbers one that is made again differently.
    fn follow(&mut self) -> Result<(), Error> {
        match find_link(&mut self.socket, &self.name) {
            Ok((number, _)) if number == self.number => return Ok(()),
            Err(cause) if cause.errno() != Some(libc::ENODEV) => {
                return Err(self.failed("find", cause));
            }
            _ => {}
        }
        *self = Self::open(&self.choice)?;
        tracing::warn!(
            interface = self.name,
            "Recreated the interface of service addresses, which another process had removed"
        );
        Ok(())
    }

    /// The addresses on it that are ours, of both families.
    fn ours(&mut self) -> Result<Vec<IpAddr>, Error> {
        let dumped = route::addresses(&mut self.socket);
        let found = dumped.map_err(|cause| self.failed("read the addresses of", cause))?;
        let is_ours = |found: &InterfaceAddress| {
            self.is_own || found.is_marked || self.added.contains(&found.ip)
        };
        let here = found.into_iter().filter(|it| it.interface == self.number);
        Ok(here.filter(is_ours).map(|found| found.ip).collect())
    }

    /// Puts addresses on it. One that is there already stays, and stays another process's if it was.
    ///
    /// # Errors
    /// If the kernel refuses one; all others are there.
    pub fn add(&mut self, addresses: &[IpAddr]) -> Result<(), Error> {
        let mut there = Vec::new();
        let mut refused = Ok(());
        for ip in addresses {
            match route::add_address(&mut self.socket, self.number, *ip) {
                Ok(()) => drop(self.added.insert(*ip)),
                Err(cause) if cause.errno() == Some(libc::EEXIST) => {}
                Err(cause) => {
                    refused = refused.and(Err(self.failed_at("put", *ip, cause)));
                    continue;
                }
            }
            there.push(*ip);
        }
        self.wait_until_local(&there)?;
        refused
    }

    /// Takes addresses off it, but for those that are another process's. One that is gone already is no failure.
    ///
    /// # Errors
    /// If the kernel refuses one; all others are gone.
    pub fn remove(&mut self, addresses: &[IpAddr]) -> Result<(), Error> {
        if addresses.is_empty() {
            return Ok(());
        }
        let ours: BTreeSet<IpAddr> = self.ours()?.into_iter().collect();
        let mut refused = Ok(());
        for ip in addresses.iter().filter(|ip| ours.contains(ip)) {
            match route::remove_address(&mut self.socket, self.number, *ip) {
                Err(cause) if cause.errno() != Some(libc::EADDRNOTAVAIL) => {
                    refused = refused.and(Err(self.failed_at("remove", *ip, cause)));
                }
                _ => drop(self.added.remove(ip)),
            }
        }
        refused
    }

    /// An IPv6 address is there at once, but the kernel makes the route by which packets find it a moment later.
    fn wait_until_local(&mut self, addresses: &[IpAddr]) -> Result<(), Error> {
        let end = Instant::now() + ROUTE_LIMIT;
        for ip in addresses.iter().filter(|ip| ip.is_ipv6()) {
            loop {
                let asked = route::is_local(&mut self.socket, *ip);
                let is_local = asked.map_err(|cause| self.failed_at("find", *ip, cause))?;
                if is_local {
                    break;
                }
                if Instant::now() > end {
                    tracing::warn!(address = %ip, interface = self.name, "Added address to which the kernel has no local route yet");
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
        let mut socket = Socket::open(Protocol::Route).map_err(failed("find"))?;
        match route::make_dummy(&mut socket, OWN) {
            Ok(()) => {}
            Err(error) if error.errno() == Some(libc::EEXIST) => {}
            Err(cause) => return Err(failed("create")(cause)),
        }
        let mut found = Self::find(&InterfaceChoice::Own, OWN)?;
        route::set_up(&mut found.socket, found.number).map_err(failed("set up"))?;
        Ok(found)
    }

    /// Finds the interface of a name for a choice. One that should be our own is only if it is a dummy device: it may have that name by chance.
    fn find(choice: &InterfaceChoice, name: &str) -> Result<Self, Error> {
        if name.is_empty() || name.len() > LONGEST_NAME {
            return Err(Error::Missing(name.to_owned()));
        }
        let failed = |cause: Netlink| match cause.errno() {
            Some(libc::ENODEV) => Error::Missing(name.to_owned()),
            _ => Error::Interface {
                action: "find",
                name: name.to_owned(),
                cause,
            },
        };
        let mut socket = Socket::open(Protocol::Route).map_err(failed)?;
        let (number, kind) = find_link(&mut socket, name).map_err(failed)?;
        let should_be_own = *choice == InterfaceChoice::Own && name == OWN;
        Ok(Self {
            choice: choice.clone(),
            name: name.to_owned(),
            number,
            is_own: should_be_own && kind == DUMMY_KIND,
            added: BTreeSet::new(),
            socket,
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

/// Removes what an earlier run has left: our device, and addresses of ours on others. Returns what was removed, in words.
///
/// # Errors
/// If the kernel refuses.
pub fn remove_leftovers() -> Result<Vec<String>, Error> {
    let mut removed = Vec::new();
    match Interface::find(&InterfaceChoice::Own, OWN) {
        Ok(mut own) if own.is_own => {
            let deleted = route::delete_link(&mut own.socket, own.number);
            deleted.map_err(|cause| own.failed("remove", cause))?;
            removed.push(format!("device {OWN} with all service addresses"));
        }
        Ok(_) | Err(Error::Missing(_)) => {}
        Err(error) => return Err(error),
    }
    let failed = |cause| Error::Interface {
        action: "find service addresses on",
        name: LOOPBACK.to_owned(),
        cause,
    };
    let mut socket = Socket::open(Protocol::Route).map_err(failed)?;
    let mut marked = route::addresses(&mut socket).map_err(failed)?;
    marked.retain(|found| found.is_marked);
    for InterfaceAddress { interface, ip, .. } in &marked {
        match route::remove_address(&mut socket, *interface, *ip) {
            Err(cause) if cause.errno() != Some(libc::EADDRNOTAVAIL) => {
                return Err(Error::Address {
                    action: "remove",
                    address: *ip,
                    name: format!("with index {interface}"),
                    cause,
                });
            }
            _ => {}
        }
    }
    if !marked.is_empty() {
        removed.push(format!("{} service addresses", marked.len()));
    }
    Ok(removed)
}
