//! Looks at the node: the one place where facts come from.

use std::collections::BTreeMap;
use std::process;

use ferrovia_core::dialect::iptables::parse;
use ferrovia_core::family::Family;
use ferrovia_core::model::Protocol;
use ferrovia_core::plan::nft::layout::{PREDECESSORS, TABLE};
use ferrovia_core::plan::nft::view::ServiceTableView;
use ferrovia_host::iptables::{Backend, RemovedWith, Saved, find_leftovers, legacy_tables, saved};
use ferrovia_host::nft::Nft;
use ferrovia_host::survey::chains::{Ruleset, of_saved};
use ferrovia_host::survey::modules::Modules;
use ferrovia_host::survey::processes::Process;
use ferrovia_host::survey::{flows, links, processes, routes, settings, sockets};
use ferrovia_host::{addr, owner, probe};

use super::facts::{Conntrack, Facts, NodePort};
use super::finding::Unseen;
use super::owners::{PORTMAP, owner_of_chain, owners};
use super::selftest;
use crate::mode::{self, ModeRef};

/// The kernel settings that some check looks at.
const SETTINGS: [&str; 9] = [
    "net/ipv4/ip_forward",
    "net/ipv6/conf/all/forwarding",
    "net/ipv4/conf/all/arp_ignore",
    "net/ipv4/conf/all/arp_announce",
    "net/ipv4/ip_local_port_range",
    "net/ipv4/ip_local_reserved_ports",
    "net/bridge/bridge-nf-call-iptables",
    "net/netfilter/nf_conntrack_tcp_be_liberal",
    "net/netfilter/nf_conntrack_helper",
];

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The mode of the configuration.
    pub mode: Option<ModeRef>,
    /// The node ports of the objects given; none to take those of our rules in the kernel.
    pub node_ports: Option<Vec<NodePort>>,
    /// Make connections in a namespace of their own.
    pub self_test: bool,
}

/// Looks at this node, in the network namespace of this thread. Changes nothing.
pub fn gather(asked: &Asked) -> Facts {
    let mut facts = Facts {
        mode: asked.mode,
        families: probe::supported_families(),
        node_ports: asked.node_ports.clone().unwrap_or_default(),
        ..Facts::default()
    };
    look_at_kernel(&mut facts);
    look_at_settings(&mut facts);
    look_at_links(&mut facts);
    look_at_conntrack(&mut facts);
    look_at_tables(&mut facts, asked.node_ports.is_none());
    look_at_iptables(&mut facts);
    look_at_processes(&mut facts);
    look_at_sockets(&mut facts);
    if asked.self_test {
        try_connections(&mut facts);
    }
    // Without a configured mode it is the one whose rules are in force.
    if facts.mode.is_none() {
        let mut modes = mode::ALL.into_iter();
        facts.mode = modes.find(|mode| mode.is_in_force(&facts));
    }
    facts
}

impl Facts {
    fn could_not_see(&mut self, what: &str, why: impl Into<String>, essential: bool) {
        self.unseen.push(Unseen {
            what: what.to_owned(),
            why: why.into(),
            essential,
        });
    }
}

fn look_at_kernel(facts: &mut Facts) {
    facts.kernel.release = settings::read("kernel/osrelease").unwrap_or_default();
    match probe::nftables(&facts.families) {
        Ok(()) => facts.kernel.nftables = Some(Ok(())),
        Err(error @ (probe::Error::NoNetAdmin | probe::Error::Unreadable { .. })) => {
            facts.could_not_see(
                "whether the kernel can do the nftables mode",
                error.to_string(),
                true,
            );
        }
        Err(error) => facts.kernel.nftables = Some(Err(error.to_string())),
    }
    let modules = Modules::read();
    let presence = |name| (name, modules.presence(name));
    let needed = mode::ALL.into_iter().flat_map(|mode| mode.kernel_modules());
    facts.kernel.modules = needed.copied().map(presence).collect();
}

fn look_at_settings(facts: &mut Facts) {
    let read = |name| Some((name, settings::read(name).ok()?));
    facts.settings = SETTINGS.into_iter().filter_map(read).collect();
    facts.rp_filter = settings::of_interfaces("net/ipv4/conf", "rp_filter");
    let routed = settings::of_interfaces("net/ipv4/conf", "route_localnet");
    facts.localnet_routed = routed
        .into_iter()
        .filter(|(interface, value)| value == "1" && interface != "default")
        .map(|(interface, _)| interface)
        .collect();
}

