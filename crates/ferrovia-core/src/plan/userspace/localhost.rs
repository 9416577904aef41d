//! Node ports on loopback through proxies, for modes whose rules cannot lead there.
//!
//! The kernel sends nothing from 127.0.0.1 to another machine unless `route_localnet` is set, and nothing at all from ::1. A proxy
//! that listens there needs neither. Clients on loopback are on this node, so they may use any endpoint whatever the external policy.

use std::net::SocketAddr;

use super::proxy::{ProxyChange, ProxyListen, ProxyName, ProxySpec, changes};
use crate::desired::{Delta, Desired, Frontend, ServicePort};
use crate::family::Family;
use crate::model::TrafficPolicy;

/// What has to change to get from the proxies that are open to the desired ones.
pub fn full(desired: &Desired, open: impl Iterator<Item = ProxyName>) -> Vec<ProxyChange> {
    let wanted = desired.ports.values();
    let wanted: Vec<ProxySpec> = wanted
        .filter_map(|port| proxy(port, desired.family))
        .collect();
    let is_wanted = |name: &ProxyName| {
        let found = wanted.binary_search_by(|proxy| proxy.name.cmp(name));
        found.is_ok()
    };
    let gone: Vec<_> = open.filter(|name| !is_wanted(name)).collect();
    let gone = gone.into_iter().map(ProxyChange::Close);
    gone.chain(wanted.into_iter().map(ProxyChange::Set))
        .collect()
}

/// What has to change for a delta.
pub fn incremental(delta: &Delta, family: Family) -> Vec<ProxyChange> {
    let proxies = |port: Option<&ServicePort>| -> Vec<ProxySpec> {
        port.and_then(|port| proxy(port, family))
            .into_iter()
            .collect()
    };
    let changed = delta.ports.iter();
    changed
        .flat_map(|change| {
            let old = proxies(change.old.as_deref());
            changes(&old, proxies(change.new.as_deref()))
        })
        .collect()
}

/// The proxy for a service port's node port; none if it has none, or no endpoints.
fn proxy(port: &ServicePort, family: Family) -> Option<ProxySpec> {
    let number = port.frontends.iter().find_map(|frontend| match frontend {
        Frontend::NodePort(number) => Some(*number),
        _ => None,
    })?;
    let listen = ProxyListen::At(vec![SocketAddr::new(family.localhost(), number)]);
    ProxySpec::of(port, TrafficPolicy::Cluster, listen)
}
