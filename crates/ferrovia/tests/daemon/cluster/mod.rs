//! The daemon in the place of a kube-proxy: called by that name, with kubeadm's configuration file and a kubeconfig, against an API server
//! on the node.
//!
//! - `objects`: Services, slices and the Node, from the API to the packets
//! - `start`: command line, actions, privileges, and what makes it end at once
//! - `config`: the configuration file changes
//! - `outage`: the API server is away, forgets, or falls silent
//! - `pod`: without a kubeconfig, by what every pod is given
//! - `health`: what load balancers and the kubelet are told
//! - `metrics`: what Prometheus and people are told
//! - `events`: what `kubectl` is told
//! - `flows`: UDP flows that lead nowhere any more

mod config;
mod events;
mod flows;
mod health;
mod metrics;
mod objects;
mod outage;
mod pod;
mod start;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;

use ferrovia_lab::Role;
use ferrovia_lab::apiserver::{ApiServer, Auth, Kind, Options, sample};
use ferrovia_lab::layout::NODE_ADDRESSES;
use ferrovia_lab::plain_http::{Reply, try_request};
use serde_json::Value;

use super::support::{Node, service, wait};

/// The daemon's two servers, where kube-proxy has them.
const HEALTH: &str = "127.0.0.1:10256";
const METRICS: &str = "127.0.0.1:10249";

/// The file as kubeadm writes it, with a mode, and without what would change the whole machine: the kernel's limits of connections.
const CONFIG: &str = include_str!("kubeadm.yaml");

/// A node with an API server. Its folder holds what a pod of kube-proxy finds.
struct Cluster {
    api: ApiServer,
    node: Node,
}

impl Cluster {
    /// A cluster whose API server knows only the node.
    fn new() -> Self {
        let cluster = Self::with(Options::default());
        cluster.apply_node(|_| {});
        cluster
    }

    /// A cluster whose API server knows nothing.
    fn with(mut options: Options) -> Self {
        options.tls = true;
        options.auth = Auth::TokenFile;
        let node = Node::new();
        let api = {
            let _inside = node.world.enter(Role::Node).expect("the node is there");
            ApiServer::start(options)
        };
        let api = api.expect("the API server starts");
        let kubeconfig = api.kubeconfig(node.folder()).expect("it can be written");
        let kubeconfig = kubeconfig.to_str().expect("the path is text");
        node.write("config.conf", &CONFIG.replace("KUBECONFIG", kubeconfig));
        std::os::unix::fs::symlink(
            env!("CARGO_BIN_EXE_ferrovia"),
            node.folder().join("kube-proxy"),
        )
        .expect("a link can be made");
        Self { api, node }
    }

    fn config_file(&self) -> PathBuf {
        self.node.folder().join("config.conf")
    }

    fn config(&self) -> String {
        std::fs::read_to_string(self.config_file()).expect("it is there")
    }

    /// Writes the file with something changed.
    fn configure(&self, from: &str, to: &str) {
        let text = self.config();
        assert!(text.contains(from), "no {from:?} in {text}");
        self.node.write("config.conf", &text.replacen(from, to, 1));
    }

    /// The program under kube-proxy's name, on the node.
    fn kube_proxy(&self) -> Command {
        let link = self.node.folder().join("kube-proxy");
        let link = link.to_str().expect("the path is text");
        self.node.world.exec(Role::Node, link)
    }

    /// The arguments of kubeadm's DaemonSet, and one without which all of these daemons would want the same file.
    fn arguments(&self) -> [String; 3] {
        let file = self.config_file();
        [
            format!("--config={}", file.display()),
            "--hostname-override=node-1".to_owned(),
            "--admin-socket=".to_owned(),
        ]
    }

    /// Starts the daemon and waits until all services are in the kernel.
    fn start(&self) {
        self.start_without_waiting();
        self.node.wait_until_ready();
    }

    fn start_without_waiting(&self) {
        let mut command = self.kube_proxy();
        command.args(self.arguments());
        self.node.spawn(command);
    }

    /// Gives the API server objects, which are written as in a manifest.
    fn apply(&self, manifest: &str) {
        for document in manifest.split("---\n") {
            let mut object: Value = serde_saphyr::from_str(document).expect("it is YAML");
            let metadata = &mut object["metadata"];
            if metadata["namespace"].is_null() {
                metadata["namespace"] = "default".into();
            }
            self.api.apply(object).expect("the API server takes it");
        }
    }

    /// Gives the API server our Node with something changed.
    fn apply_node(&self, change: impl FnOnce(&mut Value)) {
        let [v4, _, v6, _] = NODE_ADDRESSES;
        let mut node = sample::node("node-1", &[v4, v6]);
        change(&mut node);
        self.api.apply(node).expect("the API server takes it");
    }

    /// Deletes a Service and leaves its slices to whoever made them.
    fn delete_service(&self, name: &str) {
        assert!(self.api.delete(Kind::Service, "default", name), "{name}");
    }

    fn try_get(&self, address: &str, path: &str) -> Result<Reply, String> {
        let address: SocketAddr = address.parse().expect("an address and port");
        let _inside = self
            .node
            .world
            .enter(Role::Node)
            .expect("the node is there");
        try_request(address, "GET", path, &[], "")
            .map_err(|error| format!("{address}{path}: {error}; log:\n{}", self.node.log()))
    }

    /// Asks one of the daemon's servers, from the node.
    fn get(&self, address: &str, path: &str) -> Reply {
        self.try_get(address, path)
            .unwrap_or_else(|problem| panic!("{problem}"))
    }

    /// Asks until the answer has this code.
    fn get_soon(&self, address: &str, path: &str, code: u16) -> Reply {
        let mut last = None;
        wait(|| {
            let reply = self.try_get(address, path)?;
            if reply.code == code {
                last = Some(reply);
                return Ok(());
            }
            Err(format!("{address}{path} says {reply:?}"))
        });
        last.expect("it was waited for")
    }

    fn try_metric(&self, name: &str, labels: &[&str]) -> Result<f64, String> {
        let text = self.try_get(METRICS, "/metrics")?.body;
        let series = text.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            let (own, value) = rest.rsplit_once(' ')?;
            let is_it = own.is_empty() || own.starts_with('{');
            (is_it && labels.iter().all(|label| own.contains(label)))
                .then(|| value.parse::<f64>().expect("a value"))
        });
        Ok(series.sum())
    }

    /// The sum of the series with this name and all of these labels, such as `code="200"`.
    fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        self.try_metric(name, labels)
            .unwrap_or_else(|problem| panic!("{problem}"))
    }

    /// Waits until a metric is at least this.
    fn wait_for_metric(&self, name: &str, labels: &[&str], least: f64) {
        wait(|| match self.try_metric(name, labels)? {
            value if value >= least => Ok(()),
            value => Err(format!(
                "{name} {labels:?} is {value}; log:\n{}",
                self.node.log()
            )),
        });
    }

    /// Lets the daemon finish with all it was seen to hear of, by telling it something that comes after.
    fn settle(&self) {
        let events = "kubeproxy_sync_proxy_rules_service_changes_total";
        let before = self.metric(events, &[]);
        self.apply(&service("after", 999, 30999, &[]));
        self.wait_for_metric(events, &[], before + 1.0);
    }

    /// Takes a port of the node.
    fn take_port(&self, address: &str) -> TcpListener {
        let _inside = self
            .node
            .world
            .enter(Role::Node)
            .expect("the node is there");
        TcpListener::bind(address).expect("the port is free")
    }
}
