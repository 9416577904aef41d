//! What the routes answer.

use ferrovia_lab::daemon::manifests::{service, web};
use ferrovia_lab::waiting::wait;
use serde_json::json;

use super::view::Viewed;

/// A Service that only answers where it has local endpoints, and has none; and one that is broken in part.
const LOCAL: &str = "\
kind: Service
apiVersion: v1
metadata: { name: local, namespace: shop }
spec: { type: NodePort, externalTrafficPolicy: Local, clusterIP: 10.96.0.77, sessionAffinity: ClientIP, externalIPs: [nonsense], ports: [{ name: http, port: 80, nodePort: 30077 }] }
---
kind: EndpointSlice
apiVersion: discovery.k8s.io/v1
metadata: { name: local-1, namespace: shop, labels: { kubernetes.io/service-name: local } }
addressType: IPv4
ports: [{ name: http, port: 8080 }]
endpoints:
- { addresses: [10.244.2.10], nodeName: node-2 }
- { addresses: [10.244.2.11], nodeName: node-2, conditions: { ready: false } }
";

#[test]
fn overview_shows_version_mode_and_state() {
    let viewed = Viewed::new(&[("web.yaml", &web(&["1.10", "2.10"])), ("local.yaml", LOCAL)]);
    let overview = viewed.ask("overview");
    assert_eq!(overview["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(overview["node"], "node-1");
    assert_eq!(overview["mode"], "nftables");
    assert_eq!(overview["families"], json!(["IPv4", "IPv6"]));
    assert_eq!(overview["health"]["ok"], true);
    assert_eq!(overview["ready"], true);
    let counts = json!({ "services": 2, "ports": 2, "endpoints": 3, "partly": 1, "down": 0 });
    assert_eq!(overview["counts"], counts);
    assert_eq!(overview["syncs"]["totals"]["repaired"], 0);
    assert!(
        !overview["syncs"]["latencies"]
            .as_array()
            .expect("a list")
            .is_empty()
    );
    let warnings = overview["warnings"]["latest"].to_string();
    assert!(
        warnings.contains("Service shop/local") && warnings.contains("spec.externalIPs"),
        "{warnings}"
    );
}

#[test]
fn services_are_filtered_sorted_and_cut_by_the_daemon() {
    let many: Vec<String> = (0..30)
        .map(|i| service(&format!("s{i:02}"), 100 + i, 31000 + i, &["2.10"]))
        .collect();
    let viewed = Viewed::new(&[("many.yaml", &many.join("---\n")), ("local.yaml", LOCAL)]);
    let page = viewed.ask("services?filter=default%2Fs&sort=-name&offset=2&limit=3");
    assert_eq!((&page["total"], &page["matched"]), (&json!(31), &json!(30)));
    let names: Vec<_> = page["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| row["name"].clone())
        .collect();
    assert_eq!(names, ["s27", "s26", "s25"]);
    let row = &page["rows"][0];
    assert_eq!(row["ports"], json!(["80/tcp"]));
    assert_eq!(row["endpoints"], json!({ "in": 1, "all": 1 }));
    assert_eq!(row["state"], "served");
    let troubled = viewed.ask("services?filter=is:troubled");
    assert_eq!(troubled["matched"], 1);
    assert_eq!(
        troubled["rows"][0]["endpoints"],
        json!({ "in": 1, "all": 2 })
    );
}

#[test]
fn shows_the_reason_for_every_endpoint_of_a_service() {
    let viewed = Viewed::new(&[("local.yaml", LOCAL)]);
    let service = viewed.ask("services/shop/local");
    let port = &service["ports"][0];
    assert_eq!(port["affinitySeconds"], 10800);
    assert_eq!(port["frontends"][0]["outcome"], "endpoints");
    assert_eq!(port["frontends"][1]["address"], "30077");
    assert_eq!(port["frontends"][1]["outcome"], "dropped");
    let endpoints = &port["endpoints"];
    assert_eq!(
        endpoints[0]["cluster"],
        json!({ "in": true, "share": 1.0, "reason": "ready" })
    );
    assert_eq!(endpoints[0]["local"]["in"], false);
    assert_eq!(endpoints[1]["cluster"]["reason"], "not ready");
    assert_eq!(service["warnings"][0]["object"], "Service shop/local");
    // What is said of the kernel can be tried.
    let command = port["frontends"][0]["kernel"].as_str().expect("a command");
    let shown = viewed.node.on_node("sh", &["-c", command]);
    assert!(shown.contains("10.96.0.77 . tcp . 80"), "{shown}");
    let dropped = port["frontends"][1]["kernel"].as_str().expect("a command");
    assert!(
        viewed
            .node
            .on_node("sh", &["-c", dropped])
            .contains("tcp . 30077")
    );
}

#[test]
fn connections_are_counted_for_services_and_endpoints() {
    let viewed = Viewed::new(&[("web.yaml", &web(&["2.10"]))]);
    let connections = || {
        viewed.ask("services")["rows"][0]["connections"]
            .as_u64()
            .expect("it is counted")
    };
    assert_eq!(connections(), 0);
    viewed
        .node
        .expect("pod-a > 10.96.0.10:80 => 10.244.2.10:8080");
    wait(|| match connections() {
        0 => Err("nothing is counted".to_owned()),
        _ => Ok(()),
    });
    let service = viewed.ask("services/default/web");
    assert!(
        service["ports"][0]["endpoints"][0]["connections"].as_u64() > Some(0),
        "{service}"
    );
}

#[test]
fn traces_a_packet() {
    let viewed = Viewed::new(&[("web.yaml", &web(&["1.10", "2.10"]))]);
    let trace = viewed.ask("trace?from=10.244.1.20&to=10.96.0.10:80");
    assert_eq!(trace["outcome"], "delivered");
    assert_eq!(trace["service"]["name"], "web");
    assert_eq!(trace["endpoints"].as_array().map(Vec::len), Some(2));
    assert!(
        trace["text"]
            .as_str()
            .is_some_and(|text| text.contains("10.244.2.10:8080"))
    );
    let by_name = viewed.ask("trace?from=node&to=service/default/web:80");
    assert_eq!(by_name["packet"]["destination"], "10.96.0.10");
    let nobody = viewed.ask("trace?from=node&to=192.0.2.9:80/udp");
    assert_eq!(nobody["outcome"], "not-a-service");
}

#[test]
fn shows_kernel_state_only_over_the_socket() {
    let viewed = Viewed::new(&[("web.yaml", &web(&["2.10"]))]);
    let trace = viewed.ask("trace?from=10.244.1.12&to=10.96.0.10:80&kernel=true");
    assert_eq!(trace["kernel"][0]["place"], "map ip ferrovia services");
    let plan = viewed.ask("plan?service=default/web&family=IPv4");
    assert_eq!(plan["mode"], "nftables");
    assert!(
        plan["families"][0]["plan"]
            .as_str()
            .is_some_and(|text| text.contains("10.96.0.10 . tcp . 80"))
    );
    let diff = viewed.ask("diff");
    assert_eq!(
        (&diff["same"], &diff["servicePorts"]),
        (&json!(true), &json!(2))
    );
    for path in [
        "trace?from=node&to=10.96.0.10:80&kernel=true",
        "plan",
        "diff",
    ] {
        let reply = viewed.request("GET", &format!("/api/v1/{path}"), &[]);
        assert_eq!(reply.code, 403, "{path}: {}", reply.body);
        assert!(reply.body.contains("admin socket only"), "{}", reply.body);
    }
}

#[test]
fn shows_received_changes_and_writes() {
    let viewed = Viewed::new(&[("web.yaml", &web(&["2.10"]))]);
    let first = viewed.ask("changes");
    let first = &first["changes"][0];
    assert_eq!(
        (&first["number"], &first["kind"]),
        (&json!(1), &json!("full"))
    );
    assert_eq!(first["ports"]["appeared"], 1);
    let newest = viewed.ask("changes")["changes"]
        .as_array()
        .map_or(0, Vec::len);
    viewed.node.write("web.yaml", &web(&["2.10", "2.11"]));
    wait(|| {
        let changes = viewed.ask(&format!("changes?after={newest}"));
        match &changes["changes"][0] {
            change if change["services"] == json!(["default/web"]) => {
                assert_eq!(
                    (&change["kind"], &change["wrote"]),
                    (&json!("partial"), &json!(true))
                );
                Ok(())
            }
            _ => Err(changes.to_string()),
        }
    });
    // Somebody else's hands in our table are a repair.
    viewed
        .node
        .on_node("nft", &["flush map ip ferrovia services"]);
    wait(|| {
        let overview = viewed.ask("overview");
        if overview["syncs"]["totals"]["repaired"] == 1 {
            return Ok(());
        }
        Err(overview["syncs"].to_string())
    });
}

#[test]
fn invalid_requests_get_one_line_with_a_suggestion() {
    let viewed = Viewed::new(&[("web.yaml", &web(&["2.10"]))]);
    for (path, words) in [
        ("nowhere", "nothing at this path"),
        ("services/default/none", "no service default/none"),
        ("services/%2e%2e/%3Cb%3E", "no service"),
        ("services?sort=colour", "cannot sort"),
        ("services?limit=-1", "not a number"),
        ("services?filtre=x", "no parameter"),
        ("services?filter=%ff", "percent-encoded"),
        ("trace", "from is missing"),
        ("trace?from=pod&to=10.96.0.10:80", "is no source"),
        ("trace?from=node&to=10.96.0.10", "has no port"),
        (
            "trace?from=10.244.1.20&to=[fd00:10:96::a]:80",
            "one is IPv4, the other IPv6",
        ),
        (
            "trace?from=node&to=service/default/none",
            "no Service default/none",
        ),
        ("trace?from=node&to=10.96.0.10:80&kernel=1", "neither true"),
        ("plan?service=default/none", "no Service default/none"),
        ("diff?family=IPX", "no family"),
    ] {
        let error = viewed.try_ask(path).expect_err(path).to_string();
        assert!(
            error.contains(words) && error.lines().count() == 1,
            "{path}: {error}"
        );
    }
    let reply = viewed.request("GET", "/api/v1/nowhere", &[]);
    assert_eq!(reply.code, 404);
    let body: serde_json::Value = serde_json::from_str(&reply.body).expect("JSON");
    assert!(
        body["try"]
            .as_str()
            .is_some_and(|hint| hint.contains("/api/v1/overview"))
    );
}
