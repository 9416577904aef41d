//! Base and overlays. What kustomize does with them is done here again, as far as we use it: resources, and patches that are merged by
//! name. That it comes to the same is shown by what `kubectl kustomize` made of each, which is kept in `rendered/`.
//!
//! After a change: `for o in base canary in-place cleanup modes/iptables modes/ipvs modes/userspace; do kubectl kustomize
//! deploy/kustomize/$o > crates/ferrovia/tests/deploy/rendered/$(basename $o).yaml; done`

use std::path::Path;

use serde_json::Value;

use super::support::{documents, find, path, read, text, title};
use super::{pods, schema};

pub(crate) const OVERLAYS: [&str; 7] = [
    "base",
    "canary",
    "in-place",
    "cleanup",
    "modes/iptables",
    "modes/ipvs",
    "modes/userspace",
];

/// All objects of an overlay.
pub(crate) fn render(overlay: &str) -> Vec<Value> {
    render_folder(&path("deploy/kustomize").join(overlay))
}

fn render_folder(folder: &Path) -> Vec<Value> {
    let file = folder.join("kustomization.yaml");
    let [kustomization] = &documents(&read(&file))[..] else {
        panic!("{} holds more than one document", file.display());
    };
    let mut objects = Vec::new();
    for (field, value) in kustomization.as_object().unwrap() {
        assert!(
            ["apiVersion", "kind", "namespace", "resources", "patches"].contains(&field.as_str()),
            "{}: this test does not know what {field} does: {value}",
            file.display()
        );
    }
    for resource in list(kustomization, "resources") {
        let resource = folder.join(resource.as_str().unwrap());
        if resource.is_dir() {
            objects.extend(render_folder(&resource));
        } else {
            objects.extend(documents(&read(&resource)));
        }
    }
    for patch in list(kustomization, "patches") {
        let patch = documents(&read(&folder.join(text(patch, "/path"))));
        for patch in patch {
            let target = objects
                .iter_mut()
                .find(|object| title(object) == title(&patch))
                .unwrap_or_else(|| panic!("no object for the patch of {}", title(&patch)));
            merge(target, &patch, "");
        }
    }
    objects
}

fn list<'v>(kustomization: &'v Value, field: &str) -> &'v [Value] {
    let list = kustomization.get(field).and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}

/// The merge key of these lists; other lists are replaced.
fn key(list: &str) -> Option<&'static str> {
    match list {
        "containers" | "initContainers" | "volumes" | "env" => Some("name"),
        "volumeMounts" => Some("mountPath"),
        _ => None,
    }
}

fn merge(target: &mut Value, patch: &Value, field: &str) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (name, value) in patch {
                match target.get_mut(name) {
                    Some(target) => merge(target, value, name),
                    None => {
                        target.insert(name.clone(), value.clone());
                    }
                }
            }
        }
        (Value::Array(target), Value::Array(patch)) if key(field).is_some() => {
            let name = |element: &Value| key(field).and_then(|key| element.get(key).cloned());
            for value in patch {
                match target.iter_mut().find(|old| name(old) == name(value)) {
                    Some(target) => merge(target, value, ""),
                    None => target.push(value.clone()),
                }
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}

/// The order of lists whose elements have keys does not matter.
fn in_order(value: &Value, field: &str) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), in_order(value, name)))
            .collect(),
        Value::Array(list) => {
            let mut list: Vec<_> = list.iter().map(|value| in_order(value, "")).collect();
            if let Some(key) = key(field) {
                list.sort_by_key(|element| element[key].as_str().unwrap_or_default().to_owned());
            }
            Value::Array(list)
        }
        other => other.clone(),
    }
}

#[test]
fn overlays_are_what_kustomize_makes_of_them() {
    for overlay in OVERLAYS {
        let name = overlay.rsplit('/').next().unwrap_or(overlay);
        let kept = path("crates/ferrovia/tests/deploy/rendered").join(format!("{name}.yaml"));
        let sorted = |objects: Vec<Value>| {
            let mut objects: Vec<_> = objects.iter().map(|object| in_order(object, "")).collect();
            objects.sort_by_key(title);
            objects
        };
        assert_eq!(
            sorted(render(overlay)),
            sorted(documents(&read(&kept))),
            "{overlay} has changed; how to render it anew is said at the top of {}",
            file!()
        );
    }
}

#[test]
fn every_object_is_one_the_api_takes() {
    for overlay in OVERLAYS {
        render(overlay).iter().for_each(schema::check);
    }
}

#[test]
fn every_pod_can_run() {
    for overlay in OVERLAYS {
        pods::check_all(overlay, &render(overlay));
    }
}

/// Each mode's configuration asks for that mode.
#[test]
fn modes_are_what_they_are_called() {
    for overlay in ["base", "modes/iptables", "modes/ipvs", "modes/userspace"] {
        let mode = match overlay.split_once('/') {
            Some((_, mode)) => mode,
            None => "nftables",
        };
        let objects = render(overlay);
        let config = text(find(&objects, "ConfigMap/ferrovia"), "/data/config.conf");
        assert!(config.contains(&format!("mode: {mode}\n")), "{config}");
    }
}

/// A node has one proxy: the canaries' label is what kube-proxy is kept away by.
#[test]
fn canaries_and_kube_proxy_do_not_meet() {
    let objects = render("canary");
    let ours = find(&objects, "DaemonSet/ferrovia");
    let label = text(ours, "/spec/template/spec/nodeSelector/ferrovia.io~1proxy");
    let patch = &documents(&read(&path("deploy/kustomize/canary/kube-proxy.yaml")))[0];
    let expression = &patch["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        ["nodeSelectorTerms"][0]["matchExpressions"][0];
    assert_eq!(text(expression, "/key"), "ferrovia.io/proxy");
    assert_eq!(text(expression, "/operator"), "NotIn");
    assert_eq!(expression["values"], serde_json::json!([label]));
    // As part of the whole object it is one the API takes.
    let mut kube_proxy = render("in-place").remove(0);
    merge(&mut kube_proxy, patch, "");
    schema::check(&kube_proxy);
}
