//! The engine's services, kept as plans want them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ferrovia_core::family::Family;
use ferrovia_core::model::{Protocol as Transport, TrafficPolicy};
use ferrovia_core::plan::userspace::{ProxyChange, ProxyListen, ProxyName, ProxySpec};

use crate::locked;
use crate::userspace::{
    self, Address, AddressPresence, Endpoint, Engine, Gate, Options, Protocol, Service, Sources,
};

/// How long connections may go on to an endpoint that is none any more: long enough for all but the longest, short enough to end.
const DRAIN: Duration = Duration::from_secs(600);

/// The pauses after which an address that one proxy gave up, and that is still taken, is tried again for another.
const HANDOVER: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_millis(2),
    Duration::from_millis(10),
    Duration::from_millis(50),
];

/// What holds for all proxies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxySettings {
    /// The ports that rules may lead to; without any the kernel chooses.
    pub ports: Option<RangeInclusive<u16>>,
    /// How long a flow of datagrams lives without any.
    pub udp_idle: Duration,
}

/// An engine that starts when it is first needed: its threads have the network namespace and the privileges of the thread that starts it.
#[derive(Clone, Debug, Default)]
pub struct LazyEngine(Arc<Mutex<Option<Arc<Engine>>>>);

impl LazyEngine {
    fn get(&self) -> Result<Arc<Engine>, userspace::Error> {
        let mut engine = locked(&self.0);
        if let Some(engine) = &*engine {
            return Ok(Arc::clone(engine));
        }
        let started = Arc::new(Engine::start(&Options::default())?);
        *engine = Some(Arc::clone(&started));
        Ok(started)
    }
}

/// All open proxies of both families, for those who read figures.
#[derive(Clone, Debug, Default)]
pub struct Directory(Arc<Mutex<Services>>);

type Services = BTreeMap<(ProxyName, Family), Arc<Service>>;

impl Directory {
    /// The proxies that are open now, in the order of their names.
    pub fn services(&self) -> Vec<(ProxyName, Family, Arc<Service>)> {
        let all = locked(&self.0);
        let all = all.iter();
        all.map(|((name, family), service)| (name.clone(), *family, Arc::clone(service)))
            .collect()
    }
}

/// A proxy could not be opened where it should be.
#[derive(Debug)]
pub struct Trouble {
    pub proxy: ProxyName,
    /// Where not, and why.
    pub error: userspace::Error,
}

impl Trouble {
    /// The address it is about is taken, and is one of these.
    fn is_taken_of(&self, addresses: &BTreeSet<SocketAddr>) -> bool {
        matches!(&self.error, userspace::Error::Taken { address, .. } if addresses.contains(address))
    }
}

/// Reports proxies that could not be opened.
pub trait TroubleReporter: std::fmt::Debug + Send {
    /// What was tried just now and failed; `proxies` knows what is lacking in all.
    fn report(&mut self, troubles: &[Trouble], proxies: &Proxies);
}

#[derive(Debug)]
pub struct Proxies {
    family: Family,
    settings: ProxySettings,
    engine: LazyEngine,
    directory: Directory,
    open: BTreeMap<ProxyName, OpenProxy>,
    /// The ports that rules lead to, by the names that rules have for them.
    ports: HashMap<String, u16>,
    /// Proxies that do not listen everywhere they should.
    lacking: BTreeMap<ProxyName, ProxySpec>,
}

/// A proxy that is open.
#[derive(Debug)]
struct OpenProxy {
    service: Arc<Service>,
    proxy: ProxySpec,
    /// The port that rules lead to.
    port: Option<u16>,
}

impl Proxies {
    pub fn new(
        family: Family,
        settings: ProxySettings,
        engine: LazyEngine,
        directory: Directory,
    ) -> Self {
        Self {
            family,
            settings,
            engine,
            directory,
            open: BTreeMap::new(),
            ports: HashMap::new(),
            lacking: BTreeMap::new(),
        }
    }

    /// Closes, opens and changes what a plan wants, where no rules have to be written in between. An address may pass from one proxy to
    /// another, also to one that has lacked it for long and is not in the plan. Returns what could not be done; the rest is done.
    pub fn change(&mut self, changes: &[ProxyChange]) -> Vec<Trouble> {
        let mut freed: BTreeSet<SocketAddr> = self.close(changes).into_iter().collect();
        freed.extend(self.give_up(changes));
        let mut troubles = self.set(changes);
        if freed.is_empty() {
            return troubles;
        }
        for pause in HANDOVER {
            if self.lacking.is_empty() {
                return Vec::new();
            }
            thread::sleep(pause);
            troubles = self.retry();
            // Our other proxies have released the address by now. But a program that is just being started has copies of all descriptors.
            if !troubles.iter().any(|trouble| trouble.is_taken_of(&freed)) {
                break;
            }
        }
        troubles
    }

