//! News as they happen.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use ferrovia_lab::daemon::manifests::web;
use ferrovia_lab::waiting::{SOON, wait};
use serde_json::Value;

use super::view::Viewed;

/// Somebody who listens.
struct Listener(BufReader<UnixStream>);

impl Listener {
    fn new(viewed: &Viewed, path: &str) -> Self {
        let mut stream = UnixStream::connect(viewed.socket()).expect("the daemon listens");
        stream.set_read_timeout(Some(SOON)).expect("it can be set");
        write!(stream, "GET /api/v1/{path} HTTP/1.1\r\nHost: x\r\n\r\n").expect("it reads");
        Self(BufReader::new(stream))
    }

    /// The next event of this name.
    fn next(&mut self, name: &str) -> Value {
        let mut is_it = false;
        loop {
            let mut line = String::new();
            let read = self.0.read_line(&mut line).unwrap_or_default();
            assert!(read > 0, "no event {name}");
            if let Some(event) = line.strip_prefix("event: ") {
                is_it = event.trim() == name;
            }
            if let Some(data) = line.strip_prefix("data: ").filter(|_| is_it) {
                return serde_json::from_str(data).expect("JSON in one line");
            }
        }
    }
}

#[test]
fn sends_changes_to_subscribers() {
    let viewed = Viewed::new(&[("web.yaml", &web(&["2.10"]))]);
    let mut listener = Listener::new(&viewed, "events?service=default/web");
    assert_eq!(listener.next("hello")["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(listener.next("overview")["counts"]["services"], 1);
    listener.next("rates");
    viewed.node.write("web.yaml", &web(&["2.10", "2.11"]));
    let changes = listener.next("changes");
    assert_eq!(changes[0]["services"][0], "default/web");
    assert_eq!(listener.next("overview")["counts"]["endpoints"], 2);
    assert_eq!(listener.next("endpoints")["service"], "default/web");
}

#[test]
fn sends_rates_while_there_are_connections() {
    let viewed = Viewed::new(&[("web.yaml", &web(&["2.10"]))]);
    let mut listener = Listener::new(&viewed, "events");
    listener.next("rates");
    viewed
        .node
        .expect("pod-a > 10.96.0.10:80 => 10.244.2.10:8080");
    for _ in 0..60 {
        let rates = listener.next("rates");
        if rates["services"]["default/web"][1].as_f64() > Some(0.0) {
            assert!(rates["perSecond"].as_f64() > Some(0.0));
            return;
        }
    }
    panic!("no rate was told");
}

#[test]
fn limits_subscribers_and_frees_their_slots() {
    let viewed = Viewed::new(&[("web.yaml", &web(&["2.10"]))]);
    let mut listeners: Vec<Listener> = (0..16).map(|_| Listener::new(&viewed, "events")).collect();
    for listener in &mut listeners {
        listener.next("hello");
    }
    let error = viewed.try_ask("events").expect_err("there is no room");
    assert!(error.to_string().contains("listen already"), "{error}");
    // Everybody else is still served.
    viewed.ask("overview");
    listeners.clear();
    wait(|| {
        let mut probe = UnixStream::connect(viewed.socket()).map_err(|e| e.to_string())?;
        probe
            .set_read_timeout(Some(SOON))
            .map_err(|e| e.to_string())?;
        write!(probe, "GET /api/v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
            .map_err(|e| e.to_string())?;
        let mut line = String::new();
        BufReader::new(probe)
            .read_line(&mut line)
            .map_err(|e| e.to_string())?;
        if line.contains("200") {
            Ok(())
        } else {
            Err(line)
        }
    });
}
