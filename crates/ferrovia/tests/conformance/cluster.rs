//! A node of the lab with a control plane of its own, and the daemon in place of kube-proxy.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ferrovia_lab::Role;
use ferrovia_lab::control_plane::{
    ApiClient, ApiRequest, ApiResponse, Assets, ControlPlane, ControlPlaneOptions, Identity, Relay,
    Stop,
};
use ferrovia_lab::daemon::TestNode;
use ferrovia_lab::layout::NODE_ADDRESSES;
use ferrovia_lab::plain_http;
use serde_json::{Value, json};

use crate::FERROVIA;

/// The user that the stock role `system:node-proxier` is bound to.
pub(crate) const PROXY_USER: &str = "system:kube-proxy";

/// A control plane on the node. The daemon reaches it through a relay.
pub(crate) struct Cluster {
    // Dropped in this order: clients before servers, all before their namespaces.
    pub(crate) relay: Relay,
    plane: Mutex<ControlPlane>,
    pub(crate) admin: ApiClient,
    pub(crate) node: TestNode,
}

impl Cluster {
    /// A control plane with the Node and no other objects.
    pub(crate) fn new(assets: &Assets) -> Self {
        Self::with(assets, "etcd", &[])
    }

    /// Like [`Self::new`], with another etcd and additional arguments for kube-apiserver.
    pub(crate) fn with(assets: &Assets, etcd: &'static str, arguments: &[&str]) -> Self {
        let node = TestNode::new(FERROVIA);
        let options = ControlPlaneOptions {
            etcd,
            arguments: arguments.iter().map(ToString::to_string).collect(),
            advertise: NODE_ADDRESSES[0],
        };
        let (plane, relay) = {
            let _inside = node
                .world
                .enter(Role::Node)
                .expect("the node's namespace can be entered");
            let plane = ControlPlane::start(assets, options)
                .unwrap_or_else(|error| panic!("cannot start a control plane: {error}"));
            let relay = Relay::start(plane.address()).expect("a port is free");
            (plane, relay)
        };
        let cluster = Self {
            admin: plane.admin().expect("the administrator has a certificate"),
            plane: Mutex::new(plane),
            relay,
            node,
        };
        let identity = cluster.identity(PROXY_USER);
        let kubeconfig = cluster.kubeconfig(cluster.relay.address(), &identity);
        cluster.node.install_as_kube_proxy(&kubeconfig);
        cluster.apply_node();
        cluster
    }

    /// The control plane. Enter the node's namespace before starting programs.
    pub(crate) fn plane(&self) -> MutexGuard<'_, ControlPlane> {
        self.plane.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs an operation on the control plane in the node's namespace.
    pub(crate) fn on_plane<T>(
        &self,
        work: impl FnOnce(&mut ControlPlane) -> Result<T, ferrovia_lab::control_plane::Error>,
    ) -> T {
        self.inside(|| work(&mut self.plane()))
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs an operation in the node's namespace.
    pub(crate) fn inside<T>(&self, work: impl FnOnce() -> T) -> T {
        let entered = self.node.world.enter(Role::Node);
        let _inside = entered.expect("the node's namespace can be entered");
        work()
    }

    /// A client certificate for a user.
    pub(crate) fn identity(&self, user: &str) -> Identity {
        let plane = self.plane();
        plane.pki().client(user, None).expect("keys can be made")
    }

    fn kubeconfig(&self, address: SocketAddr, identity: &Identity) -> PathBuf {
        let folder = self.node.folder();
        let path = self.plane().kubeconfig(folder, address, identity);
        path.expect("the folder is writable")
    }

    /// Writes the kubeconfig, and the configuration file that names it.
    pub(crate) fn write_kubeconfig(&self, address: SocketAddr, identity: &Identity) {
        self.node
            .use_kubeconfig(&self.kubeconfig(address, identity));
    }

    /// Restarts kube-apiserver, with an operation while it is stopped.
    pub(crate) fn restart_server(&self, how: Stop, meanwhile: impl FnOnce()) {
        self.on_plane(|plane| plane.stop_server(how));
        meanwhile();
        self.on_plane(ControlPlane::start_server);
    }
}

/// The daemon.
impl Cluster {
    pub(crate) fn start(&self) {
        self.node.start_as_kube_proxy();
    }

    pub(crate) fn start_without_waiting(&self) {
        self.node.start_as_kube_proxy_without_waiting();
    }

    pub(crate) fn get(
        &self,
        address: &str,
        path: &str,
    ) -> Result<plain_http::HttpResponse, String> {
        self.node.try_get(address, path)
    }

    pub(crate) fn metric(&self, name: &str, labels: &[&str]) -> Result<f64, String> {
        self.node.try_metric(name, labels)
    }

    pub(crate) fn wait_for_metric(&self, name: &str, labels: &[&str], least: f64) {
        self.node.wait_for_metric(name, labels, least);
    }
}

/// Objects of the API.
impl Cluster {
    /// Sends a request as administrator; it must succeed.
    pub(crate) fn ask(&self, ask: &ApiRequest<'_>) -> Value {
        let reply = self.try_ask(ask);
        let is_ok = (200..300).contains(&reply.head.code);
        assert!(is_ok, "{} {}: {}", ask.method, ask.target, reply.json());
        reply.json()
    }

    /// Sends a request as administrator.
    pub(crate) fn try_ask(&self, ask: &ApiRequest<'_>) -> ApiResponse {
        self.inside(|| self.admin.ask(ask))
            .unwrap_or_else(|error| panic!("{} {}: {error}", ask.method, ask.target))
    }

    /// Applies the objects of a manifest.
    pub(crate) fn apply(&self, manifest: &str) {
        for document in manifest.split("---\n") {
            let object: Value = serde_saphyr::from_str(document).expect("the manifest is YAML");
            self.apply_object(&object);
        }
    }

    pub(crate) fn apply_object(&self, object: &Value) {
        let target = format!("{}?fieldManager=lab&force=true", path(object));
        let body = object.to_string();
        self.ask(&ApiRequest {
            content_type: "application/apply-patch+yaml",
            ..ApiRequest::send("PATCH", &target, body.as_bytes())
        });
    }

    /// Creates the Node under test.
    fn apply_node(&self) {
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}});
        self.apply_object(&object);
        let [v4, _, v6, _] = NODE_ADDRESSES;
        let addresses = [v4, v6].map(|ip| json!({"type": "InternalIP", "address": ip}));
        let body = json!({"status": {"addresses": addresses}}).to_string();
        self.ask(&ApiRequest {
            content_type: "application/merge-patch+json",
            ..ApiRequest::send("PATCH", "/api/v1/nodes/node-1/status", body.as_bytes())
        });
    }

    pub(crate) fn delete_service(&self, name: &str) {
        let target = format!("/api/v1/namespaces/default/services/{name}");
        self.ask(&ApiRequest::send("DELETE", &target, &[]));
    }
}

/// The path of an object in the API.
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
