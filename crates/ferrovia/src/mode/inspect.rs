//! Looking without touching: what a mode would change, and what of it is in the kernel.

use std::net::SocketAddr;

use ferrovia_core::desired::{Delta, Desired};
use ferrovia_core::dialect::ipvs::{IpvsDestination, IpvsOp, VirtualServerKey};
use ferrovia_core::difference::userspace::Listeners;
use ferrovia_core::difference::{self, Difference};
use ferrovia_core::family::Family;
use ferrovia_core::plan::iptables::{IptablesOptions, IptablesPlanner};
use ferrovia_core::plan::nft::NftPlanner;
use ferrovia_core::plan::nft::layout::{PREDECESSORS, TABLE};
use ferrovia_core::plan::nft::packet_lookup::lookup_packet;
use ferrovia_core::plan::{ObservedPolicy, Planner, userspace};
use ferrovia_core::trace::Trace;
use ferrovia_core::trace::in_kernel::{self, KernelObject};
use ferrovia_host::Applier as _;
use ferrovia_host::iptables::{self as tools, AcctCounter, AcctCounters, IptablesApplier, Tool};
use ferrovia_host::ipvs::{Ipvs, IpvsApplier};
use ferrovia_host::nft::Nft;
use ferrovia_host::portals::{Directory, interface};
use ferrovia_host::survey::sockets::{self, ListeningSocket};

use super::{IptablesSettings, UserspaceMode};
use crate::config::IpvsSettings;
use crate::sync::backend::SyncError;

/// What a planner that has written one state writes for another.
pub(super) fn change<P: Planner>(
    mut planner: P,
    nothing: &P::Observed,
    (old, new): (&Desired, &Desired),
    delta: &Delta,
) -> String {
    planner.full(old, nothing, ObservedPolicy::Adopt);
    planner.incremental(new, delta).to_string()
}

/// Our table against what is wanted.
pub(super) fn nftables(desired: &Desired, counters: bool) -> Result<Vec<Difference>, SyncError> {
    let family = desired.family;
    let observed = Nft::open()?.observe(family, TABLE, &PREDECESSORS)?;
    let plan = NftPlanner::new(family, counters).full(desired, &observed, ObservedPolicy::Adopt);
    Ok(difference::nft::differences(&plan, &observed))
}

/// The iptables chains against what is wanted.
pub(super) fn iptables(
    desired: &Desired,
    settings: IptablesSettings,
) -> Result<Vec<Difference>, SyncError> {
    let family = desired.family;
    let observed = observe_iptables(family)?;
    let has = |counter| AcctCounters::open().is_ok_and(|mut c| c.packets(counter).is_ok());
    let options = IptablesOptions {
        drop_invalid: !tools::is_liberal(),
        // Whoever wrote the rules made the counters first; we make none.
        count_invalid: has(AcctCounter::Invalid),
        count_localhost: has(AcctCounter::Localhost),
        ..settings.options()
    };
    let plan =
        IptablesPlanner::new(family, options).full(desired, &observed, ObservedPolicy::Adopt);
    Ok(difference::iptables::differences(&plan, &observed))
}

/// The ipvs mode's servers, sets, rules and addresses against what is wanted.
pub(super) fn ipvs(
    desired: &Desired,
    settings: &IpvsSettings,
) -> Result<Vec<Difference>, SyncError> {
    let family = desired.family;
    let observed = IpvsApplier::new(tool(family)?)?.observe()?;
    let plan =
        super::ipvs::planner(settings, family).full(desired, &observed, ObservedPolicy::Adopt);
    Ok(difference::ipvs::differences(&plan, &observed))
}

