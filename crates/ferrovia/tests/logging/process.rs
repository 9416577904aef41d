//! Logs of whole processes. The process is this test binary, asked to run one "test" that is not one.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{io, thread};

use ferrovia_lab::Folder;

use crate::klog::{Line, Value};

const MANIFESTS: &str = "\
kind: Service
metadata: {name: web, namespace: prod}
spec: {clusterIP: 10.96.0.10, ports: [{port: 80}], loadBalancerSourceRanges: [\"no range\\nE1102 forged\"]}
---
kind: Pod
metadata: {name: no-use-for-it}
";

/// The lines that a process logs, each with the system call that wrote it: a datagram is one call.
fn lines_of_a_run(format: &str, filter: Option<&str>) -> Vec<String> {
    let folder = Folder::new();
    folder.write("web.yaml", MANIFESTS);
    folder.write("broken.yaml", "kind: [\n");

    let (ours, theirs) = UnixDatagram::pair().unwrap();
    let mut command = Command::new("unshare");
    command
        .arg("--net")
        .arg(env!("CARGO_BIN_EXE_ferrovia"))
        .args(["run", "--once", "--node-name=node", "-v=10"])
        .arg(format!("--logging-format={format}"))
        .arg("--manifests")
        .arg(folder.path())
        .env_remove("FERROVIA_LOG")
        .stdout(Stdio::null())
        .stderr(OwnedFd::from(theirs));
    if let Some(filter) = filter {
        command.env("FERROVIA_LOG", filter);
    }
    let mut process = command.spawn().expect("unshare is needed");
    let has_ended = AtomicBool::new(false);
    let (status, datagrams) = thread::scope(|scope| {
        let reader = scope.spawn(|| datagrams(&ours, &has_ended));
        let status = process.wait().unwrap();
        has_ended.store(true, Ordering::SeqCst);
        (status, reader.join().unwrap())
    });
    assert!(status.success(), "{datagrams:?}");
    let line = |datagram: String| {
        let line = datagram
            .strip_suffix('\n')
            .unwrap_or_else(|| panic!("no end: {datagram:?}"));
        assert!(!line.contains('\n'), "not one line: {datagram:?}");
        line.to_owned()
    };
    datagrams.into_iter().map(line).collect()
}

/// All that comes until the other side has ended and nothing is left.
fn datagrams(socket: &UnixDatagram, has_ended: &AtomicBool) -> Vec<String> {
    socket
        .set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    let mut received = Vec::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        // Asked first: what was sent before the end is there when the end is known.
        let is_last = has_ended.load(Ordering::SeqCst);
        match socket.recv(&mut buffer) {
            Ok(length) => received.push(String::from_utf8(buffer[..length].to_vec()).unwrap()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if is_last {
                    return received;
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn every_line_of_a_run_is_klog_text() {
    let lines: Vec<_> = lines_of_a_run("text", None)
        .iter()
        .map(|line| Line::parse(line).unwrap_or_else(|error| panic!("{error}")))
        .collect();
    let started = lines
        .iter()
        .find(|line| line.message == "starting")
        .unwrap();
    assert_eq!(started.severity, 'I');
    assert_eq!(started.field("node"), Some(&Value::Quoted("node".into())));
    assert!(lines.iter().any(|line| line.message == "wrote the rules"));
    assert!(
        lines
            .iter()
            .any(|line| line.severity == 'W' || line.severity == 'E')
    );
    assert!(lines.iter().all(|line| line.pid == started.pid));
}

#[test]
fn every_line_of_a_run_is_json() {
    let lines = lines_of_a_run("json", None);
    let mut messages = Vec::new();
    for line in &lines {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(line["ts"].is_f64() && line["caller"].is_string(), "{line}");
        messages.push(line["msg"].as_str().unwrap().to_owned());
    }
    assert!(messages.iter().any(|message| message == "starting"));
}

#[test]
fn the_environment_decides_if_it_is_understood() {
    let severities = |filter| -> Vec<char> {
        lines_of_a_run("text", Some(filter))
            .iter()
            .map(|line| {
                Line::parse(line)
                    .unwrap_or_else(|error| panic!("{error}"))
                    .severity
            })
            .collect()
    };
    assert!(!severities("warn").contains(&'I'));
    let lines = lines_of_a_run("text", Some("ferrovia=nonsense"));
    assert!(
        lines
            .iter()
            .any(|line| line.contains("FERROVIA_LOG is not understood")),
        "{lines:?}"
    );
    assert!(lines.iter().any(|line| line.contains("starting")));
}
