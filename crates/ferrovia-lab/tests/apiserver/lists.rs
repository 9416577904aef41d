//! Lists (selectors, pages, resourceVersions) and other requests that are not watches.

use ferrovia_lab::apiserver::{ApiServer, ApiServerOptions, Kind, sample};
use serde_json::{Value, json};

use crate::client::{Answer, get, send};

const SERVICES: &str = "/api/v1/services";

fn server() -> ApiServer {
    ApiServer::start(ApiServerOptions::default()).unwrap()
}

fn list(server: &ApiServer, target: &str) -> Value {
    let answer = get(server, target);
    assert_eq!(answer.status, 200, "{target}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    answer.json()
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap();
    items
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect()
}

/// A Service with these labels.
fn labelled(name: &str, labels: &Value) -> Value {
    json!({
        "kind": "Service",
        "metadata": {"name": name, "labels": labels},
        "spec": {"clusterIP": "10.96.0.1"},
    })
}

#[test]
fn lists_have_a_revision_and_items_without_kind() {
    let server = server();
    let revision = server.apply(sample::service(1)).unwrap();
    let list = list(&server, SERVICES);
    assert_eq!(list["kind"], "ServiceList");
    assert_eq!(list["apiVersion"], "v1");
    let expected = json!({"resourceVersion": revision.to_string()});
    assert_eq!(list["metadata"], expected);
    let item = &list["items"][0];
    assert_eq!(item["kind"], Value::Null);
    assert_eq!(item["metadata"]["resourceVersion"], revision.to_string());
    assert_eq!(item["spec"], sample::service(1)["spec"]);
}

#[test]
fn serves_every_kind_at_its_path() {
    let server = server();
    server.apply(sample::node("n1", &[])).unwrap();
    server.apply(sample::service(1)).unwrap();
    server.apply(sample::slice(1, 2)).unwrap();
    let cidr = sample::service_cidr("kubernetes", &["10.96.0.0/12"]);
    server.apply(cidr).unwrap();
    for (kind, path) in [
        (Kind::Node, "/api/v1/nodes"),
        (Kind::Service, "/api/v1/services"),
        (
            Kind::EndpointSlice,
            "/apis/discovery.k8s.io/v1/endpointslices",
        ),
        (Kind::ServiceCidr, "/apis/networking.k8s.io/v1/servicecidrs"),
    ] {
        let list = list(&server, path);
        assert_eq!(list["kind"], format!("{}List", kind.name()));
        assert_eq!(list["apiVersion"], kind.api_version());
        assert_eq!(names(&list).len(), 1, "{path}");
        assert_eq!(kind.path(), path);
        assert_eq!(server.objects(kind).len(), 1);
    }
    let node = get(&server, "/api/v1/nodes/n1").json();
    assert_eq!(node["kind"], "Node");
    let slices = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices";
    assert_eq!(names(&list(&server, slices)).len(), 1);
    let nowhere = "/api/v1/namespaces/nowhere/services";
    assert!(names(&list(&server, nowhere)).is_empty());
}

#[test]
fn what_is_not_there_is_404_and_what_is_not_done_405() {
    let options = ApiServerOptions {
        service_cidrs: false,
        ..ApiServerOptions::default()
    };
    let server = ApiServer::start(options).unwrap();
    for path in [
        "/apis/networking.k8s.io/v1/servicecidrs",
        "/api/v1/pods",
        "/api/v1/nodes/n1",
    ] {
        let answer = get(&server, path);
        assert_eq!(answer.status, 404, "{path}");
        let status = answer.json();
        assert_eq!(status["kind"], "Status");
        assert_eq!(status["reason"], "NotFound");
        assert_eq!(status["code"], 404);
    }
    let request = "DELETE /api/v1/nodes HTTP/1.1\r\nHost: lab\r\n\r\n";
    let answer = send(&server, request).unwrap();
    assert_eq!(answer.status, 405);
    assert_eq!(answer.json()["details"], json!({}));
}

#[test]
fn keeps_uid_and_creation_time_of_changed_objects() {
    let server = server();
    let first = server.apply(sample::service(1)).unwrap();
    let before = server.objects(Kind::Service).remove(0);
    let second = server.apply(sample::service(1)).unwrap();
    let after = server.objects(Kind::Service).remove(0);
    assert!(second > first);
    for field in ["uid", "creationTimestamp"] {
        assert!(before["metadata"][field].is_string());
        assert_eq!(before["metadata"][field], after["metadata"][field]);
    }
    assert!(server.delete(Kind::Service, sample::NAMESPACE, "web-00001"));
    assert!(!server.delete(Kind::Service, sample::NAMESPACE, "web-00001"));
    server.apply(sample::service(1)).unwrap();
    let reborn = server.objects(Kind::Service).remove(0);
    assert_ne!(reborn["metadata"]["uid"], after["metadata"]["uid"]);
}

#[test]
fn filters_by_selectors() {
    let server = server();
    let objects = [
        labelled("plain", &json!({})),
        labelled(
            "elsewhere",
            &json!({"service.kubernetes.io/service-proxy-name": ""}),
        ),
        labelled("web", &json!({"app": "web"})),
    ];
    server.apply_many(objects).unwrap();
    let mut headless = labelled("headless", &json!({}));
    headless["spec"]["clusterIP"] = json!("None");
    server.apply(headless).unwrap();
    for (query, expected) in [
        ("labelSelector=app", vec!["web"]),
        ("labelSelector=app%3Dweb", vec!["web"]),
        (
            "labelSelector=%21service.kubernetes.io%2Fservice-proxy-name",
            vec!["headless", "plain", "web"],
        ),
        (
            "labelSelector=!service.kubernetes.io/service-proxy-name\
             &fieldSelector=spec.clusterIP!%3DNone",
            vec!["plain", "web"],
        ),
        ("fieldSelector=metadata.name=plain", vec!["plain"]),
    ] {
        let list = list(&server, &format!("{SERVICES}?{query}"));
        assert_eq!(names(&list), expected, "{query}");
    }
    let unknown = get(&server, "/api/v1/services?fieldSelector=spec.ports=1");
    assert_eq!(unknown.status, 400);
    let message = unknown.json()["message"].as_str().unwrap().to_owned();
    assert!(message.ends_with("field label not supported: spec.ports"));
}

#[test]
fn all_pages_show_the_state_of_the_first_one() {
    let server = server();
    server.apply_many((0..5).map(sample::service)).unwrap();
    let revision = server.revision().to_string();
    let first = list(&server, "/api/v1/services?limit=2");
    assert_eq!(names(&first), ["web-00000", "web-00001"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);

    // All changes that are possible between two pages.
    server.delete(Kind::Service, sample::NAMESPACE, "web-00002");
    server.delete(Kind::Service, sample::NAMESPACE, "web-00003");
    server.apply(sample::service(3)).unwrap();
    server.apply(sample::service(4)).unwrap();
    server.apply(sample::service(9)).unwrap();

    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = list(
        &server,
        &format!("/api/v1/services?limit=2&continue={token}"),
    );
    assert_eq!(names(&second), ["web-00002", "web-00003"]);
    assert_eq!(second["metadata"]["resourceVersion"], revision);
    let token = second["metadata"]["continue"].as_str().unwrap();
    let third = list(
        &server,
        &format!("/api/v1/services?limit=2&continue={token}"),
    );
    assert_eq!(names(&third), ["web-00004"]);
    assert_eq!(third["items"][0]["metadata"]["resourceVersion"], revision);
    assert_eq!(third["metadata"]["continue"], Value::Null);
}

#[test]
fn responds_with_410_to_the_next_page_after_compaction() {
    let server = server();
    server.apply_many((0..5).map(sample::service)).unwrap();
    let first = list(&server, "/api/v1/services?limit=2");
    let token = first["metadata"]["continue"].as_str().unwrap();
    server.delete(Kind::Service, sample::NAMESPACE, "web-00002");
    server.compact();
    let answer = get(
        &server,
        &format!("/api/v1/services?limit=2&continue={token}"),
    );
    assert_eq!(answer.status, 410);
    let status = answer.json();
    assert_eq!(status["reason"], "Expired");
    assert_eq!(status["code"], 410);
    let token = status["metadata"]["continue"].as_str().unwrap();
    let rest = list(&server, &format!("/api/v1/services?continue={token}"));
    assert_eq!(names(&rest), ["web-00003", "web-00004"]);
    let nonsense = get(&server, "/api/v1/services?continue=zz");
    assert_eq!(nonsense.status, 400);
}

#[test]
fn interprets_resource_versions_as_real_servers_do() {
    let server = server();
    let old = server.apply(sample::service(0)).unwrap();
    server.apply_many((1..4).map(sample::service)).unwrap();
    let count = |query: &str| {
        let list = list(&server, &format!("/api/v1/services?{query}"));
        names(&list).len()
    };
    // The cache serves resourceVersion 0 and ignores limits.
    assert_eq!(count("resourceVersion=0&limit=2"), 4);
    assert_eq!(count("resourceVersion=&limit=2"), 2);
    assert_eq!(count(&format!("resourceVersion={old}")), 4);
    let exact = format!("resourceVersion={old}&resourceVersionMatch=Exact");
    assert_eq!(count(&exact), 1);
    assert_eq!(count(&format!("resourceVersion={old}&limit=9")), 1);
    let newer = format!("resourceVersion={old}&resourceVersionMatch=NotOlderThan");
    assert_eq!(count(&newer), 4);

    let status = |query: &str| {
        let answer = get(&server, &format!("/api/v1/services?{query}"));
        let code = answer.status;
        let status = answer.json();
        assert_eq!(status["code"], code);
        (code, status["reason"].as_str().unwrap().to_owned())
    };
    let invalid = (422, "Invalid".to_owned());
    assert_eq!(status("resourceVersionMatch=Exact"), invalid);
    assert_eq!(
        status("resourceVersion=0&resourceVersionMatch=Exact"),
        invalid
    );
    assert_eq!(
        status("resourceVersion=1&resourceVersionMatch=Any"),
        invalid
    );
    assert_eq!(status("sendInitialEvents=true"), invalid);
    assert_eq!(status("resourceVersion=99999"), (504, "Timeout".to_owned()));
    assert_eq!(status("resourceVersion=x"), (400, "BadRequest".to_owned()));
    server.compact();
    assert_eq!(status(&exact), (410, "Expired".to_owned()));
}

#[test]
fn sends_a_long_list_in_chunks() {
    let server = server();
    server.apply_many((0..2000).map(sample::service)).unwrap();
    let answer = get(&server, SERVICES);
    assert_eq!(answer.header("transfer-encoding"), Some("chunked"));
    let list = answer.json();
    let expected: Vec<_> = (0..2000).map(sample::service_name).collect();
    assert_eq!(names(&list), expected);
}

/// A valid Event.
fn event(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "kube-proxy",
        "reportingInstance": "kube-proxy-node-1",
        "action": "StartKubeProxy",
        "reason": "Starting",
        "type": "Normal",
        "regarding": {"kind": "Node", "name": "node-1"},
    })
}

