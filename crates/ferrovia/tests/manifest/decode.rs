//! What a file means, and what is said of a broken one.

use std::path::Path;
use std::time::Instant;

use ferrovia::source::manifest::decode::{DecodeError, Format, decode};
use ferrovia_core::wire::Object;

use crate::support::{describe, service};

fn objects(text: &str, format: Format) -> Vec<(String, usize)> {
    let decoded = decode(text.as_bytes(), format).unwrap();
    decoded
        .iter()
        .map(|found| (describe(&found.object), found.line))
        .collect()
}

fn yaml(text: &str) -> Vec<(String, usize)> {
    objects(text, Format::Yaml)
}

fn json(text: &str) -> Vec<(String, usize)> {
    objects(text, Format::Json)
}

fn fault(text: &str, format: Format) -> DecodeError {
    decode(text.as_bytes(), format).unwrap_err()
}

fn place(error: &DecodeError) -> (usize, Option<usize>, Option<&str>) {
    (error.line, error.column, error.field.as_deref())
}

fn entry(text: &str, line: usize) -> (String, usize) {
    (text.to_owned(), line)
}

#[test]
fn extensions_determine_the_format() {
    let of = |name: &str| Format::of(Path::new(name));
    assert_eq!(of("a.yaml"), Some(Format::Yaml));
    assert_eq!(of("a.yml"), Some(Format::Yaml));
    assert_eq!(of("a.json"), Some(Format::Json));
    for editor in [
        "a.yaml~",
        "a.yaml.swp",
        "4913",
        "#a.yaml#",
        "a.yaml.bak",
        "README.md",
    ] {
        assert_eq!(of(editor), None, "{editor}");
    }
}

#[test]
fn many_documents_with_comments_between() {
    let text = format!(
        "# a file\n---\n{}---\n# nothing here\n---\nnull\n--- # the second\n{}...\n",
        service("one", 1),
        service("two", 2)
    );
    assert_eq!(
        yaml(&text),
        [
            entry("Service default/one:1", 3),
            entry("Service default/two:2", 12)
        ]
    );
}

#[test]
fn files_without_objects_are_fine() {
    for text in [
        "",
        "\n\n",
        "---\n",
        "# comment\n",
        "null\n",
        "~",
        "\u{feff}",
        "---\n---\n...\n",
    ] {
        assert_eq!(yaml(text), [], "{text:?}");
    }
    for text in ["", " \n", "null", "null null\n"] {
        assert_eq!(json(text), [], "{text:?}");
    }
}

#[test]
fn byte_order_mark_and_carriage_returns() {
    let text = format!("\u{feff}{0}---\n{0}", service("web", 80)).replace('\n', "\r\n");
    assert_eq!(
        yaml(&text),
        [
            entry("Service default/web:80", 1),
            entry("Service default/web:80", 6)
        ]
    );
    let text = "\u{feff}{\"kind\": \"Service\",\r\n \"metadata\": {\"name\": \"web\"}}\r\n";
    assert_eq!(json(text), [entry("Service default/web", 1)]);
}

#[test]
fn fields_may_come_before_the_kind() {
    // The order in which kubectl prints an EndpointSlice.
    let text = "addressType: IPv4\napiVersion: discovery.k8s.io/v1\nendpoints:\n- addresses: [10.0.0.1]\n\
                kind: EndpointSlice\nmetadata:\n  name: web-1\n  namespace: shop\nports:\n- port: 80\n";
    let decoded = decode(text.as_bytes(), Format::Yaml).unwrap();
    let Object::EndpointSlice(slice) = &*decoded[0].object else {
        panic!("{decoded:?}");
    };
    assert_eq!(slice.metadata.namespace, "shop");
    assert_eq!(slice.address_type, "IPv4");
    assert_eq!(slice.endpoints[0].addresses, ["10.0.0.1"]);
    assert_eq!(slice.ports[0].port, Some(80));
}

#[test]
fn every_kind_and_its_scope() {
    let text = "kind: Endpoints\nmetadata: {name: web}\n---\nkind: Node\nmetadata: {name: n1, namespace: x}\n\
                ---\napiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: all}\n";
    let expected = ["Endpoints default/web", "Node /n1", "ServiceCIDR /all"];
    assert_eq!(
        yaml(text)
            .into_iter()
            .map(|(text, _)| text)
            .collect::<Vec<_>>(),
        expected
    );
}

