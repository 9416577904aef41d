//! What listens, kept as plans want it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ferrovia_core::model::Protocol;
use ferrovia_core::plan::userspace::{ProxyChange, ProxyListen, ProxyName, ProxySpec};

use super::listener::Listener;
use super::service::{ConnectionLimit, WindowsService};

#[cfg(test)]
mod tests;

/// How many connections and flows there may be. A connection has two threads.
const MOST_CLIENTS: usize = 2000;

#[derive(Debug)]
pub(super) struct WindowsProxies {
    open: BTreeMap<ProxyName, OpenProxy>,
    udp_idle: Duration,
    room: ConnectionLimit,
}

/// A proxy, with all addresses it should listen on; at those without a listener it cannot.
#[derive(Debug)]
struct OpenProxy {
    protocol: Protocol,
    service: Arc<WindowsService>,
    listeners: BTreeMap<SocketAddr, Option<Listener>>,
}

impl WindowsProxies {
    pub(super) fn new(udp_idle: Duration) -> Self {
        Self {
            open: BTreeMap::new(),
            udp_idle,
            room: ConnectionLimit::of(MOST_CLIENTS),
        }
    }

    /// Closes, opens and changes what a plan wants. What cannot be listened on is reported once, and the rest is done.
    pub(super) fn change(&mut self, changes: &[ProxyChange]) {
        // An address may pass from one proxy to another, so all that go are given up before the first is taken.
        for change in changes {
            match change {
                ProxyChange::Close(name) => drop(self.open.remove(name)),
                ProxyChange::Set(proxy) => self.give_up_addresses(proxy),
            }
        }
        for change in changes {
            if let ProxyChange::Set(proxy) = change {
                self.set(proxy);
            }
        }
        self.retry();
    }

    /// Tries again what could not be listened on before.
    pub(super) fn retry(&mut self) {
        for open in self.open.values_mut() {
            let lacking = open.listeners.iter_mut().filter(|(_, ear)| ear.is_none());
            for (at, ear) in lacking {
                *ear = Listener::open(open.protocol, *at, Arc::clone(&open.service)).ok();
            }
        }
    }

    /// Some proxy does not listen everywhere it should.
    pub(super) fn is_lacking(&self) -> bool {
        let mut all = self.open.values().flat_map(|open| open.listeners.values());
        all.any(Option::is_none)
    }

    /// The proxies that are open. No rules lead to any port of theirs.
    pub(super) fn open(&self) -> BTreeMap<ProxyName, Option<u16>> {
        self.open.keys().map(|name| (name.clone(), None)).collect()
    }

    fn give_up_addresses(&mut self, proxy: &ProxySpec) {
        if let Some(open) = self.open.get_mut(&proxy.name) {
            let is_wanted = |at: &SocketAddr| addresses(proxy).any(|wanted| wanted == *at);
            open.listeners.retain(|at, _| is_wanted(at));
        }
    }

    /// It knows its endpoints before it has the first client.
    fn set(&mut self, proxy: &ProxySpec) {
        let open = self
            .open
            .entry(proxy.name.clone())
            .or_insert_with(|| OpenProxy {
                protocol: proxy.name.key.protocol,
                service: Arc::new(WindowsService::new(
                    proxy.name.to_string(),
                    self.udp_idle,
                    self.room.clone(),
                )),
                listeners: BTreeMap::new(),
            });
        open.service.set(proxy);
        for at in addresses(proxy) {
            open.listeners.entry(at).or_insert_with(|| {
                let opened = Listener::open(open.protocol, at, Arc::clone(&open.service));
                opened
                    .inspect_err(|error| {
                        tracing::warn!(proxy = %proxy.name, address = %at, err = %error, "Failed to listen for service; retrying at the next sync");
                    })
                    .ok()
            });
        }
    }
}

/// Where it should listen. Clients are not checked, so not where some are rejected; and not on a port that only rules would redirect to, because
/// there are no rules.
fn addresses(proxy: &ProxySpec) -> impl Iterator<Item = SocketAddr> {
    let all: &[SocketAddr] = match &proxy.listen {
        ProxyListen::At(addresses) => addresses,
        ProxyListen::Portal(_) => &[],
    };
    let gate = |at: &SocketAddr| proxy.client_filters.get(at);
    let is_for_all = move |at: &SocketAddr| gate(at).is_none_or(|gate| gate.allowed.is_empty());
    all.iter().copied().filter(is_for_all)
}
