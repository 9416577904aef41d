//! A plan of the ipvs mode, and what it is compared with.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::dialect::ipset::{self, SetName};
use crate::dialect::iptables::Restore;
use crate::dialect::ipvs::{self, Server, ServerKey};
use crate::plan::{Plan, iptables};

/// The device that has the services' addresses, so that the kernel takes packets to them for its own.
pub const DEVICE: &str = "kube-ipvs0";

/// What the ipvs mode wants written. The steps are done one after the other: at each moment between two of them every service that was
/// served before and is wanted after is served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IpvsPlan {
    /// What is done, in this order. None of them is empty.
    pub steps: Vec<Step>,
    /// What people should know about it.
    pub notes: Vec<String>,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Makes the device, if it is not there.
    Device,
    /// Removes the device, unless the other family has addresses on it.
    NoDevice,
    /// Changes sets.
    Sets(Vec<ipset::Op>),
    /// Changes rules.
    Rules(Restore),
    /// Changes virtual servers.
    Servers(Vec<ipvs::Op>),
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

/// What is in the kernel, of one family. Sets are of both: names tell the families apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The device is there.
    pub device: bool,
    /// The addresses on it.
    pub addresses: BTreeSet<IpAddr>,
    /// Every virtual server, whoever made it, with its destinations and their weights.
    pub servers: BTreeMap<ServerKey, (Server, BTreeMap<SocketAddr, u32>)>,
    /// Every set whose name begins with `KUBE-`.
    pub sets: BTreeMap<SetName, ipset::Set>,
    /// The tables filter and nat.
    pub rules: iptables::Observed,
}

impl IpvsPlan {
    /// There is nothing to do.
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

impl fmt::Display for Step {
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