fn post_event(server: &ApiServer, namespace: &str, body: &str) -> Answer {
    let request = format!(
        "POST /apis/events.k8s.io/v1/namespaces/{namespace}/events HTTP/1.1\r\nHost: lab\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len(),
    );
    send(server, &request).unwrap()
}

#[test]
fn stores_events_and_reports_its_version() {
    let server = server();
    let post = |body: &str| post_event(&server, "default", body).status;
    assert_eq!(post(&event("e1").to_string()), 201);
    assert_eq!(post("[1]"), 400);
    assert_eq!(post("{\"metadata\":3}"), 400);
    assert_eq!(post("{"), 400);
    let events = server.events();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["reason"], "Starting");
    assert_eq!(events[0]["metadata"]["namespace"], "default");
    assert_eq!(get(&server, "/version").json()["gitVersion"], "v1.36.4");
}

#[test]
fn rejects_invalid_and_existing_events() {
    let server = server();
    let refusal = |namespace: &str, body: &Value| {
        let status = post_event(&server, namespace, &body.to_string()).json();
        let field = status["details"]["causes"][0]["field"].as_str();
        (
            status["code"].as_u64(),
            field.unwrap_or_default().to_owned(),
        )
    };
    for field in ["eventTime", "reportingInstance", "action", "reason", "type"] {
        let mut event = event("e1");
        event.as_object_mut().unwrap().remove(field);
        assert_eq!(refusal("default", &event), (Some(422), field.to_owned()));
    }
    // About a cluster-scoped object, and so not in a namespace of a tenant.
    let misplaced = (Some(422), "involvedObject.namespace".to_owned());
    assert_eq!(refusal("shop", &event("e1")), misplaced);
    assert_eq!(
        post_event(&server, "default", &event("e1").to_string()).status,
        201
    );
    assert_eq!(refusal("default", &event("e1")).0, Some(409));
    assert_eq!(server.events().len(), 1);
}

