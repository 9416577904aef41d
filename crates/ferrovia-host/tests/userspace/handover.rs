//! Addresses that pass from one proxy to another.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ferrovia_core::desired::Endpoint;
use ferrovia_core::family::Family;
use ferrovia_core::model::{PortKey, Protocol, ServiceKey, TrafficPolicy};
use ferrovia_core::plan::userspace::{
    ClientFilter, ClientSources, ProxyChange, ProxyListen, ProxyName, ProxySpec,
};
use ferrovia_host::portals::{Directory, LazyEngine, Proxies, ProxySettings};
use ferrovia_lab::waiting::SOON;

use crate::support::{alone, ask, in_namespace, named_server, udp_ask, udp_client, udp_server};

const X: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8001);
const Y: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8002);

fn proxies() -> Proxies {
    let settings = ProxySettings {
        ports: None,
        udp_idle: SOON,
    };
    let (engine, directory) = (LazyEngine::default(), Directory::default());
    Proxies::new(Family::V4, settings, engine, directory)
}

fn name(service: &str, protocol: Protocol) -> ProxyName {
    ProxyName {
        key: PortKey {
            service: ServiceKey::new("default", service).unwrap(),
            name: "".into(),
            protocol,
        },
        policy: TrafficPolicy::Cluster,
    }
}

fn proxy(name: ProxyName, at: &[SocketAddr], to: SocketAddr) -> ProxySpec {
    let endpoint = Endpoint {
        ip: to.ip(),
        port: to.port(),
        weight: 1,
        is_local: true,
    };
    ProxySpec {
        name,
        listen: ProxyListen::At(at.to_vec()),
        client_filters: BTreeMap::new(),
        endpoints: [endpoint].into(),
        affinity: None,
    }
}

/// The port of the server that answers at an address.
fn answers(at: SocketAddr, protocol: Protocol) -> u16 {
    match protocol {
        Protocol::Udp => udp_ask(&udp_client(at, SOON)).unwrap(),
        _ => ask(at).unwrap(),
    }
}

#[test]
fn what_one_gives_up_another_gets_that_has_lacked_it() {
    // A program that another test starts would have copies of sockets for as long as that takes, and those of UDP count.
    let name = "handover::what_one_gives_up_another_gets_that_has_lacked_it";
    alone(name, || {
        pass_on(Protocol::Tcp, named_server);
        pass_on(Protocol::Udp, udp_server);
    });
}

fn pass_on(protocol: Protocol, server: fn() -> SocketAddr) {
    let (one, two) = (server(), server());
    let mut proxies = proxies();
    let holder = |at: &[SocketAddr]| ProxyChange::Set(proxy(name("holder", protocol), at, one));
    assert!(proxies.change(&[holder(&[X, Y])]).is_empty());
    let other = proxy(name("other", protocol), &[X], two);
    let late = proxy(name("late", protocol), &[Y], two);
    let lacking = [ProxyChange::Set(other), ProxyChange::Set(late)];
    assert_eq!(proxies.change(&lacking).len(), 2);
    assert_eq!(proxies.lacking().count(), 2);
    // Neither is in the plan that frees its address.
    assert_eq!(proxies.change(&[holder(&[Y])]).len(), 1);
    assert_eq!(answers(X, protocol), two.port());
    assert_eq!(answers(Y, protocol), one.port());
    let closed = ProxyChange::Close(name("holder", protocol));
    assert!(proxies.change(&[closed]).is_empty());
    assert!(!proxies.is_lacking());
    assert_eq!(answers(Y, protocol), two.port());
}

#[test]
fn two_may_swap() {
    in_namespace(|| {
        let (one, two) = (named_server(), named_server());
        let mut proxies = proxies();
        let mut swap = |first, second| {
            let first = proxy(name("first", Protocol::Tcp), &[first], one);
            let second = proxy(name("second", Protocol::Tcp), &[second], two);
            proxies.change(&[ProxyChange::Set(first), ProxyChange::Set(second)])
        };
        for (first, second) in [(X, Y), (Y, X), (X, Y)] {
            assert!(swap(first, second).is_empty());
            assert_eq!(ask(first).unwrap(), one.port());
            assert_eq!(ask(second).unwrap(), two.port());
        }
    });
}

#[test]
fn a_gate_leads_to_the_proxy_for_any_endpoint() {
    in_namespace(|| {
        let (local, any) = (named_server(), named_server());
        let mut proxies = proxies();
        let carrier = proxy(name("web", Protocol::Tcp), &[], any);
        let mut listener = proxy(name("web", Protocol::Tcp), &[X, Y], local);
        listener.name.policy = TrafficPolicy::Local;
        let inside = ClientSources {
            nets: [].into(),
            itself: true,
        };
        let gate = ClientFilter {
            allowed: Vec::new(),
            inside: Some(inside),
        };
        listener.client_filters.insert(X, gate);
        let both = [carrier, listener.clone()].map(ProxyChange::Set);
        assert!(proxies.change(&both).is_empty());
        assert_eq!(ask(X).unwrap(), any.port());
        assert_eq!(ask(Y).unwrap(), local.port());
        // The gate may go while the listener stays.
        listener.client_filters.clear();
        assert!(proxies.change(&[ProxyChange::Set(listener)]).is_empty());
        assert_eq!(ask(X).unwrap(), local.port());
    });
}
