//! Clients that are slow, many or large. The ports are open to everybody, so none of them may keep a health check from its answer.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ferrovia::serve::http::{Server, serve_health};

use crate::client::{connect, get};
use crate::support::{Runtime, allow_many_descriptors, anywhere, measured, synced};

/// Far longer than an answer takes, far shorter than any of the server's own limits would make it.
const RESPONSIVE: Duration = Duration::from_secs(8);

fn serve(runtime: &Runtime) -> (Server, SocketAddr) {
    let health = synced(Duration::from_secs(60));
    let bind = anywhere("127.0.0.1:0");
    let server = serve_health(&runtime.handle, &bind, health, measured()).unwrap();
    let address = server.address().unwrap();
    (server, address)
}

fn assert_responsive(address: SocketAddr) {
    let start = Instant::now();
    assert_eq!(get(address, "/healthz").code, 200);
    let took = start.elapsed();
    assert!(took < RESPONSIVE, "{took:?}");
}

#[test]
fn a_slow_client_is_not_waited_for_and_not_kept() {
    let runtime = Runtime::start();
    let (_server, address) = serve(&runtime);
    let mut slow = connect(address).unwrap();
    let stopped = Arc::new(AtomicBool::new(false));
    let mut drip = slow.try_clone().unwrap();
    let stop = Arc::clone(&stopped);
    let dripping = thread::spawn(move || {
        for byte in b"GET /healthz HTTP/1.1\r\nX-Padding: "
            .iter()
            .chain([b'x'; 1000].iter())
        {
            if stop.load(Ordering::SeqCst) || drip.write_all(&[*byte]).is_err() {
                return;
            }
            thread::sleep(Duration::from_secs(1));
        }
    });
    let mut silent = connect(address).unwrap();
    let mut kept = connect(address).unwrap();
    kept.write_all(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    assert_responsive(address);
    // The server gives up on each of them, long before the slow one's header is complete.
    let start = Instant::now();
    let mut answer = Vec::new();
    let _ = slow.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP/1.1 200"));
    let _ = silent.read_to_end(&mut Vec::new());
    let _ = kept.read_to_end(&mut Vec::new());
    assert!(start.elapsed() < Duration::from_secs(50));
    stopped.store(true, Ordering::SeqCst);
    dripping.join().unwrap();
    assert_responsive(address);
}

#[test]
fn idle_connections_do_not_fill_the_server() {
    allow_many_descriptors();
    let runtime = Runtime::start();
    let (_server, address) = serve(&runtime);
    let mut idle: Vec<TcpStream> = Vec::new();
    for i in 0..1000 {
        let mut stream = connect(address).unwrap();
        if i % 2 == 0 {
            // Some have begun to say something.
            let _ = stream.write_all(b"GET /heal");
        }
        idle.push(stream);
        if i % 100 == 0 {
            assert_responsive(address);
        }
    }
    assert_responsive(address);
    // The oldest was let go for the others' sake.
    let oldest = &mut idle[0];
    oldest.set_read_timeout(Some(RESPONSIVE)).unwrap();
    let end = oldest.read(&mut [0; 1]);
    let is_over = match &end {
        Ok(n) => *n == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    };
    assert!(is_over, "{end:?}");
}

#[test]
fn a_large_header_is_refused() {
    let runtime = Runtime::start();
    let (_server, address) = serve(&runtime);
    let mut stream = connect(address).unwrap();
    let mut request = b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Large: ".to_vec();
    request.resize(10 * 1024 * 1024, b'x');
    // It may end the conversation before all is sent.
    let _ = stream.write_all(&request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
        "{answer}"
    );
    assert_responsive(address);
}

#[test]
fn a_body_is_not_waited_for() {
    let runtime = Runtime::start();
    let (_server, address) = serve(&runtime);
    let mut stream = connect(address).unwrap();
    stream
        .write_all(
            b"POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000000\r\n\r\nbegin",
        )
        .unwrap();
    let start = Instant::now();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    assert!(start.elapsed() < RESPONSIVE);
}

#[test]
fn nonsense_is_refused() {
    let runtime = Runtime::start();
    let (_server, address) = serve(&runtime);
    for nonsense in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"\0\0\0\0\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /healthz\r\n\r\n",
    ] {
        let mut stream = connect(address).unwrap();
        stream.write_all(nonsense).unwrap();
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP/1.1 200"), "{nonsense:?}");
        assert_responsive(address);
    }
}