#[test]
fn responds_with_text_for_unknown_api_groups() {
    let mut answer = get(&server(), "/apis/nothing.k8s.io/v1/nothings");
    assert_eq!(answer.status, 404);
    let kind = answer.header("content-type");
    assert_eq!(kind, Some("text/plain; charset=utf-8"));
    let line = answer.line().unwrap();
    assert_eq!(line.as_deref(), Some("404 page not found\n"));
}

#[test]
fn logs_requests() {
    let server = server();
    let request = "GET /api/v1/services?limit=5&labelSelector=%21a%2Fb HTTP/1.1\r\n\
                   Host: lab\r\nUser-Agent: me\r\n\r\n";
    assert_eq!(send(&server, request).unwrap().status, 200);
    let requests = server.requests();
    let [request] = requests.as_slice() else {
        panic!("{requests:?}");
    };
    assert_eq!(
        (request.method.as_str(), request.path.as_str()),
        ("GET", SERVICES)
    );
    assert_eq!(request.parameter("labelSelector"), Some("!a/b"));
    assert_eq!(request.parameter("limit"), Some("5"));
    assert_eq!(request.headers["user-agent"], "me");
    assert!(!request.is_watch());
}

#[test]
fn rejects_unstorable_objects_and_serves_odd_ones() {
    let server = server();
    assert!(server.apply(json!({"kind": "Pod"})).is_err());
    assert!(server.apply(json!({"kind": "Service"})).is_err());
    assert!(server.apply(json!([])).is_err());
    let odd = json!({
        "kind": "Service",
        "metadata": {"name": "odd", "labels": {"app": 7}},
        "spec": {"clusterIP": 3, "ports": "many"},
    });
    server.apply(odd).unwrap();
    let list = list(&server, SERVICES);
    assert_eq!(list["items"][0]["spec"]["ports"], "many");
}
