//! Ports that are open to everybody.

use std::net::SocketAddr;

use ferrovia_lab::Role;

use super::client::request;
use super::support::{Node, web};

const HEALTH: &str = "198.51.100.10:10256";

/// CVE-2019-11248. The health port is open to load balancers, so to everybody: it tells health and nothing else, whatever is switched on.
#[test]
fn the_health_port_shows_health_and_nothing_else() {
    let node = Node::new();
    node.write("web.yaml", &web(&["1.10"]));
    let mut command = node.run_command();
    command.args([
        "--healthz-bind-address=0.0.0.0:10256",
        "--metrics-bind-address=127.0.0.1:10249",
        "--profiling",
    ]);
    node.spawn(command);
    node.wait_until_ready();
    let address: SocketAddr = HEALTH.parse().unwrap();
    let _outside = node.world.enter(Role::Outside).unwrap();
    let code = |method, path| request(address, method, path, &[], "").code;
    assert_eq!(code("GET", "/healthz"), 200);
    for path in [
        "/debug/pprof/",
        "/debug/pprof/cmdline",
        "/debug/flags/v",
        "/metrics",
        "/configz",
        "/flagz",
        "/statusz",
        "/api/v1/overview",
        "/",
    ] {
        assert_eq!(code("GET", path), 404, "{path}");
        assert_eq!(code("PUT", path), 404, "{path}");
    }
    // Metrics and the page are for this machine alone, unless somebody says otherwise.
    for port in [10249, 10247] {
        let open = std::net::TcpStream::connect(SocketAddr::new(address.ip(), port));
        assert!(open.is_err(), "{port} is open to the outside");
    }
}
