//! The role against what is really asked of an API server.

use std::collections::BTreeSet;
use std::process::Command;

use ferrovia_lab::apiserver::{ApiServer, ApiServerOptions};
use serde_json::Value;

use super::support::{FERROVIA, Folder, find, succeed, text};

/// Group, resource, verb.
type Right = (String, String, String);

fn strings(value: &Value) -> impl Iterator<Item = String> {
    let list = value.as_array().into_iter().flatten();
    list.map(|text| text.as_str().unwrap().to_owned())
}

fn allowed() -> BTreeSet<Right> {
    let objects = super::kustomize::render("base");
    let rules = &find(&objects, "ClusterRole/ferrovia")["rules"];
    let mut rights = BTreeSet::new();
    for rule in rules.as_array().unwrap() {
        for group in strings(&rule["apiGroups"]) {
            for resource in strings(&rule["resources"]) {
                let right = |verb| (group.clone(), resource.clone(), verb);
                rights.extend(strings(&rule["verbs"]).map(right));
            }
        }
    }
    rights
}

/// Lists are asked for as watches that begin with everything, and as lists where the server cannot do that.
fn asked() -> BTreeSet<Right> {
    let server = ApiServer::start(ApiServerOptions::default()).unwrap();
    let folder = Folder::new();
    let kubeconfig = server.kubeconfig(folder.path()).unwrap();
    succeed(
        Command::new(FERROVIA)
            .args(["plan", "--node-name=node-1", "--kubeconfig"])
            .arg(kubeconfig),
    );
    let mut rights = BTreeSet::new();
    for request in server.requests() {
        assert_eq!(request.method, "GET", "{}", request.path);
        let words: Vec<_> = request.path.trim_matches('/').split('/').collect();
        let (group, resource) = match words[..] {
            ["api", "v1", resource] => ("", resource),
            ["apis", group, _, resource] => (group, resource),
            _ => panic!("{} is not a list of the whole cluster", request.path),
        };
        // To watch from the beginning is allowed by the same two verbs.
        for verb in ["list", "watch"] {
            rights.insert((group.to_owned(), resource.to_owned(), verb.to_owned()));
        }
    }
    rights
}

#[test]
fn the_role_allows_what_is_asked_for_and_nothing_else() {
    let mut needed = asked();
    // Posted only when there is something to report: `tests/kube/notices.rs` shows the request.
    needed.insert(("events.k8s.io".into(), "events".into(), "create".into()));
    assert_eq!(allowed(), needed);
}

#[test]
fn the_role_is_bound_to_the_pods_account() {
    let objects = super::kustomize::render("base");
    let binding = find(&objects, "ClusterRoleBinding/ferrovia");
    let account = find(&objects, "ServiceAccount/ferrovia");
    let pod = &find(&objects, "DaemonSet/ferrovia")["spec"]["template"]["spec"];
    assert_eq!(binding["roleRef"]["name"], "ferrovia");
    assert_eq!(binding["subjects"][0]["name"], account["metadata"]["name"]);
    assert_eq!(
        binding["subjects"][0]["namespace"],
        account["metadata"]["namespace"]
    );
    assert_eq!(
        text(pod, "/serviceAccountName"),
        text(account, "/metadata/name")
    );
}
