//! What was seen of a node, before anybody judges it.
//!
//! Everything is a plain value, so that a check can be tried with any node one can think of. What could not be seen is none, and why is
//! said in `unseen`.

use std::collections::{BTreeMap, BTreeSet};

use ferrovia_core::family::Family;
use ferrovia_core::model::Protocol;
use ferrovia_host::survey::chains::{HookedChain, Ruleset};
use ferrovia_host::survey::flows::ConntrackTotals;
use ferrovia_host::survey::links::Link;
use ferrovia_host::survey::modules::ModulePresence;
use ferrovia_host::survey::processes::Process;
use ferrovia_host::survey::sockets::ListeningSocket;

use super::finding::Unseen;
use super::selftest::Trial;
use crate::mode::{Mode, ModeRef};

/// A node, as far as it was seen.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The mode it is to run in: the configuration's, or the one whose rules are there.
    pub mode: Option<ModeRef>,
    /// What the kernel is and can do.
    pub kernel: Kernel,
    /// The families it has.
    pub families: Vec<Family>,
    /// It has an IPv6 address that others can reach.
    pub uses_ipv6: bool,
    /// Kernel settings, by the name of their file below `/proc/sys`.
    pub settings: BTreeMap<&'static str, String>,
    /// How strictly each interface looks at where packets come from.
    pub rp_filter: Vec<(String, String)>,
    /// The interfaces on which packets to 127.0.0.0/8 are routed.
    pub localnet_routed: Vec<String>,
    /// The CNI plugin portmap has rules for host ports.
    pub has_portmap: bool,
    /// Which interfaces take their routes from routers' announcements, of those that are default routes.
    pub accept_ra: Vec<(String, String)>,
    /// The table of connections.
    pub conntrack: Option<Conntrack>,
    /// The chains of all rulesets that packets enter by themselves.
    pub chains: Vec<HookedChain>,
    /// What was found of a kube-proxy and of ours.
    pub proxies: Proxies,
    /// Sockets that listen; none if it could not be told.
    pub listeners: Option<Vec<ListeningSocket>>,
    /// The processes of those that listen on a node port, by the socket's number.
    pub owners: BTreeMap<u64, String>,
    /// The node ports there are, or are to be.
    pub node_ports: Vec<NodePort>,
    /// Interfaces.
    pub links: Vec<Link>,
    /// Those that default routes go by.
    pub uplinks: BTreeSet<String>,
    /// Who runs here, as far as it matters to us.
    pub processes: Vec<Process>,
    /// What became of connections through rules of ours, if they were tried.
    pub trials: Vec<Trial>,
    /// What could not be looked at.
    pub unseen: Vec<Unseen>,
}

/// The kernel.
#[derive(Clone, Debug, Default)]
pub struct Kernel {
    /// Its release, such as `6.1.0-13-amd64`.
    pub release: String,
    /// What the nftables mode lacks; none if it could not be tried.
    pub nftables: Option<Result<(), String>>,
    /// Which tools the iptables mode would use, or what it lacks.
    pub iptables: Option<Result<String, String>>,
    /// Modules that modes need.
    pub modules: BTreeMap<&'static str, ModulePresence>,
}

/// The table of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conntrack {
    /// How many there are.
    pub used: u64,
    /// How many there can be.
    pub max: u64,
    /// What was counted, if the kernel says.
    pub totals: Option<ConntrackTotals>,
}

/// What proxies have written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies {
    /// Families with a table of ours.
    pub ours: Vec<Family>,
    /// Families with an nftables table of a kube-proxy.
    pub kube_proxy_tables: Vec<Family>,
    /// Chains of a kube-proxy, or of our own iptables mode, by the tool that shows them.
    pub iptables_chains: BTreeMap<String, usize>,
    /// The same where the tool that could remove them is missing.
    pub chains_without_tool: BTreeMap<String, usize>,
    /// The Ferrovia that writes in this network namespace.
    pub owner: Option<String>,
    /// Rulesets of iptables with rules in them, whoever wrote these.
    pub rulesets: BTreeMap<Ruleset, Vec<String>>,
}

/// A node port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodePort {
    /// The number.
    pub port: u16,
    /// Its protocol.
    pub protocol: Protocol,
    /// The Service port it is of.
    pub service: String,
}

impl Facts {
    /// A kernel setting, if it could be read.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    /// The mode is this one, or builds on it.
    pub fn is_mode(&self, mode: &dyn Mode) -> bool {
        let builds_on = self.mode.and_then(|mode| mode.builds_on());
        let mut known = self.mode.into_iter().chain(builds_on);
        known.any(|known| known.name() == mode.name())
    }

    /// The mode is this one, or may be.
    pub fn may_be(&self, mode: &dyn Mode) -> bool {
        self.mode.is_none() || self.is_mode(mode)
    }
}

impl Kernel {
    /// Major and minor version of a release such as `6.1.0-13-amd64`.
    pub fn version(&self) -> Option<(u32, u32)> {
        let mut numbers = self
            .release
            .split(|c: char| !c.is_ascii_digit())
            .map(|number| number.parse().ok());
        Some((numbers.next()??, numbers.next()??))
    }
}