    /// Opens and changes what a plan wants; closing is left to [`Self::close`]. Returns what could not be done; the rest is done.
    pub fn set(&mut self, changes: &[ProxyChange]) -> Vec<Trouble> {
        let mut troubles = Vec::new();
        for change in changes {
            if let ProxyChange::Set(proxy) = change {
                troubles.extend(self.set_one(proxy));
            }
        }
        troubles
    }

    /// Closes what a plan wants closed, and returns where that listened. Connections may go on for a while.
    pub fn close(&mut self, changes: &[ProxyChange]) -> Vec<SocketAddr> {
        let mut freed = Vec::new();
        for change in changes {
            let ProxyChange::Close(name) = change else {
                continue;
            };
            self.lacking.remove(name);
            self.ports.remove(&name.to_string());
            if let Some(open) = self.open.remove(name) {
                locked(&self.directory.0).remove(&(name.clone(), self.family));
                freed.extend(leave(&open.service, &[]));
                // Others may still hold the service to read its figures.
                open.service.set_endpoints(&[], Some(DRAIN));
            }
        }
        freed
    }

    /// Tries again what could not be done before.
    pub fn retry(&mut self) -> Vec<Trouble> {
        let lacking: Vec<ProxySpec> = self.lacking.values().cloned().collect();
        let retried = lacking.iter().flat_map(|proxy| self.set_one(proxy));
        retried.collect()
    }

    /// Some proxy does not listen everywhere it should.
    pub fn is_lacking(&self) -> bool {
        !self.lacking.is_empty()
    }

    pub fn lacking(&self) -> impl Iterator<Item = &ProxyName> {
        self.lacking.keys()
    }

    /// The port that rules lead to, of the proxy that they have this name for.
    pub fn port(&self, name: &str) -> Option<u16> {
        self.ports.get(name).copied()
    }

    /// The proxies that are open, with the port that rules lead to.
    pub fn open(&self) -> BTreeMap<ProxyName, Option<u16>> {
        let open = self.open.iter();
        open.map(|(name, open)| (name.clone(), open.port)).collect()
    }

    fn set_one(&mut self, proxy: &ProxySpec) -> Vec<Trouble> {
        let is_lacking = self.lacking.remove(&proxy.name).is_some();
        if !is_lacking && (self.open.get(&proxy.name)).is_some_and(|open| open.proxy == *proxy) {
            return Vec::new();
        }
        let errors = match self.ensure_open(proxy) {
            Ok(()) => self.listen(proxy),
            Err(error) => vec![error],
        };
        if !errors.is_empty() {
            self.lacking.insert(proxy.name.clone(), proxy.clone());
        }
        let trouble = |error| Trouble {
            proxy: proxy.name.clone(),
            error,
        };
        errors.into_iter().map(trouble).collect()
    }

    /// Makes the engine's service, or changes the one there is. It knows its endpoints before it has the first client.
    fn ensure_open(&mut self, proxy: &ProxySpec) -> Result<(), userspace::Error> {
        if !self.open.contains_key(&proxy.name) {
            let engine = self.engine.get()?;
            let protocol = match proxy.name.key.protocol {
                Transport::Udp => Protocol::Udp,
                // The planner opens none for what cannot be proxied.
                Transport::Tcp | Transport::Sctp => Protocol::Tcp,
            };
            let service = Arc::new(engine.service(proxy.name.to_string(), protocol));
            service.set_idle_timeout(self.settings.udp_idle);
            let key = (proxy.name.clone(), self.family);
            locked(&self.directory.0).insert(key, Arc::clone(&service));
            let open = OpenProxy {
                service,
                proxy: proxy.clone(),
                port: None,
            };
            self.open.insert(proxy.name.clone(), open);
        }
        if let Some(open) = self.open.get_mut(&proxy.name) {
            let endpoint = |endpoint: &ferrovia_core::desired::Endpoint| Endpoint {
                address: SocketAddr::new(endpoint.ip, endpoint.port),
                weight: endpoint.weight,
                is_local: endpoint.is_local,
            };
            let endpoints: Vec<_> = proxy.endpoints.iter().map(endpoint).collect();
            let affinity = proxy.affinity.map(u64::from).map(Duration::from_secs);
            open.service.set_affinity(affinity);
            open.service.set_endpoints(&endpoints, Some(DRAIN));
            open.proxy = proxy.clone();
        }
        Ok(())
    }

