//! The daemon as a drop-in replacement for kube-proxy: run under that name, with kubeadm's configuration file and a kubeconfig, against an
//! API server on the node.
//!
//! - `objects`: Services, EndpointSlices and the Node, from the API to the packets
//! - `start`: command line, actions, privileges, and errors that make it exit at once
//! - `config`: changes of the configuration file
//! - `outage`: an API server that is unreachable, has expired resourceVersions, or sends nothing
//! - `pod`: in-cluster credentials instead of a kubeconfig
//! - `health`: health checks of load balancers and the kubelet
//! - `metrics`: metrics over HTTP
//! - `events`: Events that `kubectl` shows
//! - `flows`: stale UDP flows

mod config;
mod events;
mod flows;
mod health;
mod metrics;
mod objects;
mod outage;
mod pod;
mod start;

use std::net::TcpListener;

use ferrovia_lab::Role;
use ferrovia_lab::apiserver::{ApiServer, ApiServerOptions, Auth, Kind, sample};
use ferrovia_lab::daemon::TestNode;
use ferrovia_lab::daemon::manifests::service;
use ferrovia_lab::layout::NODE_ADDRESSES;
use ferrovia_lab::plain_http::HttpResponse;
use ferrovia_lab::waiting::wait;
use serde_json::Value;

use crate::FERROVIA;

/// A node with an API server. The daemon runs under kube-proxy's name.
struct Cluster {
    api: ApiServer,
    node: TestNode,
}

impl Cluster {
    /// A cluster with a Node and nothing else.
    fn new() -> Self {
        let cluster = Self::with(ApiServerOptions::default());
        cluster.apply_node(|_| {});
        cluster
    }

    /// A cluster without objects.
    fn with(mut options: ApiServerOptions) -> Self {
        options.tls = true;
        options.auth = Auth::TokenFile;
        let node = TestNode::new(FERROVIA);
        let api = {
            let _inside = node
                .world
                .enter(Role::Node)
                .expect("the node's namespace can be entered");
            ApiServer::start(options)
        };
        let api = api.expect("the API server starts");
        let kubeconfig = api
            .kubeconfig(node.folder())
            .expect("the folder is writable");
        node.install_as_kube_proxy(&kubeconfig);
        Self { api, node }
    }

    fn start(&self) {
        self.node.start_as_kube_proxy();
    }

    fn start_without_waiting(&self) {
        self.node.start_as_kube_proxy_without_waiting();
    }

    /// Applies the objects of a manifest.
    fn apply(&self, manifest: &str) {
        for document in manifest.split("---\n") {
            let mut object: Value = serde_saphyr::from_str(document).expect("the manifest is YAML");
            let metadata = &mut object["metadata"];
            if metadata["namespace"].is_null() {
                metadata["namespace"] = "default".into();
            }
            self.api
                .apply(object)
                .expect("the API server accepts the object");
        }
    }

    /// Applies the Node under test with a change.
    fn apply_node(&self, change: impl FnOnce(&mut Value)) {
        let [v4, _, v6, _] = NODE_ADDRESSES;
        let mut node = sample::node("node-1", &[v4, v6]);
        change(&mut node);
        self.api
            .apply(node)
            .expect("the API server accepts the object");
    }

    /// Deletes a Service but not its slices.
    fn delete_service(&self, name: &str) {
        assert!(self.api.delete(Kind::Service, "default", name), "{name}");
    }

    /// Sends a GET request to one of the daemon's servers, from the node.
    fn get(&self, address: &str, path: &str) -> HttpResponse {
        self.node
            .try_get(address, path)
            .unwrap_or_else(|problem| panic!("{problem}"))
    }

    /// Repeats a GET request until the response has this status code.
    fn get_soon(&self, address: &str, path: &str, code: u16) -> HttpResponse {
        let mut last = None;
        wait(|| {
            let reply = self.node.try_get(address, path)?;
            if reply.code == code {
                last = Some(reply);
                return Ok(());
            }
            Err(format!("{address}{path} returned {reply:?}"))
        });
        last.expect("the wait succeeded")
    }

    /// The sum of the series with this name and all of these labels, such as `code="200"`.
    fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        self.node
            .try_metric(name, labels)
            .unwrap_or_else(|problem| panic!("{problem}"))
    }

    fn wait_for_metric(&self, name: &str, labels: &[&str], least: f64) {
        self.node.wait_for_metric(name, labels, least);
    }

    /// Waits until the daemon has processed everything it received, by applying another object after it.
    fn settle(&self) {
        let events = "kubeproxy_sync_proxy_rules_service_changes_total";
        let before = self.metric(events, &[]);
        self.apply(&service("after", 999, 30999, &[]));
        self.wait_for_metric(events, &[], before + 1.0);
    }

    /// Listens on a port of the node.
    fn take_port(&self, address: &str) -> TcpListener {
        let _inside = self
            .node
            .world
            .enter(Role::Node)
            .expect("the node's namespace can be entered");
        TcpListener::bind(address).expect("the port is free")
    }
}
