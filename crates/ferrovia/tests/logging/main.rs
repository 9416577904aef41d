//! The log as others read it: every line taken apart by a strict reader, whatever was logged.
//!
//! The tests of a whole process need root and `unshare`; without them they fail and say so.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

/// Contents of objects must not be able to forge or flood the log.
mod hostile;
/// A reader of klog's text that forgives nothing.
mod klog;
/// Which events are logged, and how that changes.
mod levels;
/// Logs of whole processes.
mod process;
/// Which stream a line takes, and when.
mod streams;
/// A log kept in memory.
mod support;
