//! A plan of the userspace mode as differences: addresses, listeners, and the rules that lead to them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use super::Difference;
use crate::plan::iptables::Observed as Rules;
use crate::plan::userspace::{Listen, Observed, Proxy, ProxyChange, ProxyName, UserspacePlan};

/// Where each proxy that is open listens.
pub type Listeners = BTreeMap<ProxyName, Vec<SocketAddr>>;

/// What a full plan would change in what was found.
pub fn differences(
    plan: &UserspacePlan,
    observed: &Observed,
    listeners: &Listeners,
) -> Vec<Difference> {
    let address = |ip: &std::net::IpAddr| (format!("address {ip}"), vec![ip.to_string()]);
    let missing = plan.new_addresses.iter().map(address);
    let missing = missing.map(|(place, wanted)| Difference::new(place, Vec::new(), wanted));
    let foreign = plan.old_addresses.iter().map(address);
    let foreign = foreign.map(|(place, found)| Difference::new(place, found, Vec::new()));
    let proxies = plan.proxies.iter().filter_map(|change| match change {
        ProxyChange::Set(proxy) => of_proxy(proxy, listeners),
        ProxyChange::Close(name) => {
            let found = listeners.get(name).into_iter().flatten();
            let found = found.map(ToString::to_string).collect();
            Some(Difference::new(place(name), found, Vec::new()))
        }
    });
    let ports: BTreeMap<String, u16> = (observed.open.iter())
        .filter_map(|(name, port)| Some((name.to_string(), (*port)?)))
        .collect();
    let rules = plan.rules.with_ports(|name| ports.get(name).copied());
    let found = Rules {
        save: observed.save.clone(),
    };
    let mut all: Vec<Difference> = missing.chain(foreign).chain(proxies).collect();
    all.extend(super::iptables::differences(&rules, &found));
    all
}

fn place(name: &ProxyName) -> String {
    format!("listener {name}")
}

/// Where a proxy should listen and does not, or does and should not.
fn of_proxy(proxy: &Proxy, listeners: &Listeners) -> Option<Difference> {
    let there = listeners.get(&proxy.name);
    let there: BTreeSet<SocketAddr> = there.into_iter().flatten().copied().collect();
    let (found, wanted) = match &proxy.listen {
        // Any port will do: rules follow it.
        Listen::Portal(ip) if there.iter().any(|at| at.ip() == *ip) => return None,
        Listen::Portal(ip) => (Vec::new(), vec![format!("{ip}, some port")]),
        Listen::At(wanted) => {
            let wanted: BTreeSet<SocketAddr> = wanted.iter().copied().collect();
            let only = |a: &BTreeSet<SocketAddr>, b: &BTreeSet<SocketAddr>| {
                a.difference(b).map(ToString::to_string).collect()
            };
            (only(&there, &wanted), only(&wanted, &there))
        }
    };
    let same = found.is_empty() && wanted.is_empty();
    (!same).then(|| Difference::new(place(&proxy.name), found, wanted))
}
