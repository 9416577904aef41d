//! Connections through rules of ours in a network made for the purpose: a node and a pod, nobody else.
//!
//! Services are written as they would be on the node itself, by the same engine in the default mode. Then the node and the pod call them, and
//! the servers answer with the address they see, so that a wrong source is noticed too. Nothing of the node's own network is touched.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ferrovia_core::desired::{LocalSetting, NodeSettings};
use ferrovia_core::family::Family;
use ferrovia_core::store::Event;
use ferrovia_core::wire::{Kind, Object};
use ferrovia_host::scratch::{self, Addresses};
use ipnet::IpNet;
use serde_json::json;

use crate::mode::{self, InstallContext};
use crate::sync::Engine;

/// How long a connection may take. Generous: only a failure takes that long.
const PATIENCE: Duration = Duration::from_secs(5);
/// The port of every Service, and the one servers listen on.
const SERVICE_PORT: u16 = 80;
const SERVER_PORT: u16 = 8080;
/// The node port of the pod's Service.
const NODE_PORT: u16 = 30080;
/// This node, in the objects.
const NODE: &str = "self-test";

/// A connection that was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// A name for programs.
    pub check: &'static str,
    /// What should be.
    pub what: &'static str,
    /// In which family.
    pub family: Family,
    /// Whether it is so, or what happened instead.
    pub outcome: Result<(), String>,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.what, self.family)
    }
}

/// The addresses of one family, all of ranges that no real network uses.
#[derive(Clone, Copy)]
struct Plan {
    family: Family,
    link: Addresses,
    /// Cluster IPs: of the Service of the pod, of that of the node, and of one without endpoints.
    services: [IpAddr; 3],
}

impl Plan {
    fn of(family: Family) -> Self {
        let ip = |host: u16| -> IpAddr {
            match family {
                // For tests of network devices.
                Family::V4 => [198, 18, 0, host as u8].into(),
                // Unique local; the namespace has no other network it could be taken for.
                Family::V6 => [0xfd00, 0x198, 0x18, 0, 0, 0, 0, host].into(),
            }
        };
        Self {
            family,
            link: Addresses {
                node: ip(1),
                pod: ip(2),
                // The Services' addresses are outside, so that packets to them have to be routed.
                prefix: if family == Family::V4 { 30 } else { 126 },
            },
            services: [ip(101), ip(102), ip(103)],
        }
    }
}

/// Tries all connections in the families given.
///
/// # Errors
/// If there can be no such network here, for lack of rights or of kernel features.
pub fn run(families: &[Family]) -> Result<Vec<Trial>, scratch::Error> {
    let plans: Vec<Plan> = families.iter().map(|family| Plan::of(*family)).collect();
    let links: Vec<Addresses> = plans.iter().map(|plan| plan.link).collect();
    let (to_node, from_pod) = mpsc::channel();
    let (to_pod, from_node) = mpsc::channel();
    let plans = &plans;
    let on_node = move || node_side(plans, &from_pod, &to_pod);
    let in_pod = move || pod_side(plans, &from_node, &to_node);
    let (node, pod) = scratch::node_and_pod(&links, on_node, in_pod)?;
    let failed = |error: &String| {
        let what = "rules can be written and servers started";
        let trials = plans.iter();
        trials
            .map(|plan| plan.trial("self-test/rules", what, Err(error.clone())))
            .collect()
    };
    let mut trials: Vec<Trial> = match (node, pod) {
        (Ok(trials), Ok(more)) => trials.into_iter().chain(more).collect(),
        (Err(error), _) | (_, Err(error)) => failed(&error),
    };
    trials.sort_by_key(|trial| trial.family.name());
    Ok(trials)
}

impl Plan {
    fn trial(&self, check: &'static str, what: &'static str, outcome: Result<(), String>) -> Trial {
        Trial {
            check,
            what,
            family: self.family,
            outcome,
        }
    }

