//! An API server of somebody else's, spoken to in plain HTTP, as `kubectl proxy` offers it.
//!
//! Everything that is made is made in one namespace and removed in the end. Proxies in a lab's node reach the server by way of a relay that
//! listens there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use ferrovia_lab::{Role, World};
use serde_json::{Value, json};

/// Where all is made.
const NAMESPACE: &str = "ferrovia-compare";
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// A server that hangs must not hang the run.
const PATIENCE: Duration = Duration::from_secs(30);

/// The server, and what was made there.
pub(crate) struct Remote {
    server: SocketAddr,
    /// Cluster IPs by service name; the server chooses them.
    addresses: Mutex<BTreeMap<String, Ipv4Addr>>,
    /// Paths of all objects. In the reverse of their order the namespace comes last.
    made: Mutex<BTreeSet<String>>,
}

impl Remote {
    /// Makes the namespace.
    pub(crate) fn new(server: SocketAddr) -> anyhow::Result<Self> {
        let remote = Self {
            server,
            addresses: Mutex::default(),
            made: Mutex::default(),
        };
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
        let there = format!("/api/v1/namespaces/{NAMESPACE}");
        ensure!(
            !serves(server, &there)?,
            "the cluster has a namespace {NAMESPACE} already: another run has not ended, or was killed, or is still being tidied up \
             (`kubectl delete namespace {NAMESPACE}`)"
        );
        remote.create("/api/v1/namespaces", NAMESPACE, &namespace)?;
        Ok(remote)
    }

    /// A Node of the cluster; the proxies say that they are on it.
    pub(crate) fn node(&self) -> anyhow::Result<String> {
        let nodes = self.ask("GET", "/api/v1/nodes?limit=1", None)?;
        let name = nodes["items"][0]["metadata"]["name"].as_str();
        Ok(name.context("the cluster has no Node")?.to_owned())
    }

    /// Makes a Service or an EndpointSlice, or changes it.
    pub(crate) fn apply(&self, object: &Value) -> anyhow::Result<()> {
        let object = own(object);
        let name = object["metadata"]["name"]
            .as_str()
            .context("an object without a name")?;
        let collection = match object["kind"].as_str() {
            Some("Service") => format!("/api/v1/namespaces/{NAMESPACE}/services"),
            Some("EndpointSlice") => {
                format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices")
            }
            // Nodes and ranges of addresses are the cluster's own.
            _ => return Ok(()),
        };
        let path = format!("{collection}/{name}");
        if lock(&self.made).contains(&path) {
            self.ask("PUT", &path, Some(&object))?;
            return Ok(());
        }
        let answer = self.create(&collection, name, &object)?;
        if let Some(address) = answer["spec"]["clusterIP"].as_str() {
            let address = address
                .parse()
                .with_context(|| format!("{address} is not an IPv4 address"))?;
            lock(&self.addresses).insert(name.to_owned(), address);
        }
        Ok(())
    }

    /// The address that the server gave a service.
    pub(crate) fn address(&self, service: &str) -> Option<Ipv4Addr> {
        lock(&self.addresses).get(service).copied()
    }

    /// Writes a kubeconfig for use in a lab's node, and relays from there for as long as this process lives.
    pub(crate) fn kubeconfig(&self, world: &World, folder: &Path) -> anyhow::Result<PathBuf> {
        let listener = {
            let _inside = world.enter(Role::Node)?;
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        };
        let at = listener.local_addr()?;
        let server = self.server;
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                std::thread::spawn(move || relay(&client, server));
            }
        });
        let file = folder.join("kubeconfig");
        let content = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "compare", "cluster": { "server": format!("http://{at}") } }],
            "contexts": [{ "name": "compare", "context": { "cluster": "compare", "user": "" } }],
            "current-context": "compare",
        });
        fs::write(&file, content.to_string())?;
        Ok(file)
    }

    fn create(&self, collection: &str, name: &str, object: &Value) -> anyhow::Result<Value> {
        let answer = self.ask("POST", collection, Some(object))?;
        let path = format!("{collection}/{name}");
        lock(&self.made).insert(path);
        Ok(answer)
    }

    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let body = body.map_or_else(String::new, Value::to_string);
        let (status, content) = exchange(self.server, method, path, &body)?;
        ensure!(
            status.starts_with('2'),
            "{method} {path}: status {status}: {}",
            content.trim()
        );
        serde_json::from_str(&content)
            .with_context(|| format!("{method} {path}: an answer that is not JSON"))
    }
}

