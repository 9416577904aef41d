//! Which stream a line takes, and when.

use std::thread;
use std::time::{Duration, Instant};

use ferrovia::logging::{self, Format, LogSettings};

use crate::support::{Log, logged, settings};

/// Long enough for the busiest machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn split(info_buffer_size: usize, flush_frequency: Duration) -> LogSettings {
    LogSettings {
        split_stream: true,
        info_buffer_size,
        flush_frequency,
        ..settings(Format::Text, 0)
    }
}

fn inform(text: &str) {
    tracing::info!(target: "ferrovia::x", "{text}");
}

#[test]
fn by_default_everything_takes_one_stream() {
    let log = logged(&settings(Format::Text, 0), |_| {
        inform("a");
        tracing::error!(target: "ferrovia::x", "b");
    });
    assert_eq!((log.info.lines().len(), log.errors.lines().len()), (0, 2));
}

#[test]
fn split_streams_keep_information_apart() {
    let log = logged(&split(0, PATIENCE), |_| {
        inform("a");
        tracing::warn!(target: "ferrovia::x", "b");
        tracing::error!(target: "ferrovia::x", "c");
    });
    assert_eq!((log.info.lines().len(), log.errors.lines().len()), (1, 2));
}

#[test]
fn information_waits_for_company_an_error_or_the_end() {
    let log = Log::default();
    let (subscriber, control) = logging::subscriber(&split(300, PATIENCE), log.streams(false));
    // The thread that flushes now and then has its first go at the start.
    let writes = || log.info.writes();
    tracing::subscriber::with_default(subscriber, || {
        for n in 0..20 {
            inform(&format!("line {n} of twenty"));
        }
        assert!(writes().len() < 20, "{:?}", writes());
        assert!(
            writes()
                .iter()
                .all(|write| write.len() <= 300 && write.ends_with('\n'))
        );

        tracing::error!(target: "ferrovia::x", "broken");
        assert_eq!(writes().concat().lines().count(), 20);
        assert_eq!(log.errors.lines().len(), 1);

        inform("last");
        control.flush();
        assert!(writes().concat().ends_with("\"last\"\n"));

        // Longer than the buffer: not kept at all.
        inform(&"x".repeat(400));
        assert!(writes().concat().ends_with("x\"\n"));
    });
}

#[test]
fn the_buffer_is_emptied_now_and_then() {
    let log = Log::default();
    let settings = split(1 << 20, Duration::from_millis(20));
    let (subscriber, _control) = logging::subscriber(&settings, log.streams(false));
    tracing::subscriber::with_default(subscriber, || {
        inform("a");
        let start = Instant::now();
        while log.info.writes().is_empty() {
            assert!(start.elapsed() < PATIENCE, "nothing was flushed");
            thread::sleep(Duration::from_millis(5));
        }
    });
}

#[test]
fn people_at_a_terminal_get_colours_unless_they_chose_a_format() {
    let at_terminal = |settings: &LogSettings| {
        let log = Log::default();
        let (subscriber, _control) = logging::subscriber(settings, log.streams(true));
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(target: "ferrovia::x", object = "one\ntwo\r\x1b[2Jthree", "many\nlines");
            tracing::debug!(target: "ferrovia::x", "not wanted");
        });
        let [line] = log.errors.lines().try_into().unwrap();
        line
    };
    let line: String = at_terminal(&LogSettings::default());
    assert!(line.contains("\x1b[33m"), "{line:?}");
    assert!(
        !line.contains("\x1b[2J") && !line.contains('\r'),
        "{line:?}"
    );
    assert!(line.contains("one\\ntwo"), "{line:?}");
    let line = at_terminal(&settings(Format::Text, 0));
    assert!(line.starts_with('W'), "{line}");
}

#[test]
fn equal_lines_are_counted_but_other_objects_are_news() {
    let log = logged(&settings(Format::Text, 0), |_| {
        for n in 0..100 {
            tracing::warn!(target: "ferrovia::x", "the API server does not answer");
            tracing::warn!(target: "ferrovia::x", object = n, "left out");
        }
    });
    let count = |message| {
        log.klog()
            .iter()
            .filter(|line| line.message == message)
            .count()
    };
    // A busy machine may take more than one window for it.
    assert!((5..50).contains(&count("the API server does not answer")));
    assert_eq!(count("left out"), 100);
}
