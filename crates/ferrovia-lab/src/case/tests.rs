use super::*;

const TEXT: &str = "\
# External traffic policy Local;
# step 2 takes the endpoint away.
-- node.yaml --
name: node-1
zone: \"a\"     # where it is
cluster-cidr: 10.244.0.0/16
detect-local: interface-prefix=veth

-- step1.yaml --
kind: Service
---
kind: EndpointSlice

-- flows --
# from beyond
outside > 203.0.113.1:80 => 10.244.1.10:80
-- flows.userspace --
outside > 203.0.113.1:80 => 10.244.1.10:80 masq
-- nft.v4 --
add element
-- step2.yaml --
kind: EndpointSlice
-- flows.2 --
outside > 203.0.113.1:80 => dropped
-- nft.v4.2 --
delete element
";

fn case() -> Case {
    Case::parse(Path::new("a.case"), TEXT).unwrap()
}

fn problem(text: &str) -> String {
    Case::parse(Path::new("a.case"), text)
        .unwrap_err()
        .to_string()
}

#[test]
fn parses_a_case() {
    let case = case();
    assert_eq!(
        case.title,
        "External traffic policy Local; step 2 takes the endpoint away."
    );
    assert_eq!(case.node.options.get("zone").map(String::as_str), Some("a"));
    assert_eq!(
        case.node.options.get("detect-local").map(String::as_str),
        Some("interface-prefix=veth")
    );
    let [first, second] = case.steps.as_slice() else {
        panic!("expected two steps")
    };
    assert_eq!(
        (first.yaml.as_str(), first.yaml_line),
        ("kind: Service\n---\nkind: EndpointSlice\n", 10)
    );
    assert_eq!(
        first.flows(&["nft"]).first().map(|line| line.number),
        Some(16)
    );
    assert_eq!(
        first
            .flows(&["userspace", "nft"])
            .first()
            .map(|line| line.number),
        Some(18)
    );
    assert_eq!(
        first.expected.get("nft.v4").map(String::as_str),
        Some("add element\n")
    );
    assert_eq!(second.flows(&["userspace"]).len(), 1);
    assert_eq!(
        second.expected.get("nft.v4").map(String::as_str),
        Some("delete element\n")
    );
    assert_eq!(case.text(), TEXT);
}

#[test]
fn sets_expected_texts_in_place() {
    let mut case = case();
    case.set_expected(1, "nft.v4", "add two\n");
    case.set_expected(1, "nft.v6", "six\n");
    case.set_expected(2, "nft.v6", "no six\n");
    let expected = TEXT
        .replace("add element\n", "add two\n-- nft.v6 --\nsix\n")
        .replace(
            "delete element\n",
            "delete element\n-- nft.v6.2 --\nno six\n",
        );
    assert_eq!(case.text(), expected);
}

#[test]
fn reports_syntax_errors_with_their_line() {
    for (text, expected) in [
        ("-- step1.yaml --\n", "a.case:1: missing title"),
        (
            "# t\nwords\n-- step1.yaml --\n",
            "a.case:2: expected only lines with # before",
        ),
        ("# t\n", "a.case:1: missing section step1.yaml"),
        (
            "# t\n-- step2.yaml --\n",
            "a.case:2: expected step1.yaml here",
        ),
        (
            "# t\n-- step1.yaml --\n-- nft.v4.2 --\n",
            "a.case:3: missing section step2.yaml",
        ),
        (
            "# t\n-- step1.yaml --\n-- nft.0 --\n",
            "a.case:3: missing section step0.yaml",
        ),
        (
            "# t\n-- node.yaml --\nname\n-- step1.yaml --\n",
            "a.case:3: expected \"key: value\"",
        ),
        (
            "# t\n-- node.yaml --\na: 1\na: 2\n-- step1.yaml --\n",
            "a.case:4: duplicate option a",
        ),
        (
            "# t\n-- step1.yaml --\n-- flows --\n\npod-a > x => y\n",
            "a.case:5: invalid address and port \"x\"",
        ),
    ] {
        let message = problem(text);
        assert!(message.starts_with(expected), "{message}");
    }
}