    /// What the node tries.
    fn tried_on_node(&self) -> Vec<Trial> {
        let Addresses { node, .. } = self.link;
        let [of_pod, of_node, empty] = self.services;
        vec![
            self.trial(
                "self-test/cluster-ip",
                "the node reaches a pod through a Service",
                call((of_pod, SERVICE_PORT), node),
            ),
            self.trial(
                "self-test/node-port",
                "the node reaches a pod through a node port",
                call((node, NODE_PORT), node),
            ),
            self.trial(
                "self-test/loopback",
                "the node reaches itself through a Service",
                call((of_node, SERVICE_PORT), node),
            ),
            self.trial(
                "self-test/no-endpoints",
                "a Service without endpoints refuses at once",
                expect_refusal((empty, SERVICE_PORT)),
            ),
        ]
    }

    /// What the pod tries.
    fn tried_in_pod(&self) -> Vec<Trial> {
        let Addresses { node, pod, .. } = self.link;
        let [of_pod, of_node, _] = self.services;
        vec![
            self.trial(
                "self-test/hairpin",
                "a pod reaches itself through its Service",
                // Under its own address it would answer itself, past the node.
                call((of_pod, SERVICE_PORT), node),
            ),
            self.trial(
                "self-test/from-pod",
                "a pod reaches the node through a Service, under its own address",
                call((of_node, SERVICE_PORT), pod),
            ),
        ]
    }
}

/// The two wait for each other by channels; one that failed has hung up, and says why itself.
fn node_side(
    plans: &[Plan],
    from_pod: &mpsc::Receiver<()>,
    to_pod: &mpsc::Sender<()>,
) -> Result<Vec<Trial>, String> {
    let _ = from_pod.recv();
    write_rules(plans)?;
    let _servers = serve(plans.iter().map(|plan| plan.link.node))?;
    let trials = plans.iter().flat_map(Plan::tried_on_node).collect();
    let _ = to_pod.send(());
    // The namespace goes with this thread, and the pod's connections with it.
    let _ = from_pod.recv();
    Ok(trials)
}

fn pod_side(
    plans: &[Plan],
    from_node: &mpsc::Receiver<()>,
    to_node: &mpsc::Sender<()>,
) -> Result<Vec<Trial>, String> {
    let _servers = serve(plans.iter().map(|plan| plan.link.pod))?;
    let _ = to_node.send(());
    let trials = match from_node.recv() {
        Ok(()) => plans.iter().flat_map(Plan::tried_in_pod).collect(),
        Err(_) => Vec::new(),
    };
    let _ = to_node.send(());
    Ok(trials)
}

/// Writes the Services into this thread's namespace, as the daemon would.
fn write_rules(plans: &[Plan]) -> Result<(), String> {
    let context = InstallContext {
        counters: false,
        ..InstallContext::default()
    };
    let installed = mode::DEFAULT
        .install(&context)
        .map_err(|error| error.to_string())?;
    let mut engine = Engine::new(settings(plans), installed.backends);
    engine.set_addresses(plans.iter().map(|plan| plan.link.node).collect());
    for object in plans.iter().flat_map(objects) {
        engine.handle(Event::Applied(Box::new(object)));
    }
    for kind in Kind::ALL {
        engine.handle(Event::Listed(kind));
    }
    let failed = engine.sync().into_iter().find_map(|done| done.result.err());
    match failed {
        Some(error) => Err(error.to_string()),
        None => Ok(()),
    }
}

fn settings(plans: &[Plan]) -> NodeSettings {
    let pods = plans
        .iter()
        .filter_map(|plan| IpNet::new(plan.link.pod, plan.link.prefix).ok());
    NodeSettings {
        local: LocalSetting::ClusterCidr(pods.collect()),
        ..NodeSettings::of_node(NODE)
    }
}

