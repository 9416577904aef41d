//! A node of the lab with a control plane of its own, and the daemon in the place of kube-proxy.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ferrovia_lab::Role;
use ferrovia_lab::control_plane::{
    Ask, Assets, Client, ControlPlane, Identity, Options, Relay, Reply, Stop,
};
use ferrovia_lab::layout::NODE_ADDRESSES;
use ferrovia_lab::plain_http::{self, try_request};
use serde_json::{Value, json};

use crate::support::{Node, wait};

/// The daemon's servers, where kube-proxy has them.
pub(crate) const HEALTH: &str = "127.0.0.1:10256";
pub(crate) const METRICS: &str = "127.0.0.1:10249";

/// The user that the stock role `system:node-proxier` is bound to.
pub(crate) const PROXY_USER: &str = "system:kube-proxy";

/// The file as kubeadm writes it, with a mode, and without what would change the whole machine.
const CONFIG: &str = include_str!("../daemon/cluster/kubeadm.yaml");

/// A control plane on the node. The daemon reaches it through a relay.
pub(crate) struct Cluster {
    // Dropped in this order: clients before servers, all before their namespaces.
    pub(crate) relay: Relay,
    plane: Mutex<ControlPlane>,
    pub(crate) admin: Client,
    pub(crate) node: Node,
}

impl Cluster {
    /// A control plane that knows only the Node.
    pub(crate) fn new(assets: &Assets) -> Self {
        Self::with(assets, "etcd", &[])
    }

    /// The same with another etcd, and with more arguments for kube-apiserver.
    pub(crate) fn with(assets: &Assets, etcd: &'static str, arguments: &[&str]) -> Self {
        let node = Node::new();
        let options = Options {
            etcd,
            arguments: arguments.iter().map(ToString::to_string).collect(),
            advertise: NODE_ADDRESSES[0],
        };
        let (plane, relay) = {
            let _inside = node.world.enter(Role::Node).expect("the node is there");
            let plane = ControlPlane::start(assets, options)
                .unwrap_or_else(|error| panic!("no control plane: {error}"));
            let relay = Relay::start(plane.address()).expect("a port is free");
            (plane, relay)
        };
        let link = node.folder().join("kube-proxy");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ferrovia"), link).expect("it can be made");
        let cluster = Self {
            admin: plane.admin().expect("the administrator has a certificate"),
            plane: Mutex::new(plane),
            relay,
            node,
        };
        let identity = cluster.identity(PROXY_USER);
        cluster.write_kubeconfig(cluster.relay.address(), &identity);
        cluster.apply_node();
        cluster
    }

    /// The control plane, for orders that need it alone. Enter the node before programs are started.
    pub(crate) fn plane(&self) -> MutexGuard<'_, ControlPlane> {
        self.plane.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the control plane in the node's namespace.
    pub(crate) fn on_plane<T>(
        &self,
        work: impl FnOnce(&mut ControlPlane) -> Result<T, ferrovia_lab::control_plane::Error>,
    ) -> T {
        self.inside(|| work(&mut self.plane()))
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Does something in the node's namespace.
    pub(crate) fn inside<T>(&self, work: impl FnOnce() -> T) -> T {
        let entered = self.node.world.enter(Role::Node);
        let _inside = entered.expect("the node is there");
        work()
    }

    /// A client certificate for a user.
    pub(crate) fn identity(&self, user: &str) -> Identity {
        let plane = self.plane();
        plane.pki().client(user, None).expect("keys can be made")
    }

    /// Writes the kubeconfig, and the configuration file that names it.
    pub(crate) fn write_kubeconfig(&self, address: SocketAddr, identity: &Identity) {
        let folder = self.node.folder();
        let path = self.plane().kubeconfig(folder, address, identity);
        let path = path.expect("the folder is writable");
        let path = path.to_str().expect("the path is text");
        self.node
            .write("config.conf", &CONFIG.replace("KUBECONFIG", path));
    }

    /// Restarts kube-apiserver, with something done in between.
    pub(crate) fn restart_server(&self, how: Stop, meanwhile: impl FnOnce()) {
        self.on_plane(|plane| plane.stop_server(how));
        meanwhile();
        self.on_plane(ControlPlane::start_server);
    }
}

/// The daemon.
impl Cluster {
    /// The arguments of kubeadm's DaemonSet, and one without which all of these daemons would want the same file.
    pub(crate) fn arguments(&self) -> [String; 3] {
        let file = self.node.folder().join("config.conf");
        [
            format!("--config={}", file.display()),
            "--hostname-override=node-1".to_owned(),
            "--admin-socket=".to_owned(),
        ]
    }

    /// The program under kube-proxy's name.
    pub(crate) fn program(&self) -> PathBuf {
        self.node.folder().join("kube-proxy")
    }

