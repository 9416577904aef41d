//! A plan of the ipvs mode, and what it is compared with.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::dialect::ipset::{self, IpsetName};
use crate::dialect::iptables::Restore;
use crate::dialect::ipvs::{self, VirtualServer, VirtualServerKey};
use crate::plan::{Plan, iptables};

/// The device that has the services' addresses, so that the kernel takes packets to them for its own.
pub const DEVICE: &str = "kube-ipvs0";

/// A plan of the ipvs mode. Steps are applied in order: between any two of them, every service that was
/// served before and is desired after is served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IpvsPlan {
    /// What is done, in this order. None of them is empty.
    pub steps: Vec<IpvsStep>,
    /// Messages for the log.
    pub notes: Vec<String>,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IpvsStep {
    /// Makes the device, if it is not there.
    Device,
    /// Removes the device, unless the other family has addresses on it.
    NoDevice,
    Sets(Vec<ipset::IpsetOp>),
    Rules(Restore),
    Servers(Vec<ipvs::IpvsOp>),
    /// Changes the device's addresses.
    Addresses(Vec<AddressOp>),
}

/// One change of the device's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AddressOp {
    /// Puts an address on the device that is not on it.
    Bind(IpAddr),
    /// Takes an address off.
    Unbind(IpAddr),
}

/// What is in the kernel, of one family. Sets are of both; their names differ by family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IpvsObserved {
    /// The device is there.
    pub device: bool,
    /// The addresses on it.
    pub addresses: BTreeSet<IpAddr>,
    /// Every virtual server, also those of other processes, with destinations and weights.
    pub servers: BTreeMap<VirtualServerKey, (VirtualServer, BTreeMap<SocketAddr, u32>)>,
    /// Every set whose name begins with `KUBE-`.
    pub sets: BTreeMap<IpsetName, ipset::ObservedIpset>,
    /// The tables filter and nat.
    pub rules: iptables::IptablesObserved,
}

impl IpvsPlan {
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

impl Plan for IpvsPlan {
    fn notes(&self) -> &[String] {
        &self.notes
    }
}

impl fmt::Display for IpvsPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| step.fmt(f))
    }
}

impl fmt::Display for IpvsStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device => writeln!(f, "link add {DEVICE} type dummy"),
            Self::NoDevice => writeln!(f, "link delete {DEVICE}"),
            Self::Sets(ops) => lines(f, ops),
            Self::Rules(restore) => restore.fmt(f),
            Self::Servers(ops) => lines(f, ops),
            Self::Addresses(ops) => lines(f, ops),
        }
    }
}

fn lines<T: fmt::Display>(f: &mut fmt::Formatter<'_>, ops: &[T]) -> fmt::Result {
    ops.iter().try_for_each(|op| writeln!(f, "{op}"))
}

impl fmt::Display for AddressOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verb, ip) = match self {
            Self::Bind(ip) => ("add", ip),
            Self::Unbind(ip) => ("delete", ip),
        };
        write!(f, "address {verb} {} dev {DEVICE}", ipnet::IpNet::from(*ip))
    }
}
