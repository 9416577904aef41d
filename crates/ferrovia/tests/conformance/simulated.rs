//! The lab's API server answers as the real one does. Most tests of the client run against it.

use ferrovia_lab::apiserver::{ApiServer, ApiServerOptions, Auth, Kind};
use ferrovia_lab::control_plane::{ApiClient, ApiRequest, ApiResponse, Assets, Credentials, Stop};
use serde_json::{Value, json};

use crate::cluster::Cluster;

const NAMESPACE: &str = "conformance";
const SERVICES: &str = "/api/v1/namespaces/conformance/services";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/conformance/events";

/// Asked of both. `{now}` is the resourceVersion of a list, `{old}` one of before the changes, `{future}` one that there is not yet.
const QUESTIONS: [&str; 34] = [
    "{services}",
    "{services}?limit=1",
    "{services}?limit=1&resourceVersion=0",
    "{services}?resourceVersion={old}",
    "{services}?resourceVersion={old}&resourceVersionMatch=Exact",
    "{services}?resourceVersion={old}&limit=1",
    "{services}?resourceVersion={future}",
    "{services}?resourceVersion={future}&resourceVersionMatch=Exact",
    "{services}?resourceVersion=abc",
    "{services}?resourceVersion=0&resourceVersionMatch=Exact",
    "{services}?resourceVersionMatch=NotOlderThan",
    "{services}?resourceVersion={old}&resourceVersionMatch=Almost",
    "{services}?continue={continue}&limit=1",
    "{services}?continue={continue}&resourceVersion={now}",
    "{services}?limit=abc",
    "{services}?sendInitialEvents=true",
    "{services}?fieldSelector=spec.clusterIP!=None",
    "{services}?fieldSelector=spec.ports=80",
    "{services}?labelSelector=!service.kubernetes.io/service-proxy-name",
    "{services}?watch=true&timeoutSeconds=1",
    "{services}?watch=true&timeoutSeconds=1&resourceVersion={old}",
    "{services}?watch=true&timeoutSeconds=1&resourceVersion={now}",
    "{services}?watch=true&timeoutSeconds=1&resourceVersion={future}",
    "{services}?watch=true&timeoutSeconds=1&resourceVersion=abc",
    "{services}?watch=true&sendInitialEvents=true",
    "{services}?watch=true&resourceVersionMatch=NotOlderThan&resourceVersion={old}",
    "{services}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1",
    "{services}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1",
    "{services}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=20&resourceVersion={future}",
    "{services}/a",
    "{services}/nothing",
    "/api/v1/nodes/nothing",
    "/api/v1/nothings",
    "/apis/nothing.k8s.io/v1/nothings",
];

/// Asked of both once they have forgotten their history.
const AFTER_COMPACTION: [&str; 5] = [
    "{services}?resourceVersion={old}",
    "{services}?resourceVersion={old}&resourceVersionMatch=Exact",
    "{services}?watch=true&timeoutSeconds=1&resourceVersion={old}",
    "{services}?watch=true&timeoutSeconds=1&resourceVersion={now}",
    "{services}?continue={continue}&limit=1",
];

/// Both servers with the same objects.
struct Pair {
    real: Side,
    simulated: Side,
}

/// One of the two.
struct Side {
    client: ApiClient,
    now: String,
    old: String,
    token: String,
}

pub(crate) fn answers_as_the_real_server_does(assets: &Assets) {
    let cluster = Cluster::new(assets);
    let server = {
        let options = ApiServerOptions {
            tls: true,
            auth: Auth::Token,
            ..ApiServerOptions::default()
        };
        cluster.inside(|| ApiServer::start(options).expect("it starts"))
    };
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    let body = body.to_string();
    cluster.ask(&ApiRequest::send(
        "POST",
        "/api/v1/namespaces",
        body.as_bytes(),
    ));
    apply_to_both(&cluster, &server, &["a", "b", "c"], "one");
    let mut pair = Pair {
        real: Side::new(&cluster, cluster.admin.clone()),
        simulated: Side::new(&cluster, stand_in_client(&cluster, &server)),
    };
    apply_to_both(&cluster, &server, &["b"], "two");
    delete_from_both(&cluster, &server, "c");
    pair.real.refresh(&cluster);
    pair.simulated.refresh(&cluster);
    let mut differences = Vec::new();
    for question in QUESTIONS {
        differences.extend(pair.compare(&cluster, &ApiRequest::get(question)));
    }
    for ask in others().iter().map(Other::ask) {
        differences.extend(pair.compare(&cluster, &ask));
    }
    differences.extend(
        pair.strangers(&cluster)
            .compare(&cluster, &ApiRequest::get(SERVICES)),
    );

    // A change of after the list, so that its resourceVersion is forgotten, too.
    apply_to_both(&cluster, &server, &["b"], "three");
    server.compact();
    cluster.restart_server(Stop::Term, || cluster.on_plane(|plane| plane.compact()));
    for question in AFTER_COMPACTION {
        differences.extend(pair.compare(&cluster, &ApiRequest::get(question)));
    }
    assert!(
        differences.is_empty(),
        "{} differences:\n{}",
        differences.len(),
        differences.join("\n")
    );
}

