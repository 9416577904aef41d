//! Whatever is sent to the daemon's servers, they answer or hang up, and nothing of the daemon ends.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use ferrovia::serve::admin::client::Client;
use ferrovia_lab::Role;
use ferrovia_lab::daemon::TestNode;
use ferrovia_lab::daemon::manifests::web;
use ferrovia_lab::fuzz::FuzzTarget;

use super::corpus;
use crate::FERROVIA;

/// Health checks, metrics, and the page.
const SERVERS: [&str; 3] = ["127.0.0.1:10256", "127.0.0.1:10249", "127.0.0.1:10247"];

/// An answer is not waited for any longer. Those that come, come at once; a connection that is kept open is no fault.
const PATIENCE: Duration = Duration::from_millis(500);

#[test]
fn hostile_requests_end_nothing() {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["1.10", "2.10"]));
    let socket = node.folder().with_extension("sock");
    let mut command = node.run_command();
    command.arg(format!("--admin-socket={}", socket.display()));
    command.args([
        "--metrics-bind-address=127.0.0.1:10249",
        "--web-bind-address=127.0.0.1:10247",
        "--healthz-bind-address=127.0.0.1:10256",
    ]);
    node.spawn(command);
    node.wait_until_ready();
    let folder = corpus("requests");
    let target = FuzzTarget {
        name: "requests",
        corpus: &folder,
        pieces: &[
            b"\r\n",
            b"\n",
            b" ",
            b"%",
            b"%00",
            b"%ff",
            b"/",
            b"/../",
            b"?",
            b"&",
            b"=",
            b":",
            b"\0",
            b"\xff",
            b"GET ",
            b"HEAD ",
            b"CONNECT a:1 ",
            b"HTTP/1.1",
            b"HTTP/2.0",
            b"Host: localhost\r\n",
            b"Content-Length: 99999999999999999999\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"Expect: 100-continue\r\n",
            b"Upgrade: h2c\r\n",
            b"limit=18446744073709551615",
            b"offset=-1",
        ],
        longest: 16 * 1024,
    };
    {
        let _inside = node.world.enter(Role::Node).expect("the node is there");
        target.run(|_, bytes| {
            for server in SERVERS {
                let address: SocketAddr = server.parse().unwrap();
                let stream = TcpStream::connect(address).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let hang_up = |stream: &TcpStream| stream.shutdown(Shutdown::Write);
                exchange(stream, bytes, hang_up);
            }
            let stream = UnixStream::connect(&socket).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            exchange(stream, bytes, |stream| stream.shutdown(Shutdown::Write));
        });
    }
    still_well(&node, &socket);
}

/// Sends it and takes what comes back. The server may hang up at any moment.
fn exchange<S: Read + Write>(
    mut stream: S,
    bytes: &[u8],
    hang_up: impl Fn(&S) -> std::io::Result<()>,
) {
    let _ = stream.write_all(bytes);
    let _ = hang_up(&stream);
    let mut answer = [0; 4096];
    if let Ok(length) = stream.read(&mut answer) {
        let answer = &answer[..length];
        let is_http = length == 0 || answer.starts_with(b"HTTP/1.");
        assert!(is_http, "\"{}\"", answer.escape_ascii());
    }
}

fn still_well(node: &TestNode, socket: &Path) {
    assert!(node.is_running());
    let log = node.log();
    assert!(!log.contains("panicked"), "{log}");
    let overview = Client::new(socket).get("overview").unwrap();
    assert_eq!(overview["node"], "node-1", "{overview}");
    node.expect("pod-c > 10.96.0.10:80 => 10.244.1.10:8080 | 10.244.2.10:8080");
    let _ = std::fs::remove_file(socket);
}
