//! All faults.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use ferrovia_lab::apiserver::{
    ApiServer, ApiServerOptions, End, Fault, FaultTarget, Interference, Kind, Verb, sample,
};
use http::StatusCode;

use crate::client::{Answer, get, send};

const LIST: &str = "GET /api/v1/services HTTP/1.1\r\nHost: lab\r\n\r\n";

fn server() -> ApiServer {
    ApiServer::start(ApiServerOptions::default()).unwrap()
}

/// A watch that the server has registered.
fn watch(server: &ApiServer) -> Answer {
    let target = format!(
        "/api/v1/services?watch=1&resourceVersion={}",
        server.revision()
    );
    get(server, &target)
}

/// The revisions of the next events.
fn revisions(watch: &mut Answer, count: usize) -> Vec<u64> {
    (0..count).map(|_| watch.short_event().2).collect()
}

#[test]
fn rejects_the_next_requests_a_given_number_of_times() {
    let server = server();
    let busy = Fault::Code {
        code: StatusCode::TOO_MANY_REQUESTS,
        retry_after: Some(7),
    };
    server.inject_times(2, FaultTarget::list(Kind::Service), busy);
    for _ in 0..2 {
        let answer = get(&server, "/api/v1/services");
        assert_eq!(answer.status, 429);
        assert_eq!(answer.header("retry-after"), Some("7"));
        let status = answer.json();
        assert_eq!(status["reason"], "TooManyRequests");
        assert_eq!(status["details"]["retryAfterSeconds"], 7);
    }
    assert_eq!(get(&server, "/api/v1/services").status, 200);

    for code in [500, 503] {
        let code = StatusCode::from_u16(code).unwrap();
        server.inject(FaultTarget::verb(Verb::List), Fault::code(code));
        assert_eq!(get(&server, "/api/v1/nodes").status, code);
        assert_eq!(get(&server, "/api/v1/nodes").json()["code"], code.as_u16());
        assert_eq!(get(&server, "/version").status, 200);
        server.heal().unwrap();
        assert_eq!(get(&server, "/api/v1/nodes").status, 200);
    }
}

#[test]
fn forbids_requests_for_one_kind() {
    let server = server();
    server.inject(FaultTarget::kind(Kind::EndpointSlice), Fault::Forbid);
    let answer = get(&server, "/apis/discovery.k8s.io/v1/endpointslices");
    assert_eq!(answer.status, 403);
    let status = answer.json();
    assert_eq!(status["reason"], "Forbidden");
    let message = "endpointslices.discovery.k8s.io is forbidden: User \"system:anonymous\" cannot \
                   list resource \"endpointslices\" in API group \"discovery.k8s.io\" at the \
                   cluster scope";
    assert_eq!(status["message"], message);
    assert_eq!(get(&server, "/api/v1/services").status, 200);
}

#[test]
fn delays_a_response() {
    let server = server();
    let delay = Duration::from_millis(300);
    server.inject(FaultTarget::ALL, Fault::Delay(delay));
    let start = Instant::now();
    assert_eq!(get(&server, "/version").status, 200);
    assert!(start.elapsed() >= delay);
}

