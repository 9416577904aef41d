//! With the configuration file of a cluster and the objects of its API server.

use ferrovia_lab::Role;
use ferrovia_lab::apiserver::{ApiServer, ApiServerOptions};
use serde_json::json;

use super::support::{Patient, Report, WEB};

/// A node of a cluster with one Service that has a node port.
struct Cluster {
    patient: Patient,
    api: ApiServer,
    config: String,
}

impl Cluster {
    fn new() -> Self {
        let patient = Patient::new();
        let api = {
            let _inside = patient
                .world
                .enter(Role::Node)
                .expect("the node can be entered");
            ApiServer::start(ApiServerOptions::default()).expect("the API server starts")
        };
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "type": "NodePort", "clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10"],
                "ports": [{"name": "http", "protocol": "TCP", "port": 80, "nodePort": 30080}],
            },
        });
        api.apply(service).expect("the API server takes it");
        let kubeconfig = api
            .kubeconfig(patient.folder.path())
            .expect("it can be written");
        let text = format!(
            "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: iptables\n\
             hostnameOverride: node-1\nclientConnection: {{kubeconfig: {}}}\n",
            kubeconfig.display()
        );
        let config = patient.folder.join("config.conf");
        std::fs::write(&config, text).expect("the folder is writable");
        let config = config.display().to_string();
        Self {
            patient,
            api,
            config,
        }
    }
}

#[test]
fn objects_come_from_the_api_server_of_the_configuration() {
    let cluster = Cluster::new();
    let report = cluster.patient.examine(&["--config", &cluster.config]);
    report.expect("ports/listeners", "ok", "looked at: 1");
    let check = ["migrate", "--from", "iptables", "--check", "-o", "json"];
    let output = cluster
        .patient
        .ferrovia(&[&check[..], &["--config", &cluster.config]].concat());
    let Report { code, json } = Report::of(&output);
    assert_eq!(code, Some(1), "{json:#}");
    assert_eq!(json["changes"][0]["change"], "localhost-node-ports");
    assert_eq!(json["changes"][0]["services"][0], "shop/web");
}

#[test]
fn a_folder_goes_before_the_api_server_of_the_configuration() {
    let cluster = Cluster::new();
    let two = format!(
        "{WEB}---{}",
        WEB.replace("web", "api")
            .replace("30080", "30081")
            .replace("0.10", "0.11")
    );
    let folder = cluster.patient.with_manifest(&two);
    let asked = cluster.api.requests().len();
    let arguments = ["--config", &cluster.config, "--manifests", &folder];
    let report = cluster.patient.examine(&arguments);
    report.expect("ports/listeners", "ok", "looked at: 2");
    assert_eq!(
        cluster.api.requests().len(),
        asked,
        "nobody asked the API server"
    );
}
