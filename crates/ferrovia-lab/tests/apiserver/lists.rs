//! Lists, pages and versions.

use ferrovia_lab::apiserver::{ApiServer, Options, sample};
use serde_json::{Value, json};

use crate::client::get;

const SERVICES: &str = "/api/v1/services";

fn server() -> ApiServer {
    ApiServer::start(Options::default()).unwrap()
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap();
    items
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect()
}

fn list(server: &ApiServer, target: &str) -> Value {
    let answer = get(server, target);
    assert_eq!(answer.status, 200, "{target}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    answer.json()
}

#[test]
fn a_list_has_the_revision_and_items_without_their_kind() {
    let server = server();
    let revision = server.apply(sample::service(1)).unwrap();
    let list = list(&server, SERVICES);
    assert_eq!(list["kind"], "ServiceList");
    assert_eq!(list["apiVersion"], "v1");
    assert_eq!(
        list["metadata"],
        json!({"resourceVersion": revision.to_string()})
    );
    let item = &list["items"][0];
    assert_eq!(item["kind"], Value::Null);
    assert_eq!(item["metadata"]["resourceVersion"], revision.to_string());
    assert_eq!(item["spec"], sample::service(1)["spec"]);
}