/// Whether a server has something at this path.
pub(super) fn serves(server: SocketAddr, path: &str) -> anyhow::Result<bool> {
    let (status, content) = exchange(server, "GET", path, "")?;
    match status.as_str() {
        "200" => Ok(true),
        "404" => Ok(false),
        _ => bail!("GET {path}: status {status}: {}", content.trim()),
    }
}

/// One request over a connection of its own, in HTTP/1.0, which has no chunks; answers with status and content.
fn exchange(
    server: SocketAddr,
    method: &str,
    path: &str,
    body: &str,
) -> anyhow::Result<(String, String)> {
    let mut stream = TcpStream::connect_timeout(&server, PATIENCE)
        .with_context(|| format!("cannot reach the API server at http://{server}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: {server}\r\nContent-Type: application/json\r\nAccept: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, content) = answer
        .split_once("\r\n\r\n")
        .with_context(|| format!("{method} {path}: an answer that is not HTTP"))?;
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    Ok((status.to_owned(), content.to_owned()))
}

impl Drop for Remote {
    fn drop(&mut self) {
        let made = std::mem::take(&mut *lock(&self.made));
        if made.is_empty() {
            return;
        }
        eprintln!("removing {} objects from the cluster ...", made.len());
        for path in made.iter().rev() {
            if let Err(error) = self.ask("DELETE", path, None) {
                eprintln!("left behind: {error:#}");
            }
        }
    }
}

/// What one thread left half done is no worse than it was.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The object as this server takes it from us: in our namespace, without what servers add.
fn own(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = &object["metadata"];
    // Labels that name a controller would bring that controller into it.
    let service = metadata["labels"][SERVICE_NAME].as_str();
    let labels: BTreeMap<&str, &str> = service
        .map(|name| (SERVICE_NAME, name))
        .into_iter()
        .collect();
    object["metadata"] = json!({
        "name": metadata["name"],
        "namespace": NAMESPACE,
        "labels": labels,
    });
    if let Some(spec) = object["spec"].as_object_mut() {
        // Without a selector nobody else makes slices for it.
        for field in ["clusterIP", "clusterIPs", "selector"] {
            spec.remove(field);
        }
    }
    object
}

/// Carries bytes both ways until both sides are done.
fn relay(client: &TcpStream, server: SocketAddr) {
    let carry = || -> anyhow::Result<()> {
        let server = TcpStream::connect_timeout(&server, PATIENCE)?;
        std::thread::scope(|scope| {
            scope.spawn(|| pass(client, &server));
            pass(&server, client);
        });
        Ok(())
    };
    if let Err(error) = carry() {
        eprintln!("cannot reach the API server: {error}");
    }
}

fn pass(mut from: &TcpStream, mut to: &TcpStream) {
    // An error is an end as well; whoever waits for more learns it from the closed connection.
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(std::net::Shutdown::Write);
}

/// The address in `http://ADDRESS:PORT`.
pub(crate) fn parse(url: &str) -> anyhow::Result<SocketAddr> {
    let Some(address) = url.strip_prefix("http://") else {
        bail!("--server wants http://ADDRESS:PORT, as `kubectl proxy` prints it, not {url}");
    };
    address
        .trim_end_matches('/')
        .replace("localhost", "127.0.0.1")
        .parse()
        .with_context(|| format!("--server: {address} is not ADDRESS:PORT"))
}