/// The Services of one family, and their endpoints.
fn objects(plan: &Plan) -> Vec<Object> {
    let family = plan.family.name();
    let [of_pod, of_node, empty] = plan.services;
    let service = |name: &str, ip: IpAddr, node_port: u16| {
        json!({
            "metadata": {"name": format!("{name}-{}", family.to_lowercase()), "namespace": NODE},
            "spec": {
                "type": "NodePort", "clusterIP": ip, "ipFamilies": [family],
                "ports": [{"port": SERVICE_PORT, "nodePort": node_port}],
            },
        })
    };
    let slice = |name: &str, ip: IpAddr| {
        let name = format!("{name}-{}", family.to_lowercase());
        json!({
            "metadata": {
                "name": name, "namespace": NODE, "labels": {"kubernetes.io/service-name": name},
            },
            "addressType": family,
            "ports": [{"port": SERVER_PORT}],
            "endpoints": [{"addresses": [ip], "nodeName": NODE}],
        })
    };
    let services = [
        service("pod", of_pod, NODE_PORT),
        service("node", of_node, 0),
        service("empty", empty, 0),
    ];
    let slices = [slice("pod", plan.link.pod), slice("node", plan.link.node)];
    let services = services.into_iter().map(serde_json::from_value);
    let slices = slices.into_iter().map(serde_json::from_value);
    services
        .filter_map(|service| service.ok().map(Object::Service))
        .chain(slices.filter_map(|slice| slice.ok().map(Object::EndpointSlice)))
        .collect()
}

/// Calls somebody who shall see this address.
fn call(to: (IpAddr, u16), seen_as: IpAddr) -> Result<(), String> {
    let to = SocketAddr::from(to);
    let failed = |error: io::Error| format!("{to} does not answer: {error}");
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(failed)?;
    if answer == seen_as.to_string() {
        Ok(())
    } else {
        Err(format!("{to} saw the source {answer} instead of {seen_as}"))
    }
}

fn expect_refusal(to: (IpAddr, u16)) -> Result<(), String> {
    let to = SocketAddr::from(to);
    match TcpStream::connect_timeout(&to, PATIENCE) {
        Ok(_) => Err(format!("{to} answers")),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) => Err(format!("{to} does not refuse: {error}")),
    }
}

/// Starts a server on each address.
fn serve(addresses: impl Iterator<Item = IpAddr>) -> Result<Vec<Server>, String> {
    let servers = addresses
        .map(|ip| Server::start(ip).map_err(|error| format!("cannot listen on {ip}: {error}")));
    servers.collect()
}

/// Answers everybody with the address it sees, until it is dropped.
struct Server {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Server {
    fn start(ip: IpAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((ip, SERVER_PORT))?;
        let address = listener.local_addr()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let thread = thread::Builder::new()
            .name("self-test".into())
            .spawn(move || {
                while let Ok((mut stream, peer)) = listener.accept() {
                    if ends.load(Ordering::Acquire) {
                        return;
                    }
                    // A caller that has gone is a caller that gave up.
                    let _ = stream.set_write_timeout(Some(PATIENCE));
                    let _ = stream.write_all(peer.ip().to_string().as_bytes());
                }
            })?;
        Ok(Self {
            address,
            is_over,
            thread: Some(thread),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // The thread waits for a caller, so it gets one.
        let woken = TcpStream::connect_timeout(&self.address, PATIENCE).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use ferrovia_host::probe;

    use super::*;

    #[test]
    fn every_connection_works_here() {
        let trials = run(&probe::supported_families()).unwrap();
        assert!(trials.len() >= 6, "{trials:?}");
        for trial in &trials {
            assert_eq!(trial.outcome, Ok(()), "{trial}");
        }
    }

    #[test]
    fn nobody_who_answers_is_told() {
        let here = IpAddr::from([127, 0, 0, 1]);
        let free = TcpListener::bind((here, 0)).unwrap().local_addr().unwrap();
        let error = call((here, free.port()), here).unwrap_err();
        assert!(error.contains("does not answer"), "{error}");
        assert_eq!(expect_refusal((here, free.port())), Ok(()));
    }
}
