//! The chart, rendered by helm itself.

use std::process::Command;

use serde_json::Value;

use super::support::{documents, find, path, read, run, succeed, text};
use super::{pods, schema};

fn helm(action: &[&str], values: &[&str]) -> Command {
    let mut command = Command::new("helm");
    command
        .args(action)
        .arg(path("deploy/helm/ferrovia"))
        .arg("--namespace=kube-system");
    for value in values {
        command.args(["--set-json", value]);
    }
    command
}

fn render(values: &[&str]) -> Vec<Value> {
    documents(&succeed(&mut helm(&["template", "proxy"], values)))
}

#[test]
fn the_chart_is_sound() {
    succeed(&mut helm(&["lint", "--strict"], &[]));
}

#[test]
fn every_mode_gives_objects_the_api_takes_and_pods_that_can_run() {
    for mode in ["nftables", "iptables", "ipvs", "userspace"] {
        let objects = render(&[&format!("mode={mode:?}")]);
        objects.iter().for_each(schema::check);
        pods::check_all(mode, &objects);
        let config = text(find(&objects, "ConfigMap/proxy"), "/data/config.conf");
        assert!(config.contains(&format!("mode: {mode}\n")), "{config}");
    }
}

#[test]
fn values_reach_their_places() {
    let objects = render(&[
        r#"image={"tag":"1.2.3"}"#,
        r#"apiServer={"host":"192.0.2.10"}"#,
        r#"clusterCIDR="10.244.0.0/16""#,
        r#"config={"nftables":{"masqueradeAll":true},"ferrovia":{"noEndpoints":"drop"}}"#,
        r#"metrics={"serviceMonitor":{"enabled":true}}"#,
        r#"podAnnotations={"a":"b"}"#,
        r#"affinity={"nodeAffinity":{}}"#,
        r#"imagePullSecrets=[{"name":"secret"}]"#,
    ]);
    objects.iter().for_each(schema::check);
    pods::check_all("values", &objects);
    let config = text(find(&objects, "ConfigMap/proxy"), "/data/config.conf");
    for line in [
        "clusterCIDR: 10.244.0.0/16",
        "  masqueradeAll: true",
        "  noEndpoints: drop",
        "metricsBindAddress: 0.0.0.0:10249",
    ] {
        assert!(config.contains(line), "no {line:?} in:\n{config}");
    }
    let daemon = &find(&objects, "DaemonSet/proxy")["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(daemon["image"], "ferrovia:1.2.3");
    assert_eq!(daemon["env"][1]["value"], "192.0.2.10");
    assert_eq!(daemon["env"][2]["value"], "6443");
    assert_eq!(daemon["ports"][1]["name"], "metrics");
    find(&objects, "ServiceMonitor/proxy");
}

#[test]
fn nonsense_is_refused() {
    for value in [
        r#"mode="winkernel""#,
        r#"imgae={}"#,
        r#"apiServer={"port":0}"#,
    ] {
        let output = run(&mut helm(&["template", "proxy"], &[value]));
        assert!(!output.status.success(), "{value}");
    }
}

/// Chart, images and packages are of one version, the program's.
#[test]
fn versions_agree() {
    let version = env!("CARGO_PKG_VERSION");
    let chart = &documents(&read(&path("deploy/helm/ferrovia/Chart.yaml")))[0];
    assert_eq!(text(chart, "/version"), version);
    assert_eq!(text(chart, "/appVersion"), version);
    for overlay in super::kustomize::OVERLAYS {
        for object in super::kustomize::render(overlay) {
            for line in object.to_string().split('"') {
                if let Some(tag) = line.strip_prefix("ferrovia:") {
                    assert_eq!(tag.trim_end_matches("-iptables"), version, "{overlay}");
                }
            }
        }
    }
}

/// Both ways to install give the same rights.
#[test]
fn the_role_is_that_of_the_manifests() {
    let chart = render(&[]);
    let base = super::kustomize::render("base");
    assert_eq!(
        find(&chart, "ClusterRole/proxy")["rules"],
        find(&base, "ClusterRole/ferrovia")["rules"]
    );
}
