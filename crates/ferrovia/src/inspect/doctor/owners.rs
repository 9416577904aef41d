//! Whose rules these are, by the names they give to things.

use std::collections::BTreeSet;

use ferrovia_core::plan::nft::layout::{PREDECESSORS, TABLE};
use ferrovia_host::survey::chains::{HookedChain, Ruleset};

/// Somebody who writes rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// This proxy's nftables mode.
    Ferrovia,
    /// A kube-proxy, or this proxy's iptables mode, which uses the same names.
    KubeProxy,
    /// The kubelet.
    Kubelet,
    /// A firewall that people configure.
    Firewall(&'static str),
    /// The cluster's network, which lets pods' traffic pass by itself.
    Network(&'static str),
    /// Something else that runs containers or machines.
    Containers(&'static str),
}

impl Owner {
    /// As people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ferrovia => "Ferrovia",
            Self::KubeProxy => "kube-proxy",
            Self::Kubelet => "the kubelet",
            Self::Firewall(name) | Self::Network(name) | Self::Containers(name) => name,
        }
    }
}

/// The CNI plugin that makes host ports work.
pub const PORTMAP: Owner = Owner::Containers("the CNI plugin portmap");

/// Whole names of chains first, then what names begin with.
const CHAINS: [(&str, Owner); 26] = [
    ("KUBE-FIREWALL", Owner::Kubelet),
    ("KUBE-IPTABLES-HINT", Owner::Kubelet),
    ("KUBE-KUBELET-CANARY", Owner::Kubelet),
    ("KUBE-MARK-DROP", Owner::Kubelet),
    ("KUBE-ROUTER-", Owner::Network("kube-router")),
    ("KUBE-NWPLCY-", Owner::Network("kube-router")),
    ("KUBE-POD-FW-", Owner::Network("kube-router")),
    ("KUBE-", Owner::KubeProxy),
    ("DOCKER", Owner::Containers("Docker")),
    ("NETAVARK", Owner::Containers("Podman")),
    ("LIBVIRT_", Owner::Containers("libvirt")),
    ("LXC", Owner::Containers("LXC")),
    ("CNI-HOSTPORT", PORTMAP),
    ("CNI-DN-", PORTMAP),
    ("CNI-ADMIN", Owner::Network("the CNI plugin firewall")),
    ("CNI-FORWARD", Owner::Network("the CNI plugin firewall")),
    ("CNI-", Owner::Network("a CNI plugin")),
    ("FLANNEL-", Owner::Network("Flannel")),
    ("cali-", Owner::Network("Calico")),
    ("CILIUM_", Owner::Network("Cilium")),
    ("ANTREA-", Owner::Network("Antrea")),
    ("WEAVE", Owner::Network("Weave Net")),
    ("AWS-", Owner::Network("the Amazon VPC network")),
    ("ufw", Owner::Firewall("ufw")),
    ("f2b-", Owner::Firewall("fail2ban")),
    ("IN_public", Owner::Firewall("firewalld")),
];

/// What tables of nftables begin with.
const TABLES: [(&str, Owner); 9] = [
    ("firewalld", Owner::Firewall("firewalld")),
    ("docker", Owner::Containers("Docker")),
    ("libvirt", Owner::Containers("libvirt")),
    ("netavark", Owner::Containers("Podman")),
    ("cni_hostport", PORTMAP),
    ("flannel", Owner::Network("Flannel")),
    ("calico", Owner::Network("Calico")),
    ("cilium", Owner::Network("Cilium")),
    ("antrea", Owner::Network("Antrea")),
];

/// Those who can be told to have rules in a chain or in what it leads to.
pub fn owners(chain: &HookedChain) -> BTreeSet<Owner> {
    if chain.ruleset == Ruleset::Nftables {
        if chain.table == TABLE {
            return [Owner::Ferrovia].into();
        }
        if PREDECESSORS.contains(&chain.table.as_str()) {
            return [Owner::KubeProxy].into();
        }
    }
    let by_table = known(&TABLES, &chain.table);
    let by_chain = chain
        .leads_to
        .iter()
        .filter_map(|name| known(&CHAINS, name));
    by_table.into_iter().chain(by_chain).collect()
}

/// Who makes iptables chains of this name, if that is known.
pub fn owner_of_chain(name: &str) -> Option<Owner> {
    known(&CHAINS, name)
}

fn known(names: &[(&str, Owner)], name: &str) -> Option<Owner> {
    let found = names.iter().find(|(known, _)| name.starts_with(known));
    found.map(|(_, owner)| *owner)
}

/// A chain as people find it with their tools, and whose it is.
pub fn described(chain: &HookedChain, owners: &BTreeSet<Owner>) -> String {
    let of = match chain.families.as_slice() {
        [family] if chain.ruleset == Ruleset::Nftables => family.nft_name(),
        [family] => family.legacy_name(),
        _ => "inet",
    };
    let place = format!("chain {} of {of} {}", chain.name, chain.table);
    if owners.is_empty() {
        return place;
    }
    let names: Vec<_> = owners.iter().map(|owner| owner.name()).collect();
    format!("{place} (rules of {})", names.join(" and "))
}

/// What the tools call a family.
trait ToolName {
    fn nft_name(self) -> &'static str;
    fn legacy_name(self) -> &'static str;
}

impl ToolName for ferrovia_core::family::Family {
    fn nft_name(self) -> &'static str {
        match self {
            Self::V4 => "ip",
            Self::V6 => "ip6",
        }
    }

    fn legacy_name(self) -> &'static str {
        match self {
            Self::V4 => "iptables-legacy",
            Self::V6 => "ip6tables-legacy",
        }
    }
}