/// A request that is not a plain GET.
struct Other {
    method: &'static str,
    target: &'static str,
    accept: &'static str,
    body: String,
}

impl Other {
    fn ask(&self) -> ApiRequest<'_> {
        ApiRequest {
            accept: self.accept,
            ..ApiRequest::send(self.method, self.target, self.body.as_bytes())
        }
    }
}

fn others() -> Vec<Other> {
    let json = "application/json";
    let other = |method, target, accept, body: &Value| Other {
        method,
        target,
        accept,
        body: if body.is_null() {
            String::new()
        } else {
            body.to_string()
        },
    };
    let event = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "event"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "kube-proxy",
        "reportingInstance": "kube-proxy-node-1",
        "action": "StartKubeProxy",
        "reason": "Starting",
        "type": "Normal",
        "regarding": {"kind": "Service", "namespace": NAMESPACE, "name": "a"},
    });
    let without = |field: &str| {
        let mut event = event.clone();
        event["metadata"]["name"] = json!("other");
        event.as_object_mut().expect("it is one").remove(field);
        event
    };
    vec![
        other("GET", SERVICES, "application/xml", &Value::Null),
        other("DELETE", "/api/v1/nodes/a/b", json, &Value::Null),
        other("POST", "/api/v1/services", json, &Value::Null),
        other("POST", EVENTS, json, &event),
        other("POST", EVENTS, json, &event),
        other("POST", EVENTS, json, &without("eventTime")),
        other("POST", EVENTS, json, &without("type")),
        other("POST", EVENTS, json, &without("reportingController")),
        other("POST", EVENTS, json, &without("reason")),
        other("POST", EVENTS, json, &without("action")),
        other("POST", EVENTS, json, &without("regarding")),
    ]
}

impl Side {
    fn new(cluster: &Cluster, client: ApiClient) -> Self {
        let mut side = Self {
            client,
            now: String::new(),
            old: String::new(),
            token: String::new(),
        };
        let list = side.get(cluster, SERVICES);
        side.old = text(&list["metadata"]["resourceVersion"]);
        side
    }

    fn get(&self, cluster: &Cluster, target: &str) -> Value {
        let reply = cluster.inside(|| self.client.ask(&ApiRequest::get(target)));
        reply.expect("the server answers").json()
    }

    fn refresh(&mut self, cluster: &Cluster) {
        let page = self.get(cluster, &format!("{SERVICES}?limit=1"));
        self.now = text(&page["metadata"]["resourceVersion"]);
        self.token = text(&page["metadata"]["continue"]);
    }

    /// What it answers, as far as it should be the same.
    fn answer(&self, cluster: &Cluster, ask: &ApiRequest<'_>) -> Value {
        let future = self.now.parse::<u64>().unwrap_or_default() + 1000;
        let target = ask
            .target
            .replace("{services}", SERVICES)
            .replace("{now}", &self.now)
            .replace("{old}", &self.old)
            .replace("{future}", &future.to_string())
            .replace("{continue}", &self.token);
        let ask = ApiRequest {
            target: &target,
            ..*ask
        };
        let reply = cluster.inside(|| self.client.ask(&ask));
        shape(&reply.unwrap_or_else(|error| panic!("{target}: {error}")))
    }
}

impl Pair {
    fn compare(&self, cluster: &Cluster, ask: &ApiRequest<'_>) -> Option<String> {
        let real = self.real.answer(cluster, ask);
        let simulated = self.simulated.answer(cluster, ask);
        let ApiRequest { method, target, .. } = ask;
        (real != simulated).then(|| {
            format!("{method} {target}\n  real server: {real}\n  stand-in:    {simulated}")
        })
    }

