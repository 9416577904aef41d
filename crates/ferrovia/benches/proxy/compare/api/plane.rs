//! A control plane in a network namespace, with as many objects as asked for.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use ferrovia_lab::apiserver::sample;
use ferrovia_lab::control_plane::{
    ApiClient, ApiRequest, Assets, Connection, ControlPlane, ControlPlaneOptions, Relay,
};
use ferrovia_lab::interrupt::Interrupt;
use ferrovia_lab::layout::NODE_ADDRESSES;
use ferrovia_lab::{Folder, World};
use serde_json::{Value, json};

use super::{IDLE, NODE, SIMULATED_SERVICES, go_on};
use crate::api::daemon::new_world;
use crate::api::objects;
use crate::cluster::Size;
use crate::process;

/// Endpoints of each Service.
const ENDPOINTS: usize = 2;
/// How many connections objects are created over.
const CREATORS: usize = 8;
/// The time between two changes.
const INTERVAL: Duration = Duration::from_millis(10);
/// The user that the stock role for proxies is bound to.
const PROXY_USER: &str = "system:kube-proxy";

/// The control plane, a relay that counts bytes, and the namespace they are in.
pub(super) struct Plane {
    // Dropped in this order: clients before servers, all before their namespaces.
    relay: Relay,
    plane: ControlPlane,
    admin: ApiClient,
    folder: Folder,
    pub(super) world: World,
    services: usize,
    /// How often an endpoint of each was replaced. What does not differ from before is no change.
    rounds: Vec<usize>,
}

impl Plane {
    /// Starts it, with the Node only.
    pub(super) fn start(assets: &Assets, arguments: &[&str]) -> anyhow::Result<Self> {
        let world = new_world()?;
        let options = ControlPlaneOptions {
            etcd: "etcd",
            arguments: arguments.iter().map(ToString::to_string).collect(),
            advertise: NODE_ADDRESSES[0],
        };
        let (plane, relay) = {
            let _inside = world.enter(NODE)?;
            let plane = ControlPlane::start(assets, options)?;
            let relay = Relay::start(plane.address())?;
            (plane, relay)
        };
        let this = Self {
            relay,
            admin: plane.admin()?,
            plane,
            folder: Folder::make()?,
            world,
            services: 0,
            rounds: Vec::new(),
        };
        this.create_basics()?;
        Ok(this)
    }

    fn create_basics(&self) -> anyhow::Result<()> {
        let mut connection = self.connect()?;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": sample::NAMESPACE}});
        send(&mut connection, "POST", "/api/v1/namespaces", &namespace)?;
        let node =
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": objects::NODE_NAME}});
        send(&mut connection, "POST", "/api/v1/nodes", &node)?;
        let [v4, _, v6, _] = NODE_ADDRESSES;
        let addresses = [v4, v6].map(|ip| json!({"type": "InternalIP", "address": ip}));
        let body = json!({"status": {"addresses": addresses}}).to_string();
        let target = format!("/api/v1/nodes/{}/status", objects::NODE_NAME);
        let reply = connection.ask(&ApiRequest {
            content_type: "application/merge-patch+json",
            ..ApiRequest::send("PATCH", &target, body.as_bytes())
        })?;
        ensure!(reply.head.code == 200, "PATCH {target}: {}", reply.json());
        Ok(())
    }

    /// Creates Services, each with a slice, until there are so many.
    pub(super) fn grow(&mut self, services: usize, interrupt: &Interrupt) -> anyhow::Result<()> {
        let next = AtomicUsize::new(self.services);
        eprintln!("creating {} Services ...", services - self.services);
        let create = || -> anyhow::Result<()> {
            let mut connection = self.connect()?;
            loop {
                go_on(interrupt)?;
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= services {
                    return Ok(());
                }
                for object in [objects::service(number), slice(number, 0)] {
                    send(&mut connection, "POST", &collection(&object), &own(object))?;
                }
            }
        };
        std::thread::scope(|scope| {
            let creators: Vec<_> = (0..CREATORS).map(|_| scope.spawn(create)).collect();
            let mut results = creators.into_iter().map(|creator| {
                let result = creator.join();
                result.unwrap_or_else(|_| Err(anyhow::anyhow!("a thread panicked")))
            });
            results.try_for_each(|result| result)
        })?;
        self.services = services;
        self.rounds.resize(services, 0);
        Ok(())
    }

    pub(super) fn services(&self) -> usize {
        self.services
    }

    /// How many Services there are while nodes are simulated.
    pub(super) fn simulated_services(&self) -> usize {
        SIMULATED_SERVICES.min(self.services)
    }

    /// Replaces an object.
    pub(super) fn apply(&self, object: &Value) -> anyhow::Result<()> {
        put(&mut self.connect()?, object)
    }

