//! Which events are logged, and how that changes.

use ferrovia::logging::{FileVerbosity, Format, LogSettings};
use serde_json::json;

use crate::klog::Value;
use crate::support::{Log, logged, settings};

/// Of our own code: an event of every level.
fn ours() {
    tracing::error!(target: "ferrovia::x", "our error");
    tracing::warn!(target: "ferrovia::x", "our warning");
    tracing::info!(target: "ferrovia::x", "our information");
    tracing::debug!(target: "ferrovia_host::x", "our debugging");
    tracing::trace!(target: "ferrovia_core::x", "our tracing");
}

/// The same of a library.
fn theirs() {
    tracing::error!(target: "library", "their error");
    tracing::warn!(target: "library", "their warning");
    tracing::info!(target: "library", "their information");
    tracing::debug!(target: "library", "their debugging");
    tracing::trace!(target: "library", "their tracing");
}

fn messages(log: &Log) -> Vec<String> {
    log.klog().into_iter().map(|line| line.message).collect()
}

#[test]
fn each_verbosity_shows_what_the_documentation_says() {
    let shown = |verbosity| {
        let log = logged(&settings(Format::Text, verbosity), |_| {
            ours();
            theirs();
        });
        messages(&log)
    };
    let always = [
        "our error",
        "our warning",
        "our information",
        "their error",
        "their warning",
    ];
    let with = |verbosity: u32, more: &[&str]| {
        let mut wanted: Vec<_> = always.iter().chain(more).map(ToString::to_string).collect();
        let mut found = shown(verbosity);
        wanted.sort();
        found.sort();
        assert_eq!(found, wanted, "-v {verbosity}");
    };
    with(0, &[]);
    with(1, &[]);
    with(2, &["their information"]);
    with(3, &["their information"]);
    with(4, &["their information", "our debugging"]);
    with(6, &["their information", "our debugging", "our tracing"]);
    with(
        8,
        &[
            "their information",
            "our debugging",
            "our tracing",
            "their debugging",
        ],
    );
    with(
        10,
        &[
            "their information",
            "our debugging",
            "our tracing",
            "their debugging",
            "their tracing",
        ],
    );
    assert_eq!(shown(u32::MAX).len(), 10);
}

#[test]
fn letter_and_v_show_the_level() {
    let log = logged(&settings(Format::Text, 6), |_| ours());
    let letters: String = log.klog().iter().map(|line| line.severity).collect();
    assert_eq!(letters, "EWIII");

    let log = logged(&settings(Format::Json, 6), |_| ours());
    let v: Vec<_> = log
        .json()
        .iter()
        .map(|line| line.get("v").cloned())
        .collect();
    assert_eq!(
        v,
        [
            None,
            Some(json!(0)),
            Some(json!(0)),
            Some(json!(4)),
            Some(json!(6))
        ]
    );
}

#[test]
fn verbosity_changes_while_running() {
    let log = logged(&settings(Format::Text, 0), |control| {
        ours();
        control.set_verbosity(4);
        ours();
        control.clone().set_verbosity(0);
        ours();
    });
    let counts = |word| messages(&log).iter().filter(|m| m.contains(word)).count();
    assert_eq!(
        (
            counts("information"),
            counts("debugging"),
            counts("tracing")
        ),
        (3, 1, 0)
    );
}

#[test]
fn vmodule_adds_to_some_files() {
    let shown = |pattern, verbosity, format| {
        let settings = LogSettings {
            vmodule: files(pattern, verbosity),
            ..settings(format, 0)
        };
        logged(&settings, |_| ours()).errors.lines().len()
    };
    assert_eq!(shown("levels", 4, Format::Text), 4);
    assert_eq!(shown("le*s", 6, Format::Text), 5);
    assert_eq!(shown("*/logging/levels", 6, Format::Text), 5);
    assert_eq!(shown("other", 6, Format::Text), 3);
    assert_eq!(shown("levels", 6, Format::Json), 3);
}

#[test]
fn vmodule_takes_nothing_away() {
    let settings = LogSettings {
        vmodule: files("levels", 0),
        ..settings(Format::Text, 6)
    };
    let log = logged(&settings, |_| ours());
    assert_eq!(log.klog().len(), 5);
}

fn files(pattern: &str, verbosity: u32) -> Vec<FileVerbosity> {
    vec![FileVerbosity {
        pattern: pattern.to_owned(),
        verbosity,
    }]
}

#[test]
fn fields_come_after_the_error_and_keep_their_kind() {
    let error = std::fmt::Error;
    let event = || {
        let error: &(dyn std::error::Error + 'static) = &error;
        tracing::warn!(
            target: "ferrovia::x",
            object = "ns/web", count = 3, ratio = 0.5, is_local = true, kind = ?Some(1), nothing = f64::NAN, error,
            "left out"
        );
    };
    let quoted = |text: &str| Value::Quoted(text.into());
    let bare = |text: &str| Value::Bare(text.into());
    let log = logged(&settings(Format::Text, 0), |_| event());
    let [line] = log.klog().try_into().unwrap();
    let fields: Vec<_> = line.fields.into_iter().collect();
    assert_eq!(
        (line.message.as_str(), line.file.as_str()),
        ("left out", "logging/levels.rs")
    );
    assert_eq!(line.pid, std::process::id());
    assert_eq!(
        fields,
        [
            ("err".into(), quoted(&error.to_string())),
            ("object".into(), quoted("ns/web")),
            ("count".into(), bare("3")),
            ("ratio".into(), bare("0.5")),
            ("is_local".into(), bare("true")),
            ("kind".into(), quoted("Some(1)")),
            ("nothing".into(), quoted("NaN")),
        ]
    );

    let log = logged(&settings(Format::Json, 0), |_| event());
    let [mut line] = log.json().try_into().unwrap();
    let line = line.as_object_mut().unwrap();
    assert!(line.remove("ts").unwrap().as_f64().unwrap() > 1.7e12);
    let caller = line.remove("caller").unwrap();
    assert!(
        caller.as_str().unwrap().starts_with("logging/levels.rs:"),
        "{caller}"
    );
    assert_eq!(
        serde_json::Value::Object(line.clone()),
        json!({
            "msg": "left out", "v": 0, "severity": "warning", "err": error.to_string(), "object": "ns/web", "count": 3, "ratio": 0.5,
            "is_local": true, "kind": "Some(1)", "nothing": "NaN",
        })
    );
}