fn look_at_links(facts: &mut Facts) {
    match links::links() {
        Ok(links) => facts.links = links,
        Err(error) => facts.could_not_see("the network interfaces", error.to_string(), true),
    }
    facts.uplinks = routes::default_interfaces();
    facts.accept_ra = settings::of_interfaces("net/ipv6/conf", "accept_ra");
    facts
        .accept_ra
        .retain(|(interface, _)| facts.uplinks.contains(interface));
    let addresses = addr::local_addresses().unwrap_or_default();
    let mut addresses = addresses.iter();
    facts.uses_ipv6 = addresses.any(|ip| ip.is_ipv6() && !ip.is_loopback());
}

fn look_at_conntrack(facts: &mut Facts) {
    match flows::fill() {
        Ok((used, max)) => {
            facts.conntrack = Some(Conntrack {
                used,
                max,
                totals: flows::totals().ok(),
            });
        }
        Err(error) => facts.could_not_see(
            "how full connection tracking is",
            format!("{error} (it is loaded with the first rule that needs it)"),
            false,
        ),
    }
}

/// nf_tables: our own table, a kube-proxy's, and everybody's chains.
fn look_at_tables(facts: &mut Facts, with_node_ports: bool) {
    let what = "nftables rules, ours and others'";
    let mut nft = match Nft::open().and_then(|mut nft| nft.generation().map(|_| nft)) {
        Ok(nft) => nft,
        Err(error) => return facts.could_not_see(what, error.to_string(), true),
    };
    for family in Family::ALL {
        match nft.observe(family, TABLE, &PREDECESSORS) {
            Ok(observed) => {
                if observed.exists {
                    facts.proxies.ours.push(family);
                }
                if !observed.predecessors.is_empty() {
                    facts.proxies.kube_proxy_tables.push(family);
                }
                if with_node_ports {
                    facts
                        .node_ports
                        .extend(node_ports(&ServiceTableView::of(&observed)));
                }
            }
            Err(error) => {
                facts.could_not_see(&format!("our {family} table"), error.to_string(), true);
            }
        }
    }
    facts.node_ports.sort_unstable();
    facts.node_ports.dedup();
    match nft.hooked_chains() {
        Ok(chains) => facts.chains.extend(chains),
        Err(error) => facts.could_not_see(what, error.to_string(), true),
    }
}

/// The node ports that are in force.
fn node_ports(view: &ServiceTableView) -> impl Iterator<Item = NodePort> {
    let frontends = view.frontends.iter();
    frontends
        .filter(|frontend| frontend.address.is_none())
        .filter_map(|frontend| {
            let mut protocols = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp].into_iter();
            Some(NodePort {
                port: frontend.port,
                protocol: protocols.find(|known| known.number() == frontend.protocol)?,
                service: frontend.service.to_string(),
            })
        })
}

fn look_at_iptables(facts: &mut Facts) {
    // Without the right to read rules, the tools only say so.
    if facts.kernel.nftables.is_none() {
        return facts.could_not_see("iptables rules", "reading them needs CAP_NET_ADMIN", true);
    }
    let rulesets = saved();
    facts.kernel.iptables = Some(tools(&facts.families, &rulesets));
    for ruleset in &rulesets {
        look_at_saved(facts, ruleset);
    }
    look_for_leftovers(facts);
    let by_portmap = |chain| owners(chain).contains(&PORTMAP);
    facts.has_portmap = facts.chains.iter().any(by_portmap) || has_legacy_portmap();
}

/// Chains of a kube-proxy, found with or without tools.
fn look_for_leftovers(facts: &mut Facts) {
    let found = find_leftovers().unwrap_or_else(|error| {
        facts.could_not_see("iptables rules of a kube-proxy", error.to_string(), true);
        error.removed
    });
    let counted = |rulesets: Vec<RemovedWith>| {
        let chains = rulesets.into_iter().filter(|ruleset| !ruleset.is_empty());
        chains
            .map(|ruleset| (ruleset.tool, ruleset.chains))
            .collect()
    };
    facts.proxies.iptables_chains = counted(found.tools);
    facts.proxies.chains_without_tool = counted(found.left);
}

