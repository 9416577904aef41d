//! Contents of objects must not be able to forge or flood the log.

use ferrovia::logging::Format;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::klog::Value;
use crate::support::{logged, settings};

/// All values of an event together, and room for escapes and names. Nothing makes a line longer.
const LONGEST: usize = 128 * 1024;

/// Texts full of what ends lines, quotes and terminals' patience.
fn hostile() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        any::<char>().prop_map(String::from),
        prop::sample::select(vec![
            "\n",
            "\r\n",
            "\"",
            "\\",
            "\\n",
            "\0",
            "\x1b[2J",
            "\u{7f}",
            "\u{85}",
            "\u{9b}31m",
            "\u{2028}",
            "\u{202e}",
            "=",
            " key=",
            "] ",
            "}",
            "{\"ts\":1}",
            "\nE1102 03:04:05.000678    4242 run.rs:140] \"forged\"",
        ])
        .prop_map(String::from),
    ];
    vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn say(message: &str, error: &str, object: &str) {
    tracing::error!(target: "ferrovia::x", error, %object, count = 3, "{message}");
}

proptest! {
    #[test]
    fn text_is_one_line_that_says_what_was_said(message in hostile(), error in hostile(), object in hostile()) {
        let log = logged(&settings(Format::Text, 0), |_| say(&message, &error, &object));
        let [line] = log.klog().try_into().unwrap();
        prop_assert_eq!(&line.message, &message);
        prop_assert_eq!(line.fields, [
            ("err".into(), Value::Quoted(error)),
            ("object".into(), Value::Quoted(object)),
            ("count".into(), Value::Bare("3".into())),
        ]);
    }

    #[test]
    fn json_is_one_line_that_says_what_was_said(message in hostile(), error in hostile(), object in hostile()) {
        let log = logged(&settings(Format::Json, 0), |_| say(&message, &error, &object));
        prop_assert!(!log.errors.lines()[0].contains(char::is_control));
        let [line] = log.json().try_into().unwrap();
        prop_assert_eq!(line.as_object().unwrap().len(), 6);
        prop_assert_eq!(&line["msg"], &message);
        prop_assert_eq!(&line["err"], &error);
        prop_assert_eq!(&line["object"], &object);
        prop_assert_eq!(&line["count"], 3);
    }
}

#[test]
fn marks_a_truncated_megabyte() {
    for text in [
        "x".repeat(1 << 20),
        "\0".repeat(1 << 20),
        "🚂".repeat(1 << 18),
    ] {
        let log = logged(&settings(Format::Text, 0), |_| say(&text, &text, &text));
        let [line] = log.klog().try_into().unwrap();
        assert!(line.message.ends_with("bytes more)"));
        assert!(log.errors.lines()[0].len() < LONGEST);

        let log = logged(&settings(Format::Json, 0), |_| say(&text, &text, &text));
        let [line] = log.json().try_into().unwrap();
        assert!(line["object"].as_str().unwrap().ends_with("bytes more)"));
        assert!(log.errors.lines()[0].len() < LONGEST);
    }
}

#[test]
fn many_long_values_are_cut_together() {
    let long = "x".repeat(1 << 20);
    let log = logged(&settings(Format::Text, 0), |_| {
        tracing::info!(target: "ferrovia::x", a = long, b = long, c = long, d = long, e = long, f = long, "{long}");
    });
    let [line] = log.klog().try_into().unwrap();
    assert_eq!(line.fields.len(), 6);
    assert!(log.errors.lines()[0].len() < 18 * 1024);
}
