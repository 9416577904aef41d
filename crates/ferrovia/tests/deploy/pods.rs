//! What holds for every pod we install.

use ferrovia::config::{Action, Config, flags};
use ferrovia::mode;
use serde_json::{Value, json};

use super::support::{Folder, at, find, text, title};

/// A configuration as kubeadm makes it, for pods that use the one they find.
const KUBEADM: &str = "\
apiVersion: kubeproxy.config.k8s.io/v1alpha1
bindAddress: 0.0.0.0
bindAddressHardFail: false
clientConnection:
  acceptContentTypes: \"\"
  burst: 0
  contentType: \"\"
  kubeconfig: /var/lib/kube-proxy/kubeconfig.conf
  qps: 0
clusterCIDR: 10.244.0.0/16
configSyncPeriod: 0s
conntrack:
  maxPerCore: null
  min: null
  tcpBeLiberal: false
  tcpCloseWaitTimeout: null
  tcpEstablishedTimeout: null
  udpStreamTimeout: 0s
  udpTimeout: 0s
detectLocal:
  bridgeInterface: \"\"
  interfaceNamePrefix: \"\"
detectLocalMode: \"\"
enableProfiling: false
healthzBindAddress: \"\"
hostnameOverride: \"\"
iptables:
  localhostNodePorts: null
  masqueradeAll: false
  masqueradeBit: null
  minSyncPeriod: 0s
  syncPeriod: 0s
kind: KubeProxyConfiguration
mode: \"\"
nodePortAddresses: null
oomScoreAdj: null
portRange: \"\"
showHiddenMetricsForVersion: \"\"
";

/// Every pod among the objects.
pub(crate) fn check_all(what: &str, objects: &[Value]) {
    for object in objects
        .iter()
        .filter(|object| object["kind"] == "DaemonSet")
    {
        let title = format!("{what}: {}", title(object));
        let pod = at(object, "/spec/template/spec");
        check_pod(&title, pod);
        for container in list(pod, "initContainers").chain(list(pod, "containers")) {
            if text(container, "/image").starts_with("ferrovia:") {
                check_command(&title, objects, pod, container);
            }
        }
        let daemon = list(pod, "containers").next().unwrap();
        if text(daemon, "/image").starts_with("ferrovia:") {
            check_probes(&title, daemon);
        }
        assert_eq!(
            at(object, "/spec/selector/matchLabels"),
            &selected(object),
            "{title}: the selector does not fit the pods' labels"
        );
    }
}

/// The labels of the pods that the selector asks for.
fn selected(object: &Value) -> Value {
    let wanted = at(object, "/spec/selector/matchLabels")
        .as_object()
        .unwrap();
    let labels = at(object, "/spec/template/metadata/labels");
    wanted
        .keys()
        .map(|key| (key.clone(), labels[key].clone()))
        .collect()
}

fn list<'v>(object: &'v Value, field: &str) -> impl Iterator<Item = &'v Value> {
    object[field].as_array().into_iter().flatten()
}

fn check_pod(title: &str, pod: &Value) {
    assert_eq!(pod["hostNetwork"], true, "{title}");
    assert_eq!(pod["priorityClassName"], "system-node-critical", "{title}");
    assert_eq!(
        pod["tolerations"],
        json!([{ "operator": "Exists" }]),
        "{title}"
    );
    let seccomp = text(pod, "/securityContext/seccompProfile/type");
    assert_ne!(seccomp, "Unconfined", "{title}");

    let volumes: Vec<_> = list(pod, "volumes").map(|volume| &volume["name"]).collect();
    for container in list(pod, "initContainers").chain(list(pod, "containers")) {
        for mount in list(container, "volumeMounts") {
            assert!(
                volumes.contains(&&mount["name"]),
                "{title}: no volume for {mount}"
            );
        }
    }
    for container in list(pod, "containers") {
        let may = &container["securityContext"];
        assert_ne!(may["privileged"], true, "{title}");
        assert_eq!(may["allowPrivilegeEscalation"], false, "{title}");
        assert_eq!(may["readOnlyRootFilesystem"], true, "{title}");
        assert_eq!(may["capabilities"]["drop"], json!(["ALL"]), "{title}");
        for capability in list(&may["capabilities"], "add") {
            assert!(
                ["NET_ADMIN", "NET_RAW"].contains(&capability.as_str().unwrap()),
                "{title}: {capability}"
            );
        }
    }
}

/// The daemon takes its flags and its configuration without a word, and has what its mode needs.
fn check_command(title: &str, objects: &[Value], pod: &Value, container: &Value) {
    let mut words: Vec<&str> = list(container, "command")
        .chain(list(container, "args"))
        .map(|word| word.as_str().unwrap())
        .collect();
    if !container["command"].is_null() {
        let program = words.remove(0);
        assert_eq!(program, "/usr/local/bin/kube-proxy", "{title}");
    }
    if words == ["cleanup"] {
        return;
    }
    let mounted = text(container, "/volumeMounts/0/mountPath");
    let volume =
        list(pod, "volumes").find(|volume| volume["name"] == container["volumeMounts"][0]["name"]);
    let map = text(volume.unwrap(), "/configMap/name");
    let config = match map {
        "kube-proxy" => KUBEADM,
        ours => text(
            find(objects, &format!("ConfigMap/{ours}")),
            "/data/config.conf",
        ),
    };
    let folder = Folder::new();
    std::fs::write(folder.path().join("config.conf"), config).unwrap();
    let words = words.iter().map(|word| {
        word.replace(mounted, &folder.path().display().to_string())
            .replace("$(NODE_NAME)", "node-1")
    });
    let typed = flags::parse(words).unwrap_or_else(|error| panic!("{title}: {error}"));
    let config = Config::load(typed).unwrap_or_else(|error| panic!("{title}: {error}"));
    assert_eq!(config.remarks, [], "{title}: said of the configuration");
    assert_eq!(config.settings.node_name, "node-1", "{title}");
    let is_first = container["name"] == "sysctls";
    assert_eq!(config.action == Action::InitOnly, is_first, "{title}");

    let has_tools = text(container, "/image").ends_with("-iptables");
    let needs_tools = config.mode != Some(mode::DEFAULT);
    assert_eq!(
        has_tools, needs_tools,
        "{title}: the image does not fit the mode"
    );
    if !is_first {
        let added = &container["securityContext"]["capabilities"]["add"];
        let expected = if needs_tools {
            json!(["NET_ADMIN", "NET_RAW"])
        } else {
            json!(["NET_ADMIN"])
        };
        assert_eq!(added, &expected, "{title}");
        let health = config.health.expect("probes ask for it").port();
        assert_eq!(container["ports"][0]["containerPort"], health, "{title}");
    }
}

fn check_probes(title: &str, daemon: &Value) {
    for (probe, page) in [("livenessProbe", "/livez"), ("readinessProbe", "/healthz")] {
        let asked = &daemon[probe]["httpGet"];
        assert_eq!(asked["path"], page, "{title}");
        assert_eq!(asked["port"], daemon["ports"][0]["name"], "{title}");
    }
}