    /// Replaces an endpoint of so many Services, at a steady rate.
    pub(super) fn replace_endpoints(
        &mut self,
        count: usize,
        interrupt: &Interrupt,
    ) -> anyhow::Result<()> {
        let mut connection = self.connect()?;
        // The last one belongs to the client that measures.
        let others = self.services - 1;
        let begin = Instant::now();
        for number in 0..count {
            go_on(interrupt)?;
            let service = number % others;
            let round = self.rounds[service] + 1;
            put(&mut connection, &slice(service, round))?;
            self.rounds[service] = round;
            let due = INTERVAL * u32::try_from(number)?;
            interrupt.sleep(due.saturating_sub(begin.elapsed()));
        }
        Ok(())
    }

    fn connect(&self) -> anyhow::Result<Connection> {
        let _inside = self.world.enter(NODE)?;
        Ok(self.admin.connect()?)
    }

    /// For a proxy whose bytes are counted.
    pub(super) fn kubeconfig(&self) -> anyhow::Result<PathBuf> {
        let identity = self.plane.pki().client(PROXY_USER, None)?;
        let address = self.relay.address();
        Ok(self
            .plane
            .kubeconfig(self.folder.path(), address, &identity)?)
    }

    /// For clients that speak to the server itself.
    pub(super) fn direct_kubeconfig(&self) -> anyhow::Result<PathBuf> {
        let identity = self.plane.pki().client(PROXY_USER, None)?;
        let address = self.plane.address();
        Ok(self
            .plane
            .kubeconfig(self.folder.path(), address, &identity)?)
    }

    /// The server's CPU time in a second in which nothing happens.
    pub(super) fn idle(&self, interrupt: &Interrupt) -> anyhow::Result<f64> {
        let (begin, before) = (Instant::now(), process::cpu(self.server()?)?);
        interrupt.sleep(IDLE);
        go_on(interrupt)?;
        let used = process::cpu(self.server()?)?.saturating_sub(before);
        Ok(used.as_secs_f64() / begin.elapsed().as_secs_f64())
    }

    /// Bytes that the server has sent to the proxy.
    pub(super) fn received(&self) -> u64 {
        self.relay.received()
    }

    /// The process number of the server.
    pub(super) fn server(&self) -> anyhow::Result<u32> {
        self.plane.server_process().context("the server has exited")
    }

    /// What the server has in memory, in KiB.
    pub(super) fn server_memory(&self) -> anyhow::Result<u64> {
        Ok(process::memory(self.server()?)?.resident)
    }

    /// How many connections to the server there are.
    pub(super) fn connections(&self) -> anyhow::Result<u64> {
        let port = format!(":{:04X}", self.plane.address().port());
        let table = fs::read_to_string(format!("/proc/{}/net/tcp", self.server()?))?;
        let is_one = |line: &&str| {
            let mut fields = line.split_whitespace().skip(2);
            // Seen from the client's side, established.
            fields.next().is_some_and(|peer| peer.ends_with(&port)) && fields.next() == Some("01")
        };
        Ok(table.lines().filter(is_one).count() as u64)
    }

    /// Removes what the proxy before has written.
    pub(super) fn clear_rules(&self) -> anyhow::Result<()> {
        let mut nft = self.world.exec(NODE, "nft");
        let status = nft.args(["flush", "ruleset"]).status()?;
        ensure!(status.success(), "nft flush ruleset: {status}");
        Ok(())
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The end of the proxy's log.
    pub(super) fn last_words(&self) -> String {
        let log = fs::read_to_string(self.file("proxy.log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }
}

/// Slices with two endpoints, of which one is replaced in every round.
fn slice(number: usize, round: usize) -> Value {
    objects::slice(Size::new(0, ENDPOINTS), number, round)
}

fn put(connection: &mut Connection, object: &Value) -> anyhow::Result<()> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let target = format!("{}/{name}", collection(object));
    send(connection, "PUT", &target, &own(object.clone()))
}

fn send(
    connection: &mut Connection,
    method: &str,
    target: &str,
    object: &Value,
) -> anyhow::Result<()> {
    let reply = connection.ask(&ApiRequest::send(
        method,
        target,
        object.to_string().as_bytes(),
    ))?;
    let code = reply.head.code;
    ensure!(
        (200..300).contains(&code),
        "{method} {target}: {code} {}",
        reply.json()
    );
    Ok(())
}

fn collection(object: &Value) -> String {
    let namespace = sample::NAMESPACE;
    match object["kind"].as_str() {
        Some("Service") => format!("/api/v1/namespaces/{namespace}/services"),
        _ => format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"),
    }
}

/// The object without what the server adds itself, or knows better.
fn own(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in [
            "managedFields",
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "generation",
            "ownerReferences",
        ] {
            metadata.remove(field);
        }
    }
    if let Some(object) = object.as_object_mut() {
        object.remove("status");
    }
    object
}