#[test]
fn other_kinds_are_left_out() {
    let text = "apiVersion: apps/v1\nkind: Deployment\nspec: {replicas: many, items: 3}\n---\n\
                apiVersion: serving.knative.dev/v1\nkind: Service\nspec: [not, ours]\n---\n\
                kind: DeploymentList\nitems: 7\n";
    assert_eq!(yaml(text), []);
    assert_eq!(
        json(r#"{"kind": "ConfigMap", "data": 1} {"kind": "PodList", "items": 4}"#),
        []
    );
}

#[test]
fn lists_of_both_formats() {
    let text = "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Service\n  metadata: {name: one}\n\
                - kind: Pod\n  spec: 1\n- kind: Node\n  metadata: {name: n1}\nkind: List\n";
    let expected = [entry("Service default/one", 3), entry("Node /n1", 8)];
    assert_eq!(yaml(text), expected);
    let text = "{\"kind\": \"List\", \"items\": [\n\n{\"kind\": \"Service\", \"metadata\": {\"name\": \"one\"}},\n\
                {\"kind\": \"Pod\", \"spec\": 1},\n\n\n\n{\"kind\": \"Node\", \"metadata\": {\"name\": \"n1\"}}]}";
    assert_eq!(json(text), expected);
    for text in [
        "kind: List\n",
        "kind: List\nitems:\n",
        "kind: List\nitems: []\n",
    ] {
        assert_eq!(yaml(text), [], "{text:?}");
    }
}

#[test]
fn entries_of_a_typed_list_need_no_kind() {
    let text = "kind: ServiceList\napiVersion: v1\nitems:\n- metadata: {name: one}\n";
    assert_eq!(yaml(text), [entry("Service default/one", 4)]);
    let text = r#"{"kind": "ServiceList", "items": [{"metadata": {"name": "one"}}]}"#;
    assert_eq!(json(text), [entry("Service default/one", 1)]);
}

#[test]
fn json_documents_one_after_the_other() {
    let text = "{\"kind\": \"Service\", \"metadata\": {\"name\": \"a\"}}\n\n\
                {\"kind\": \"Service\", \"metadata\": {\"name\": \"b\"}}{\"kind\": \"Node\", \"metadata\": {\"name\": \"n\"}}";
    let expected = [
        entry("Service default/a", 1),
        entry("Service default/b", 3),
        entry("Node /n", 3),
    ];
    assert_eq!(json(text), expected);
}

#[test]
fn a_value_of_the_wrong_type_names_line_column_and_field() {
    let text = format!(
        "{}---\nkind: Service\nmetadata:\n  name: web\nspec:\n  ports:\n  - port: 80\n  - port: eighty\n",
        service("ok", 1)
    );
    let error = fault(&text, Format::Yaml);
    assert_eq!(
        place(&error),
        (12, Some(11), Some("spec.ports[1].port")),
        "{error}"
    );

    let text = "{\"kind\": \"Service\", \"metadata\": {\"name\": \"ä\"},\n \"spec\": {\"ports\": [{\"port\": 80},\n  {\"name\": \"ö\", \"port\": \"x\"}]}}";
    let error = fault(text, Format::Json);
    assert_eq!(error.line, 3);
    assert_eq!(error.field.as_deref(), Some("spec.ports[1].port"));
    assert!(
        error.what.starts_with("invalid type: string \"x\""),
        "{}",
        error.what
    );
}

#[test]
fn an_error_inside_a_list_names_the_entry() {
    let text = "kind: List\nitems:\n- kind: Service\n  metadata: {name: a}\n- kind: Service\n  metadata: [b]\n";
    let error = fault(text, Format::Yaml);
    assert_eq!(
        (error.line, error.field.as_deref()),
        (6, Some("items[1].metadata")),
        "{error}"
    );

    let text = "{\"kind\": \"List\", \"items\": [\n  {\"kind\": \"Node\", \"metadata\":\n  {\"name\": 7}}]}";
    let error = fault(text, Format::Json);
    assert_eq!(
        (error.line, error.field.as_deref()),
        (3, Some("items[0].metadata.name")),
        "{error}"
    );
}

#[test]
fn syntax_errors_name_the_line() {
    let text = format!(
        "{}---\nkind: Service\nmetadata:\n\tname: tab\n",
        service("ok", 1)
    );
    assert_eq!(fault(&text, Format::Yaml).line, 8);
    assert_eq!(
        fault("kind: Service\nspec: {a: [1, 2}\n", Format::Yaml).line,
        2
    );
    let error = fault("{\"kind\": \"Service\"}\n{\"kind\": }\n", Format::Json);
    assert_eq!(
        (error.line, error.column),
        (1, None),
        "the first document has no name"
    );
    let error = fault("{\"kind\": \"Pod\"}\n{\"kind\": }\n", Format::Json);
    assert_eq!((error.line, error.column), (2, Some(10)));
}

#[test]
fn what_is_not_an_object_is_refused() {
    let error = fault("kidn: Service\n", Format::Yaml);
    assert_eq!(place(&error), (1, None, Some("kind")));
    let error = fault("---\nkind: Service\nspec: {}\n", Format::Yaml);
    assert_eq!(place(&error), (2, None, Some("metadata.name")));
    fault("just text\n", Format::Yaml);
    fault("[1, 2]", Format::Json);
    let nested = r#"{"kind": "List", "items": [{"kind": "List"}]}"#;
    assert!(
        fault(nested, Format::Json)
            .what
            .contains("list inside a list")
    );
    assert!(
        fault(nested, Format::Yaml)
            .what
            .contains("list inside a list")
    );
}

#[test]
fn duplicate_keys_are_refused() {
    let error = fault(
        "kind: Service\nmetadata: {name: a}\nspec: {}\nspec: {}\n",
        Format::Yaml,
    );
    assert_eq!(error.line, 4, "{error}");
}

#[test]
fn bytes_that_are_no_text_are_refused_with_their_line() {
    let error = decode(b"kind: Service\nname: \xff\n", Format::Yaml).unwrap_err();
    assert_eq!(
        (error.line, error.what.as_str()),
        (2, "the file is not UTF-8 text")
    );
}

#[test]
fn alias_bombs_are_refused() {
    let mut text = "kind: Service\na0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let inner = vec![format!("*a{}", level - 1); 9].join(", ");
        text += &format!("a{level}: &a{level} [{inner}]\n");
    }
    let begin = Instant::now();
    let error = fault(&text, Format::Yaml);
    assert!(begin.elapsed().as_secs() < 60);
    assert!(error.line > 1, "{error}");
}

