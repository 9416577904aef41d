//! Who may ask, and what is refused.

use std::os::unix::fs::PermissionsExt;

use ferrovia::serve::admin::client::{Client, ClientError};
use ferrovia_lab::Role;
use ferrovia_lab::daemon::TestNode;
use ferrovia_lab::daemon::manifests::web;
use ferrovia_lab::waiting::wait;

use super::view::{PAGE, Viewed};
use crate::FERROVIA;

#[test]
fn accepts_only_our_host_names_and_origins() {
    let viewed = Viewed::new(&[("web.yaml", &web(&["2.10"]))]);
    let code = |headers: &[(&str, &str)]| raw(&viewed, "GET / HTTP/1.1", headers);
    assert_eq!(code(&[("Host", PAGE)]), 200);
    assert_eq!(code(&[("Host", "localhost:8080")]), 200);
    assert_eq!(code(&[("Host", "[::1]:10247")]), 200);
    for host in ["evil.example", "evil.example:10247", "192.0.2.1:10247", ""] {
        assert_eq!(code(&[("Host", host)]), 403, "{host:?}");
    }
    assert_eq!(code(&[("Host", PAGE), ("Host", "evil.example")]), 403);
    let own = format!("http://{PAGE}");
    assert_eq!(code(&[("Host", PAGE), ("Origin", &own)]), 200);
    assert_eq!(
        code(&[("Host", PAGE), ("Origin", "http://evil.example")]),
        403
    );
    assert_eq!(code(&[("Host", PAGE), ("Origin", "null")]), 403);
    let api = |host| raw(&viewed, "GET /api/v1/overview HTTP/1.1", &[("Host", host)]);
    assert_eq!((api(PAGE), api("evil.example")), (200, 403));
}

#[test]
fn nothing_can_be_changed() {
    let viewed = Viewed::new(&[("web.yaml", &web(&["2.10"]))]);
    for path in ["/", "/api/v1/overview", "/api/v1/services/default/web"] {
        for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
            let reply = viewed.request(method, path, &[]);
            assert_eq!(
                (reply.code, reply.header("allow")),
                (405, "GET, HEAD"),
                "{method} {path}"
            );
        }
        let reply = viewed.request("HEAD", path, &[]);
        assert_eq!((reply.code, &*reply.body), (200, ""), "{path}");
    }
}

#[test]
fn every_response_has_security_headers() {
    let viewed = Viewed::new(&[("web.yaml", &web(&["2.10"]))]);
    for path in ["/", "/nowhere", "/api/v1/overview", "/api/v1/nowhere"] {
        let reply = viewed.request("GET", path, &[]);
        let policy = reply.header("content-security-policy");
        assert!(
            policy.contains("default-src 'none'") && !policy.contains("unsafe"),
            "{policy}"
        );
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        assert_eq!(reply.header("x-content-type-options"), "nosniff");
        assert_eq!(reply.header("referrer-policy"), "no-referrer");
        assert_eq!(reply.header("access-control-allow-origin"), "");
    }
}

#[test]
fn only_the_owner_may_use_the_socket_which_the_daemon_removes() {
    let viewed = Viewed::new(&[("web.yaml", &web(&["2.10"]))]);
    let mode = std::fs::metadata(viewed.socket())
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    // A second daemon warns and goes on; the first one's socket stays.
    let second = Viewed::with(
        &[("web.yaml", &web(&["2.10"]))],
        &[&format!("--admin-socket={}", viewed.socket().display())],
    );
    second.node.wait_for_log("another daemon answers there");
    viewed.ask("overview");
    drop(second);
    // Killed, it leaves a file behind, which the next one replaces.
    viewed.node.stop(libc::SIGKILL);
    assert!(matches!(
        viewed.try_ask("overview"),
        Err(ClientError::NoDaemon(_))
    ));
    viewed.start(&[]);
    viewed.ask("overview");
    viewed.node.stop(libc::SIGTERM);
    assert!(!viewed.socket().exists());
}

#[test]
fn both_can_be_switched_off() {
    let viewed = Viewed::with(
        &[("web.yaml", &web(&["2.10"]))],
        &["--admin-socket=", "--web-bind-address="],
    );
    assert!(matches!(
        viewed.try_ask("overview"),
        Err(ClientError::NoDaemon(_))
    ));
    let _inside = viewed
        .node
        .world
        .enter(Role::Node)
        .expect("the node is there");
    assert!(std::net::TcpStream::connect(PAGE).is_err());
}

/// On loopback the page could be read by every user of the machine and by pods on the host's network.
#[test]
fn disables_the_page_without_an_address() {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["2.10"]));
    node.start();
    node.wait_until_ready();
    let _inside = node.world.enter(Role::Node).expect("the node is there");
    assert!(std::net::TcpStream::connect(PAGE).is_err());
}

#[test]
fn continues_if_the_port_is_in_use() {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["2.10"]));
    let taken = {
        let _inside = node.world.enter(Role::Node).expect("the node is there");
        std::net::TcpListener::bind(PAGE).expect("the port is free")
    };
    let mut command = node.run_command();
    command.arg(format!("--web-bind-address={PAGE}"));
    node.spawn(command);
    node.wait_for_log("cannot listen for the page");
    drop(taken);
    wait(|| {
        let _inside = node.world.enter(Role::Node).expect("the node is there");
        let address = PAGE.parse().expect("an address");
        match super::client::try_request(address, "GET", "/", &[], "") {
            Ok(reply) if reply.code == 200 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}

#[test]
fn a_command_without_a_daemon_suggests_what_to_do() {
    let error = Client::new("/nonexistent/admin.sock").get("overview");
    let error = error.expect_err("there is none").to_string();
    assert!(
        error.contains("--manifests") && error.lines().count() == 1,
        "{error}"
    );
}

/// The code of the answer to exactly these headers.
fn raw(viewed: &Viewed, line: &str, headers: &[(&str, &str)]) -> u16 {
    use std::io::{Read, Write};
    let _inside = viewed
        .node
        .world
        .enter(Role::Node)
        .expect("the node is there");
    let mut stream = super::client::connect(PAGE.parse().expect("an address")).expect("it listens");
    let headers: String = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    write!(stream, "{line}\r\n{headers}Connection: close\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    code.unwrap_or_else(|| panic!("{answer}"))
}