    /// Stops listening where proxies of a plan should not any more, before any of them listens somewhere else. Returns these addresses.
    fn give_up(&self, changes: &[ProxyChange]) -> Vec<SocketAddr> {
        let mut freed = Vec::new();
        for change in changes {
            if let ProxyChange::Set(proxy) = change
                && let ProxyListen::At(wanted) = &proxy.listen
                && let Some(open) = self.open.get(&proxy.name)
                && open.proxy != *proxy
            {
                freed.extend(leave(&open.service, wanted));
            }
        }
        freed
    }

    /// Listens where the proxy should and nowhere else.
    fn listen(&mut self, proxy: &ProxySpec) -> Vec<userspace::Error> {
        match &proxy.listen {
            ProxyListen::Portal(ip) => {
                let failed = self.listen_at_some_port(&proxy.name, *ip).err();
                failed.into_iter().collect()
            }
            ProxyListen::At(wanted) => self.listen_at(proxy, wanted),
        }
    }

    fn listen_at_some_port(
        &mut self,
        name: &ProxyName,
        ip: IpAddr,
    ) -> Result<(), userspace::Error> {
        let Some(open) = self.open.get_mut(name) else {
            return Ok(());
        };
        let there = open.service.listeners();
        if there.iter().any(|at| at.ip() == ip) {
            return Ok(());
        }
        leave(&open.service, &[]);
        open.port = None;
        self.ports.remove(&name.to_string());
        let listen = at_some_port(ip, self.settings.ports.as_ref());
        let at = open.service.listen(listen)?;
        open.port = Some(at.port());
        self.ports.insert(name.to_string(), at.port());
        Ok(())
    }

    fn listen_at(&self, proxy: &ProxySpec, wanted: &[SocketAddr]) -> Vec<userspace::Error> {
        let Some(OpenProxy { service, .. }) = self.open.get(&proxy.name) else {
            return Vec::new();
        };
        leave(service, wanted);
        let listen = |at: &SocketAddr| {
            let gate = self.gate(proxy, *at);
            if service.set_gate(*at, gate.clone()) {
                return Ok(*at);
            }
            service.listen(userspace::Listen {
                address: Address::At(*at),
                // An address that the kernel has just been given may not be in use yet, as those of IPv6 for a second.
                presence: AddressPresence::Later,
                gate,
            })
        };
        wanted.iter().filter_map(|at| listen(at).err()).collect()
    }

    /// What holds for the clients of an address; none if nothing does.
    fn gate(&self, proxy: &ProxySpec, at: SocketAddr) -> Option<Gate> {
        let gate = proxy.client_filters.get(&at)?;
        let carrier = ProxyName {
            policy: TrafficPolicy::Cluster,
            ..proxy.name.clone()
        };
        let carrier = self.open.get(&carrier).map(|open| &*open.service);
        let allowed = gate.allowed.iter().map(sources).collect();
        let inside = gate.inside.as_ref().map(sources);
        Some(Gate::new(allowed, inside.zip(carrier)))
    }
}

impl Drop for Proxies {
    /// Who looks into the directory finds what is open, which from now on is nothing of ours.
    fn drop(&mut self) {
        let mut all = locked(&self.directory.0);
        for name in self.open.keys() {
            all.remove(&(name.clone(), self.family));
        }
    }
}

fn at_some_port(ip: IpAddr, ports: Option<&RangeInclusive<u16>>) -> userspace::Listen {
    userspace::Listen {
        address: match ports {
            Some(ports) => Address::Range(ip, ports.clone()),
            None => Address::At(SocketAddr::new(ip, 0)),
        },
        presence: AddressPresence::Here,
        gate: None,
    }
}

/// Stops listening everywhere but here, and returns where that was.
fn leave(service: &Service, wanted: &[SocketAddr]) -> Vec<SocketAddr> {
    let mut left = service.listeners();
    left.retain(|at| !wanted.contains(at));
    for at in &left {
        service.unlisten(*at);
    }
    left
}

fn sources(sources: &ferrovia_core::plan::userspace::ClientSources) -> Sources {
    Sources {
        nets: Arc::clone(&sources.nets),
        itself: sources.itself,
    }
}
