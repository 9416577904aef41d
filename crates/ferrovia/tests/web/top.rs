//! `ferrovia top`, in a terminal that `script` makes and without one.

use std::io::{Read, Write};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use ferrovia_lab::Role;
use ferrovia_lab::daemon::manifests::web;
use ferrovia_lab::waiting::wait;

use super::view::Viewed;
use crate::FERROVIA;

#[test]
fn once_prints_a_table() {
    let viewed = Viewed::new(&[("web.yaml", &web(&["1.10", "2.10"]))]);
    let socket = format!("--admin-socket={}", viewed.socket().display());
    let run = |arguments: &[&str]| {
        let output = viewed.node.ferrovia().args(arguments).output();
        let output = output.expect("ferrovia can be started");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    let (code, table, _) = run(&["top", "--once", &socket]);
    assert_eq!(code, Some(0));
    let row = table.lines().nth(1).expect("a row");
    assert!(
        row.starts_with("default/web  NodePort  10.96.0.10 80/tcp"),
        "{table}"
    );
    let (_, none, _) = run(&["top", "--once", &socket, "--sort", "name", "nothing"]);
    assert_eq!(none.lines().count(), 1, "{none}");
    // One line that says what is wrong, and what to try.
    for (arguments, words) in [
        (&["top", &socket][..], "--once"),
        (&["top", "--once", "--sort=colour", &socket], "cannot sort"),
        (
            &["top", "--once", "--admin-socket=/nonexistent"],
            "no daemon answers",
        ),
    ] {
        let (code, _, error) = run(arguments);
        assert_eq!(code, Some(1), "{arguments:?}");
        assert!(
            error.contains(words) && error.trim().lines().count() == 1,
            "{error}"
        );
    }
}

#[test]
fn a_terminal_shows_services_and_endpoints() {
    let viewed = Viewed::new(&[("web.yaml", &web(&["1.10", "2.10"]))]);
    let command = format!(
        "stty rows 24 cols 110; exec {} top --admin-socket={}",
        FERROVIA,
        viewed.socket().display()
    );
    let mut terminal = viewed
        .node
        .world
        .exec(Role::Node, "script")
        .args(["-qec", &command, "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script can be run");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (mut output, written) = (
        terminal.stdout.take().expect("it is piped"),
        Arc::clone(&seen),
    );
    std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(n @ 1..) = output.read(&mut piece) {
            written
                .lock()
                .expect("nobody panics with it")
                .extend(&piece[..n]);
        }
    });
    let shows = |words: &str| {
        wait(|| {
            let seen = seen.lock().expect("nobody panics with it");
            let text = String::from_utf8_lossy(&seen);
            if text.contains(words) {
                Ok(())
            } else {
                Err(format!("no {words} in {text:?}"))
            }
        });
    };
    let mut keys = terminal.stdin.take().expect("it is piped");
    let mut press = |key: &str| {
        keys.write_all(key.as_bytes())
            .and_then(|()| keys.flush())
            .expect("it reads");
    };
    shows("default/web");
    shows("healthy");
    press("\r");
    shows("10.244.2.10:8080");
    press("q");
    assert!(terminal.wait().expect("it is our child").success());
}