/// The userspace mode's addresses, listeners and rules against what is wanted. Only the process that listens knows its proxies.
pub(super) fn userspace(
    desired: &Desired,
    mode: &UserspaceMode,
    proxies: &Directory,
) -> Result<Vec<Difference>, SyncError> {
    let family = desired.family;
    let open = proxies.services().into_iter();
    let open = open.filter(|(_, of, _)| *of == family);
    let listeners: Listeners = open
        .map(|(name, _, service)| (name, service.listeners()))
        .collect();
    let port = |at: &[SocketAddr]| at.first().map(SocketAddr::port);
    let ports = listeners
        .iter()
        .map(|(name, at)| (name.clone(), port(at).filter(|_| !mode.binds())));
    let mut observed = userspace::UserspaceObserved {
        open: ports.collect(),
        ..userspace::UserspaceObserved::default()
    };
    // Of an interface that is not ours nobody can say which addresses should not be there.
    let mut is_own = false;
    if mode.binds() {
        (observed.addresses, is_own) = interface::addresses_on(&mode.interface(), family)?;
    } else {
        observed.save = observe_iptables(family)?.save;
    }
    let mut plan = mode
        .planner_here(family)
        .full(desired, &observed, ObservedPolicy::Adopt);
    plan.old_addresses.retain(|_| is_own);
    Ok(difference::userspace::differences(
        &plan, &observed, &listeners,
    ))
}

/// The virtual server a packet meets, with its destinations.
pub(super) fn ipvs_objects(trace: &Trace) -> Result<Vec<KernelObject>, SyncError> {
    let packet = &trace.packet;
    let key = VirtualServerKey {
        address: packet.destination,
        port: packet.port,
        protocol: packet.protocol,
    };
    let mut ipvs = Ipvs::open()?;
    let servers = ipvs.servers(Family::of(key.address))?;
    let Some(found) = servers.into_iter().find(|found| found.server.key == key) else {
        return Ok(Vec::new());
    };
    let place = format!("virtual server {key}");
    let mut objects = vec![KernelObject {
        place: place.clone(),
        text: IpvsOp::PutServer(found.server).to_string(),
    }];
    objects.extend(ipvs.destinations(&key)?.into_iter().map(|to| {
        let destination = IpvsDestination {
            address: to.address,
            weight: to.weight,
        };
        KernelObject {
            place: place.clone(),
            text: format!(
                "{} ({} connections)",
                IpvsOp::PutDestination(key, destination),
                to.active
            ),
        }
    }));
    Ok(objects)
}

/// The elements and chains a packet meets.
pub(super) fn nft_objects(trace: &Trace) -> Result<Vec<KernelObject>, SyncError> {
    let family = Family::of(trace.packet.destination);
    let mut nft = Nft::open()?;
    let observed = lookup_packet(family, in_kernel::nft_destination(trace), |set, keys| {
        nft.look_up(family, TABLE, &set.spec(family), keys)
    })?;
    Ok(in_kernel::nft_objects(trace, &observed))
}

/// The sockets that take a packet where no rule leads it anywhere.
pub(super) fn listeners(trace: &Trace) -> Result<Vec<KernelObject>, SyncError> {
    let packet = &trace.packet;
    let takes = |listener: &ListeningSocket| {
        let is_addressed = listener.address == packet.destination
            || listener.address.is_unspecified()
                && Family::of(listener.address) == Family::of(packet.destination);
        listener.protocol == packet.protocol && listener.port == packet.port && is_addressed
    };
    let found = sockets::listeners()?.into_iter().filter(takes);
    let object = |listener: ListeningSocket| KernelObject {
        place: format!("{} socket", listener.protocol),
        text: format!(
            "listens on {}",
            SocketAddr::new(listener.address, listener.port)
        ),
    };
    Ok(found.map(object).collect())
}

/// The rules a packet meets.
pub(super) fn iptables_objects(trace: &Trace) -> Result<Vec<KernelObject>, SyncError> {
    let observed = observe_iptables(Family::of(trace.packet.destination))?;
    Ok(in_kernel::iptables_objects(trace, &observed.save))
}

fn observe_iptables(
    family: Family,
) -> Result<ferrovia_core::plan::iptables::IptablesObserved, SyncError> {
    Ok(IptablesApplier::new(tool(family)?).observe()?)
}

fn tool(family: Family) -> Result<Tool, SyncError> {
    let tool = tools::detect(&[family])?.tools[family].take();
    Ok(tool.ok_or_else(|| format!("there are no {family} iptables tools"))?)
}
