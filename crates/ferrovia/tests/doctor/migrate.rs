//! What would change on a node with real rules.

use super::support::{Patient, WEB};

#[test]
fn what_changes_is_listed_and_the_exit_code_says_so() {
    let patient = Patient::new();
    let folder = patient.with_manifest(WEB);
    patient.run(
        "iptables-nft -w 30 -P FORWARD DROP
         iptables-nft -w 30 -t nat -N KUBE-MARK-MASQ
         iptables-nft -w 30 -t nat -N CNI-HOSTPORT-SETMARK
         iptables-nft -w 30 -t nat -A CNI-HOSTPORT-SETMARK -j KUBE-MARK-MASQ",
    );
    let check = [
        "migrate", "--from", "iptables", "--to", "nftables", "--check",
    ];
    let given = ["--manifests", &folder, "--node-name", "node-1"];
    let output = patient.ferrovia(&[&check[..], &given, &["-o", "json"]].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let changes = json["changes"].as_array().expect("there is a list");
    let names: Vec<_> = changes
        .iter()
        .filter_map(|change| change["change"].as_str())
        .collect();
    for expected in [
        "localhost-node-ports",
        "node-port-addresses",
        "forwarding",
        "rules-of-others",
    ] {
        assert!(names.contains(&expected), "{expected} in {names:?}");
    }
    assert_eq!(changes[0]["services"][0], "shop/web");
    let output = patient.ferrovia(&[&check[..], &given].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("CNI-HOSTPORT-SETMARK -j KUBE-MARK-MASQ"),
        "{text}"
    );
}

#[test]
fn nothing_changes_for_a_plain_service() {
    let patient = Patient::new();
    let folder = patient.with_manifest(
        &WEB.replace("NodePort", "ClusterIP")
            .replace(", nodePort: 30080", ""),
    );
    let config = patient.folder.join("config.yaml");
    let text = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: ipvs\n\
                ipvs: {minSyncPeriod: 1s, syncPeriod: 30s}\nnftables: {minSyncPeriod: 1s, syncPeriod: 30s}\n";
    std::fs::write(&config, text).expect("the folder is writable");
    let config = config.display().to_string();
    let output = patient.ferrovia(&[
        "migrate",
        "--from",
        "ipvs",
        "--check",
        "--config",
        &config,
        "--manifests",
        &folder,
        "--node-name",
        "node-1",
    ]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}{output:?}");
    assert!(
        text.starts_with("from ipvs to nftables: nothing changes"),
        "{text}"
    );
}

#[test]
fn reports_a_kube_proxys_fallback_regardless_of_its_configuration() {
    let patient = Patient::new();
    let local = WEB.replace(
        "type: NodePort",
        "type: NodePort\n  externalTrafficPolicy: Local",
    );
    let folder = patient.with_manifest(&local);
    let config = patient.folder.join("config.yaml");
    let text =
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: ipvs\n";
    std::fs::write(&config, text).expect("the folder is writable");
    let config = config.display().to_string();
    let check = ["migrate", "--from", "ipvs", "--check", "--config", &config];
    let output = patient.ferrovia(&[&check[..], &["--manifests", &folder]].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text.contains("local-fallback"), "{text}");
}

#[test]
fn without_check_the_steps_are_printed() {
    let patient = Patient::new();
    let output = patient.ferrovia(&["migrate", "--from", "ipvs", "--to", "nftables"]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("mode: nftables") && text.contains("To go back"),
        "{text}"
    );
}

#[test]
fn without_objects_it_says_what_to_give() {
    let patient = Patient::new();
    let output = patient.ferrovia(&["migrate", "--from", "iptables", "--check"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("--manifests DIR") && said.lines().count() == 1,
        "{said}"
    );
}
