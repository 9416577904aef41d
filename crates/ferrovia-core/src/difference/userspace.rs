//! A plan of the userspace mode as differences: addresses, listeners, and the rules that lead to them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use super::Difference;
use crate::plan::iptables::IptablesObserved as Rules;
use crate::plan::userspace::{
    ProxyChange, ProxyListen, ProxyName, ProxySpec, UserspaceObserved, UserspacePlan,
};

/// Where each proxy that is open listens.
pub type Listeners = BTreeMap<ProxyName, Vec<SocketAddr>>;

/// What a full plan would change in what was found.
pub fn differences(
    plan: &UserspacePlan,
    observed: &UserspaceObserved,
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
fn of_proxy(proxy: &ProxySpec, listeners: &Listeners) -> Option<Difference> {
    let there = listeners.get(&proxy.name);
    let there: BTreeSet<SocketAddr> = there.into_iter().flatten().copied().collect();
    let (found, wanted) = match &proxy.listen {
        // Any port will do: rules follow it.
        ProxyListen::Portal(ip) if there.iter().any(|at| at.ip() == *ip) => return None,
        ProxyListen::Portal(ip) => (Vec::new(), vec![format!("{ip}, some port")]),
        ProxyListen::At(wanted) => {
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

#[cfg(test)]
mod tests {
    use super::super::DifferenceKind;
    use super::*;
    use crate::model::{PortKey, Protocol, ServiceKey, TrafficPolicy};

    fn named(name: &str) -> ProxyName {
        ProxyName {
            key: PortKey {
                service: ServiceKey::from_checked_names("default", name),
                name: "".into(),
                protocol: Protocol::Tcp,
            },
            policy: TrafficPolicy::Cluster,
        }
    }

    fn wanted(name: &str, listen: ProxyListen) -> ProxyChange {
        ProxyChange::Set(ProxySpec {
            name: named(name),
            listen,
            client_filters: BTreeMap::new(),
            endpoints: [].into(),
            affinity: None,
        })
    }

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn listeners_and_addresses_are_compared() {
        let mut plan = UserspacePlan::default();
        plan.new_addresses = vec!["10.96.0.10".parse().unwrap()];
        plan.old_addresses = vec!["10.96.0.11".parse().unwrap()];
        let any = "0.0.0.0".parse().unwrap();
        plan.proxies = vec![
            wanted("there", ProxyListen::Portal(any)),
            wanted("closed", ProxyListen::Portal(any)),
            wanted(
                "moved",
                ProxyListen::At(vec![at("10.96.0.10:80"), at("10.96.0.12:80")]),
            ),
            ProxyChange::Close(named("gone")),
        ];
        let listeners = Listeners::from([
            (named("there"), vec![at("0.0.0.0:40001")]),
            (
                named("moved"),
                vec![at("10.96.0.10:80"), at("10.96.0.13:80")],
            ),
            (named("gone"), vec![at("10.96.0.14:80")]),
        ]);
        let collected = differences(&plan, &UserspaceObserved::default(), &listeners);
        let collected: Vec<_> = collected
            .iter()
            .map(|it| (it.kind, it.place.as_str(), it.found.len(), it.wanted.len()))
            .collect();
        assert_eq!(
            collected,
            [
                (DifferenceKind::Missing, "address 10.96.0.10", 0, 1),
                (DifferenceKind::Foreign, "address 10.96.0.11", 1, 0),
                (DifferenceKind::Missing, "listener default/closed/tcp", 0, 1),
                (DifferenceKind::Wrong, "listener default/moved/tcp", 1, 1),
                (DifferenceKind::Foreign, "listener default/gone/tcp", 1, 0),
            ]
        );
    }
}