    /// The same servers, asked with a token that they did not issue.
    fn strangers(&self, cluster: &Cluster) -> Self {
        let wrong = |side: &Side, client: ApiClient| Side {
            client,
            now: side.now.clone(),
            old: side.old.clone(),
            token: side.token.clone(),
        };
        let credentials = Credentials::Token("wrong".to_owned());
        let real = cluster.on_plane(|plane| plane.client(credentials));
        let simulated = self.simulated.client.with_token("wrong");
        Self {
            real: wrong(&self.real, real),
            simulated: wrong(&self.simulated, simulated),
        }
    }
}

fn stand_in_client(cluster: &Cluster, server: &ApiServer) -> ApiClient {
    let folder = cluster.node.folder().join("stand-in");
    server.kubeconfig(&folder).expect("it can be written");
    let authority = std::fs::read_to_string(folder.join("ca.crt")).expect("it was written");
    let credentials = Credentials::Token(server.token());
    ApiClient::new(server.address(), &authority, credentials).expect("it is a certificate")
}

fn apply_to_both(cluster: &Cluster, server: &ApiServer, names: &[&str], label: &str) {
    for name in names {
        let object = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"label": label}},
            "spec": {"ports": [{"port": 80, "protocol": "TCP"}]},
        });
        cluster.apply_object(&object);
        server.apply(object).expect("it is a Service");
    }
}

fn delete_from_both(cluster: &Cluster, server: &ApiServer, name: &str) {
    cluster.ask(&ApiRequest::send(
        "DELETE",
        &format!("{SERVICES}/{name}"),
        &[],
    ));
    assert!(server.delete(Kind::Service, NAMESPACE, name));
}

/// What of an answer should be the same: all but numbers, times and contents of objects.
fn shape(reply: &ApiResponse) -> Value {
    let lines: Vec<&[u8]> = reply.body.split(|byte| *byte == b'\n').collect();
    let events: Vec<Value> = lines
        .iter()
        .filter_map(|line| serde_json::from_slice::<Value>(line).ok())
        .filter(|event| event["type"].is_string() && event["object"].is_object())
        // They come when the server likes, but for the one that ends the initial events.
        .filter(|event| {
            event["type"] != "BOOKMARK" || !event["object"]["metadata"]["annotations"].is_null()
        })
        .map(|event| json!([event["type"], shape_of_object(&event["object"])]))
        .collect();
    let body = match (events.is_empty(), reply.json()) {
        (false, _) => json!(events),
        (true, Value::Null) => json!(String::from_utf8_lossy(&reply.body)),
        (true, object) => shape_of_object(&object),
    };
    json!({
        "code": reply.head.code,
        "content-type": reply.head.header("content-type"),
        "retry-after": reply.head.header("retry-after"),
        "www-authenticate": reply.head.header("www-authenticate"),
        "body": body,
    })
}

fn shape_of_object(object: &Value) -> Value {
    let metadata = &object["metadata"];
    match object["kind"].as_str().unwrap_or_default() {
        // Not the message: it is for people, and clients that go by it are broken.
        "Status" => {
            let details = &object["details"];
            let has_token = metadata["continue"].is_string();
            json!([
                object["code"],
                object["reason"],
                shape_of_details(details),
                has_token
            ])
        }
        kind if kind.ends_with("List") => {
            let items = object["items"].as_array().cloned().unwrap_or_default();
            let names: Vec<_> = items.iter().map(|item| &item["metadata"]["name"]).collect();
            json!([
                kind,
                object["apiVersion"],
                keys(metadata),
                metadata["remainingItemCount"],
                names
            ])
        }
        kind => json!([
            kind,
            object["apiVersion"],
            metadata["name"],
            metadata["annotations"]
        ]),
    }
}

/// Causes by their fields, each once: a field may be wrong in several ways.
fn shape_of_details(details: &Value) -> Value {
    let mut details = details.clone();
    if let Some(causes) = details["causes"].as_array() {
        let mut fields: Vec<_> = causes
            .iter()
            .map(|cause| {
                text(if cause["field"].is_null() {
                    &cause["reason"]
                } else {
                    &cause["field"]
                })
            })
            .collect();
        fields.sort_unstable();
        fields.dedup();
        details["causes"] = json!(fields);
    }
    details
}

fn keys(value: &Value) -> Vec<&String> {
    let keys = value
        .as_object()
        .into_iter()
        .flat_map(|object| object.keys());
    keys.collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