/// Without the tool the legacy chains are not among those that packets were seen to enter.
fn has_legacy_portmap() -> bool {
    let tables = legacy_tables(Family::V4).unwrap_or_default();
    let mut chains = tables.iter().flat_map(|table| &table.chains);
    chains.any(|(chain, _)| owner_of_chain(chain) == Some(PORTMAP))
}

/// The tools that the iptables mode could use, or what is missing.
fn tools(families: &[Family], rulesets: &[Saved]) -> Result<String, String> {
    let has_tool = |family: &Family| rulesets.iter().any(|ruleset| ruleset.family == *family);
    match families.iter().find(|family| !has_tool(family)) {
        Some(family) => Err(format!("there are no {family} tools on PATH")),
        None => {
            let tools: Vec<_> = rulesets
                .iter()
                .map(|ruleset| ruleset.tool.as_str())
                .collect();
            Ok(tools.join(", "))
        }
    }
}

fn look_at_saved(facts: &mut Facts, ruleset: &Saved) {
    let text = match &ruleset.text {
        Ok(text) => text,
        Err(error) => {
            let what = format!("the rules of {}", ruleset.tool);
            return facts.could_not_see(&what, error.to_string(), true);
        }
    };
    let kind = match ruleset.backend {
        Backend::Legacy => Ruleset::Legacy,
        _ => Ruleset::Nftables,
    };
    // The chains of the other ruleset were read from the kernel itself.
    if kind == Ruleset::Legacy {
        facts.chains.extend(of_saved(ruleset.family, text));
    }
    if parse(text).iter().any(|table| !table.rules.is_empty()) {
        let tools = facts.proxies.rulesets.entry(kind).or_default();
        tools.push(ruleset.tool.clone());
    }
}

fn look_at_processes(facts: &mut Facts) {
    let ours = process::id();
    // Who may not ask nf_tables has heard so already.
    let owner = owner::holder().ok().flatten();
    facts.proxies.owner = owner.map(|owner| owner.to_string());
    facts.processes = processes::of_this_network();
    facts
        .processes
        .retain(|process| process.pid != ours && !is_command(process));
    if processes::are_partly_hidden() {
        let why = "only some of the machine's processes can be seen from here; root can, and in a container hostPID shows them";
        facts.could_not_see("other proxies and firewalls by their processes", why, false);
    }
}

/// It is one of our commands, such as this one, and not the daemon.
fn is_command(process: &Process) -> bool {
    if process.name != "ferrovia" {
        return false;
    }
    let arguments = processes::arguments(process);
    let first = arguments.first();
    first.is_some_and(|first| !first.starts_with('-') && first != "run")
}

fn look_at_sockets(facts: &mut Facts) {
    if facts.node_ports.is_empty() {
        return;
    }
    match sockets::listeners() {
        Ok(mut listeners) => {
            let node_ports = &facts.node_ports;
            listeners.retain(|one| node_ports.iter().any(|port| port.port == one.port));
            let inodes: Vec<u64> = listeners.iter().map(|one| one.inode).collect();
            let owners: BTreeMap<_, _> = sockets::owners(&inodes).into_iter().collect();
            facts.owners = owners;
            facts.listeners = Some(listeners);
        }
        Err(error) => facts.could_not_see("who listens on node ports", error.to_string(), true),
    }
}

fn try_connections(facts: &mut Facts) {
    let what = "whether connections through our rules work";
    // It needs the nftables mode; that it cannot work is told already.
    match facts.kernel.nftables {
        Some(Ok(())) => {}
        Some(Err(_)) => return facts.could_not_see(what, "the kernel lacks what it needs", false),
        None => {
            return facts.could_not_see(what, "that needs CAP_NET_ADMIN and CAP_SYS_ADMIN", true);
        }
    }
    match selftest::run(&facts.families) {
        Ok(trials) => facts.trials = trials,
        Err(error) if error.is_denied() => {
            facts.could_not_see(what, format!("{error}; that needs CAP_SYS_ADMIN"), true);
        }
        Err(error) => facts.could_not_see(what, error.to_string(), true),
    }
}
