//! The chart. What helm makes of it is kept in `rendered/`, with a fingerprint of the chart it was made of, since Debian has no helm:
//! `make chart` asks one that you have installed, compares, and with `BLESS=1` keeps what it says.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::support::{documents, find, path, read, run, succeed, text};
use super::{pods, schema};

/// What the chart is rendered with, by name.
const RENDERED: [(&str, &[&str]); 5] = [
    ("nftables", &[r#"mode="nftables""#]),
    ("iptables", &[r#"mode="iptables""#]),
    ("ipvs", &[r#"mode="ipvs""#]),
    ("userspace", &[r#"mode="userspace""#]),
    (
        "values",
        &[
            r#"image={"tag":"1.2.3"}"#,
            r#"apiServer={"host":"192.0.2.10"}"#,
            r#"clusterCIDR="10.244.0.0/16""#,
            r#"config={"nftables":{"masqueradeAll":true},"ferrovia":{"noEndpoints":"drop"}}"#,
            r#"metrics={"serviceMonitor":{"enabled":true}}"#,
            r#"podAnnotations={"a":"b"}"#,
            r#"affinity={"nodeAffinity":{}}"#,
            r#"imagePullSecrets=[{"name":"secret"}]"#,
        ],
    ),
];

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

fn kept(name: &str) -> PathBuf {
    path("crates/ferrovia/tests/deploy/rendered").join(format!("chart-{name}.yaml"))
}

/// What helm made of the chart.
fn render(name: &str) -> Vec<Value> {
    documents(&read(&kept(name)))
}

/// Changes when any file of the chart does (FNV-1a).
fn fingerprint() -> String {
    let mut files = Vec::new();
    collect(&path("deploy/helm/ferrovia"), &mut files);
    files.sort();
    let bytes = files.iter().flat_map(|file| read(file).into_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("# of the chart {hash:016x}\n")
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push(path);
        }
    }
}

#[test]
fn what_is_kept_is_of_this_chart() {
    for (name, _) in RENDERED {
        let text = read(&kept(name));
        assert!(
            text.starts_with(&fingerprint()),
            "the chart has changed: `BLESS=1 make chart`, with helm installed, renders {name} again"
        );
    }
}

#[test]
#[ignore = "wants helm: make chart"]
fn helm_says_what_is_kept() {
    succeed(&mut helm(&["lint", "--strict"], &[]));
    for (name, values) in RENDERED {
        let said = succeed(&mut helm(&["template", "proxy"], values));
        let said = fingerprint() + &said;
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(kept(name), said).unwrap();
        } else {
            assert_eq!(said, read(&kept(name)), "{name}");
        }
    }
}

#[test]
#[ignore = "wants helm: make chart"]
fn helm_refuses_nonsense() {
    for value in [
        r#"mode="winkernel""#,
        r#"imgae={}"#,
        r#"apiServer={"port":0}"#,
    ] {
        let output = run(&mut helm(&["template", "proxy"], &[value]));
        assert!(!output.status.success(), "{value}");
    }
}

#[test]
fn every_mode_gives_objects_the_api_takes_and_pods_that_can_run() {
    for mode in ["nftables", "iptables", "ipvs", "userspace"] {
        let objects = render(mode);
        objects.iter().for_each(schema::check);
        pods::check_all(mode, &objects);
        let config = text(find(&objects, "ConfigMap/proxy"), "/data/config.conf");
        assert!(config.contains(&format!("mode: {mode}\n")), "{config}");
    }
}

#[test]
fn values_reach_their_places() {
    let objects = render("values");
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
    let chart = render("nftables");
    let base = super::kustomize::render("base");
    assert_eq!(
        find(&chart, "ClusterRole/proxy")["rules"],
        find(&base, "ClusterRole/ferrovia")["rules"]
    );
}
