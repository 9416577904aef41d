//! The section `logging` as it is used.

use super::file::Logging;
use super::flags::Typed;
use super::gates::FeatureGates;
use super::validate::Checks;
use crate::logging::{FileVerbosity, Format, LogSettings};

pub(super) fn settings(
    checks: &mut Checks,
    given: &Logging,
    gates: &FeatureGates,
    typed: &Typed,
) -> LogSettings {
    let format = format(checks, given, gates);
    if given.verbosity > i32::MAX.unsigned_abs() {
        checks.invalid(
            "logging.verbosity",
            given.verbosity,
            "must be at most 2147483647",
        );
    }
    let vmodule = vmodule(checks, given, format);
    let [text_buffer, json_buffer] = buffers(checks, given, gates);
    let (stream, info_buffer_size) = match format {
        Some(Format::Json) => (&given.options.json, json_buffer),
        _ => (&given.options.text, text_buffer),
    };
    // A file completed by us says `text` without anybody having asked for it, so only json and the flag count as asked for.
    let is_explicit = format == Some(Format::Json) || typed.is_given("logging-format");
    LogSettings {
        format: format.filter(|_| is_explicit),
        verbosity: given.verbosity,
        vmodule,
        flush_frequency: checks.positive_time("logging.flushFrequency", given.flush_frequency),
        split_stream: stream.split_stream,
        info_buffer_size,
    }
}

fn format(checks: &mut Checks, given: &Logging, gates: &FeatureGates) -> Option<Format> {
    let words = [("json", Format::Json), ("text", Format::Text)];
    let format = checks.word("logging.format", &given.format, &words);
    if format == Some(Format::Json) && !gates.is_enabled("LoggingBetaOptions") {
        checks.forbidden(
            "logging.format",
            "json needs the feature gate LoggingBetaOptions",
        );
    }
    format
}

fn vmodule(checks: &mut Checks, given: &Logging, format: Option<Format>) -> Vec<FileVerbosity> {
    if format == Some(Format::Json) && !given.vmodule.is_empty() {
        checks.forbidden("logging.vmodule", "only with the format text");
    }
    for (position, entry) in given.vmodule.iter().enumerate() {
        let field = format!("logging.vmodule[{position}].filePattern");
        if entry.file_pattern.is_empty() || entry.file_pattern.contains(['=', ',']) {
            checks.invalid_text(
                field,
                &entry.file_pattern,
                "must not be empty, and without = and ,",
            );
        }
    }
    let entries = given.vmodule.iter();
    entries
        .map(|entry| FileVerbosity {
            pattern: entry.file_pattern.clone(),
            verbosity: entry.verbosity,
        })
        .collect()
}

/// How much information waits in memory, with the format text and with json.
fn buffers(checks: &mut Checks, given: &Logging, gates: &FeatureGates) -> [usize; 2] {
    let options = [("text", &given.options.text), ("json", &given.options.json)];
    let sizes = options.map(|(name, stream)| {
        let field = format!("logging.options.{name}.infoBufferSize");
        checks.quantity(field, &stream.info_buffer_size)
    });
    for (name, stream) in options {
        let is_used = stream.split_stream || stream.info_buffer_size != "0";
        if is_used && !gates.is_enabled("LoggingAlphaOptions") {
            checks.forbidden(
                format!("logging.options.{name}"),
                "needs the feature gate LoggingAlphaOptions",
            );
        }
    }
    sizes
}