    /// Starts the daemon and waits until all services are in the kernel.
    pub(crate) fn start(&self) {
        self.start_without_waiting();
        self.node.wait_until_ready();
    }

    pub(crate) fn start_without_waiting(&self) {
        let program = self.program();
        let program = program.to_str().expect("the path is text");
        let mut command: Command = self.node.world.exec(Role::Node, program);
        command.args(self.arguments());
        self.node.spawn(command);
    }

    /// Asks one of the daemon's servers.
    pub(crate) fn get(&self, address: &str, path: &str) -> Result<plain_http::Reply, String> {
        let address: SocketAddr = address.parse().expect("an address and port");
        self.inside(|| try_request(address, "GET", path, &[], ""))
            .map_err(|error| format!("{address}{path}: {error}; log:\n{}", self.node.log()))
    }

    /// The sum of the series with this name and all of these labels, such as `code="200"`.
    pub(crate) fn metric(&self, name: &str, labels: &[&str]) -> Result<f64, String> {
        let text = self.get(METRICS, "/metrics")?.body;
        let series = text.lines().filter_map(|line| {
            let (own, value) = line.strip_prefix(name)?.rsplit_once(' ')?;
            let is_it = own.is_empty() || own.starts_with('{');
            (is_it && labels.iter().all(|label| own.contains(label)))
                .then(|| value.parse::<f64>().expect("a value"))
        });
        Ok(series.sum())
    }

    /// Waits until a metric is at least this.
    pub(crate) fn wait_for_metric(&self, name: &str, labels: &[&str], least: f64) {
        wait(|| match self.metric(name, labels)? {
            value if value >= least => Ok(()),
            value => Err(format!(
                "{name} {labels:?} is {value}; log:\n{}",
                self.node.log()
            )),
        });
    }
}

/// Objects of the API.
impl Cluster {
    /// Asks as an administrator; the answer must be a success.
    pub(crate) fn ask(&self, ask: &Ask<'_>) -> Value {
        let reply = self.try_ask(ask);
        let is_ok = (200..300).contains(&reply.head.code);
        assert!(is_ok, "{} {}: {}", ask.method, ask.target, reply.json());
        reply.json()
    }

    /// Asks as an administrator.
    pub(crate) fn try_ask(&self, ask: &Ask<'_>) -> Reply {
        self.inside(|| self.admin.ask(ask))
            .unwrap_or_else(|error| panic!("{} {}: {error}", ask.method, ask.target))
    }

    /// Creates objects, or changes them to what a manifest says.
    pub(crate) fn apply(&self, manifest: &str) {
        for document in manifest.split("---\n") {
            let object: Value = serde_saphyr::from_str(document).expect("it is YAML");
            self.apply_object(&object);
        }
    }

    pub(crate) fn apply_object(&self, object: &Value) {
        let target = format!("{}?fieldManager=lab&force=true", path(object));
        let body = object.to_string();
        self.ask(&Ask {
            content_type: "application/apply-patch+yaml",
            ..Ask::send("PATCH", &target, body.as_bytes())
        });
    }

    /// Creates the Node under test.
    fn apply_node(&self) {
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}});
        self.apply_object(&object);
        let [v4, _, v6, _] = NODE_ADDRESSES;
        let addresses = [v4, v6].map(|ip| json!({"type": "InternalIP", "address": ip}));
        let body = json!({"status": {"addresses": addresses}}).to_string();
        self.ask(&Ask {
            content_type: "application/merge-patch+json",
            ..Ask::send("PATCH", "/api/v1/nodes/node-1/status", body.as_bytes())
        });
    }

    pub(crate) fn delete_service(&self, name: &str) {
        let target = format!("/api/v1/namespaces/default/services/{name}");
        self.ask(&Ask::send("DELETE", &target, &[]));
    }
}

/// Where an object is in the API.
fn path(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, version) = (text(&object["kind"]), text(&object["apiVersion"]));
    let name = text(&object["metadata"]["name"]);
    let (plural, is_namespaced) = match kind.as_str() {
        "Service" => ("services", true),
        "EndpointSlice" => ("endpointslices", true),
        "ServiceAccount" => ("serviceaccounts", true),
        "Node" => ("nodes", false),
        "ClusterRole" => ("clusterroles", false),
        "ClusterRoleBinding" => ("clusterrolebindings", false),
        "FlowSchema" => ("flowschemas", false),
        "PriorityLevelConfiguration" => ("prioritylevelconfigurations", false),
        other => panic!("no path for kind {other:?}"),
    };
    let group = match version.as_str() {
        "v1" => "/api/v1".to_owned(),
        version => format!("/apis/{version}"),
    };
    let namespace = match (is_namespaced, object["metadata"]["namespace"].as_str()) {
        (true, namespace) => format!("/namespaces/{}", namespace.unwrap_or("default")),
        (false, _) => String::new(),
    };
    format!("{group}{namespace}/{plural}/{name}")
}