#[test]
fn depth_is_bounded() {
    fault(
        &format!("kind: Service\nspec: {}\n", "[".repeat(100_000)),
        Format::Yaml,
    );
    let deep = format!(
        "kind: Service\nx: {}{}\n",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    fault(&deep, Format::Yaml);
    let deep = format!(
        r#"{{"kind": "Service", "spec": {}{}}}"#,
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    fault(&deep, Format::Json);
}

#[test]
fn anchors_and_merge_keys_work_within_a_document() {
    let text = "kind: Service\nmetadata: {name: a}\nspec:\n  ports:\n  - &p {port: 80, protocol: TCP}\n  - {<<: *p, name: x}\n";
    let decoded = decode(text.as_bytes(), Format::Yaml).unwrap();
    let Object::Service(service) = &*decoded[0].object else {
        panic!("{decoded:?}");
    };
    assert_eq!(
        (
            service.spec.ports[1].port,
            service.spec.ports[1].name.as_str()
        ),
        (80, "x")
    );
}

#[test]
fn a_kind_may_come_from_an_alias_or_a_merge_key() {
    let aliased = "metadata: {name: &x Service}\nkind: *x\napiVersion: v1\n";
    assert_eq!(yaml(aliased), [entry("Service default/Service", 1)]);
    let merged = "base: &b {kind: Node}\n<<: *b\napiVersion: v1\nmetadata: {name: n}\n";
    assert_eq!(yaml(merged), [entry("Node /n", 1)]);
    let twice = fault(
        "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nkind: Node\n",
        Format::Yaml,
    );
    assert_eq!(twice.line, 4, "{twice}");
}

#[test]
fn a_fault_in_a_kind_that_is_left_out_is_still_one() {
    assert_eq!(
        fault("apiVersion: v1\nkind: Pod\nspec: [\n", Format::Yaml).line,
        3
    );
    assert_eq!(
        fault("apiVersion: v1\nkind:\nspec: {}\n", Format::Yaml)
            .field
            .as_deref(),
        Some("kind")
    );
}

#[test]
fn a_whole_cluster_fits_in_one_file() {
    let count = 12_000;
    let text: String = (0..count)
        .map(|n| service(&format!("s{n}"), 80) + "---\n")
        .collect();
    assert_eq!(yaml(&text).len(), count);
    let item = |n: usize| {
        format!("- kind: Service\n  metadata: {{name: s{n}}}\n  spec: {{ports: [{{port: 80}}]}}\n")
    };
    let list: String = (0..count).map(item).collect();
    let found = yaml(&format!("kind: List\nitems:\n{list}"));
    assert_eq!((found.len(), found[count - 1].1), (count, 3 * count));
}