#[test]
fn never_responds() {
    let server = server();
    server.inject(FaultTarget::ALL, Fault::Hang);
    let mut stream = TcpStream::connect(server.address()).unwrap();
    std::io::Write::write_all(&mut stream, LIST.as_bytes()).unwrap();
    server.wait_until(|s| s.requests().len() == 1).unwrap();
    let short = Some(Duration::from_millis(200));
    stream.set_read_timeout(short).unwrap();
    let error = stream.peek(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    // Other requests are served once the fault is removed.
    server.heal().unwrap();
    assert_eq!(get(&server, "/api/v1/services").status, 200);
}

#[test]
fn closes_the_connection_instead_of_responding() {
    let server = server();
    let target = FaultTarget::list(Kind::Service);
    server.inject_times(1, target, Fault::Reset);
    let error = send(&server, LIST).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    server.inject_times(1, target, Fault::Abort);
    let error = send(&server, LIST).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    assert_eq!(send(&server, LIST).unwrap().status, 200);
}

#[test]
fn silences_a_watch_until_healed() {
    let server = server();
    let mut watch = watch(&server);
    server.inject(FaultTarget::watch(Kind::Service), Fault::Silence);
    let missed = server.apply(sample::service(1)).unwrap();
    // A watch of another kind continues, and shows that the server had enough time.
    let mut nodes = get(&server, "/api/v1/nodes?watch=1");
    server.apply(sample::node("n1", &[])).unwrap();
    nodes.short_event();
    assert_eq!(server.watches(Kind::Service), 1);
    server.write_to_watches(Kind::Service, "still silent\n");
    assert_eq!(watch.line().unwrap().as_deref(), Some("still silent\n"));
    server.heal().unwrap();
    assert_eq!(revisions(&mut watch, 1), [missed]);
}

#[test]
fn delays_the_headers_of_a_watch_until_its_first_event() {
    let server = server();
    let revision = server.apply(sample::service(1)).unwrap();
    server.inject(FaultTarget::watch(Kind::Service), Fault::Silence);
    let mut watch = get(&server, "/api/v1/services?watch=1");
    server.write_to_watches(Kind::Service, "nothing yet\n");
    assert_eq!(watch.line().unwrap().as_deref(), Some("nothing yet\n"));
    server.heal().unwrap();
    assert_eq!(revisions(&mut watch, 1), [revision]);
}

#[test]
fn duplicates_and_reorders_events() {
    let server = server();
    let mut watch = watch(&server);
    let apply = |number| server.apply(sample::service(number)).unwrap();

    server.inject(FaultTarget::watch(Kind::Service), Fault::Duplicate);
    let (a, b) = (apply(1), apply(2));
    assert_eq!(revisions(&mut watch, 4), [a, a, b, b]);
    server.heal().unwrap();

    server.inject(FaultTarget::watch(Kind::Service), Fault::Reorder);
    let (a, b, c) = (apply(1), apply(2), apply(3));
    assert_eq!(revisions(&mut watch, 2), [b, a]);
    // The third waits for a fourth, or until the fault is removed.
    server.heal().unwrap();
    let d = apply(4);
    assert_eq!(revisions(&mut watch, 2), [c, d]);
}

#[test]
fn writes_arbitrary_bytes_into_watches() {
    let server = server();
    let mut watch = watch(&server);
    let revision = server.apply(sample::service(1)).unwrap();
    server.write_to_watches(Kind::Service, "garbage\n{\"type\":\"ADD");
    server.write_to_watches(Kind::Service, "ED\"}\n");
    server.write_to_watches(Kind::Service, format!("{}\n", "x".repeat(5 << 20)));
    assert_eq!(revisions(&mut watch, 1), [revision]);
    assert_eq!(watch.line().unwrap().as_deref(), Some("garbage\n"));
    let joined = watch.line().unwrap();
    assert_eq!(joined.as_deref(), Some("{\"type\":\"ADDED\"}\n"));
    assert_eq!(watch.line().unwrap().unwrap().len(), (5 << 20) + 1);
}

#[test]
fn ends_watches_cleanly_or_with_an_error() {
    let server = server();
    let mut clean = watch(&server);
    let revision = server.apply(sample::service(1)).unwrap();
    server.end_watches(Kind::Service, End::Clean);
    assert_eq!(revisions(&mut clean, 1), [revision]);
    assert!(clean.line().unwrap().is_none());

    let mut aborted = watch(&server);
    server.write_to_watches(Kind::Service, "half a li");
    server.end_watches(Kind::Service, End::Abort);
    let error = aborted.line().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    assert_eq!(aborted.half_line(), b"half a li");
}

#[test]
fn refuses_new_connections_while_open_ones_continue() {
    let server = server();
    let mut watch = watch(&server);
    server.refuse_connections(true).unwrap();
    server.refuse_connections(true).unwrap();
    let error = TcpStream::connect(server.address()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    let revision = server.apply(sample::service(1)).unwrap();
    assert_eq!(revisions(&mut watch, 1), [revision]);
    server.heal().unwrap();
    assert_eq!(get(&server, "/version").status, 200);
}

#[test]
fn resets_connections() {
    let server = server();
    let mut watch = watch(&server);
    server.reset_connections();
    let error = watch.line().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    server
        .wait_until(|s| s.watches(Kind::Service) == 0)
        .unwrap();
}

#[test]
fn resets_connections_in_the_middle_of_a_line() {
    let server = server();
    let mut watch = watch(&server);
    server.reset_in_next_write();
    server.apply(sample::service(1)).unwrap();
    let error = watch.line().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let half = watch.half_line();
    assert!(half.starts_with(b"{\"type\":\"ADDED\""));
    assert!(half.len() > 500 && half.len() < 1500, "{}", half.len());
}

#[test]
fn sends_bytes_slowly() {
    let server = server();
    server.apply(sample::service(1)).unwrap();
    let every = Duration::from_millis(1);
    server.interfere(Interference::Drip { bytes: 20, every });
    let start = Instant::now();
    let list = get(&server, "/api/v1/services").json();
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    // More than a kilobyte, twenty bytes at a time.
    assert!(start.elapsed() >= every * 50);
}

#[test]
fn stalls_connections() {
    let server = server();
    let mut watch = watch(&server);
    server.interfere(Interference::Freeze);
    let revision = server.apply(sample::service(1)).unwrap();
    let mut stream = TcpStream::connect(server.address()).unwrap();
    std::io::Write::write_all(&mut stream, LIST.as_bytes()).unwrap();
    let short = Some(Duration::from_millis(200));
    stream.set_read_timeout(short).unwrap();
    let error = stream.peek(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    assert_eq!(server.requests().len(), 1, "only the watch came through");
    server.heal().unwrap();
    assert_eq!(revisions(&mut watch, 1), [revision]);
    server.wait_until(|s| s.requests().len() == 2).unwrap();
}
