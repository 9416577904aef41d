//! The folder of manifests, on real files.
//!
//! - `decode`: what a file means, and what is said of a broken one.
//! - `folder`: what a rescan gives, one change at a time.
//! - `follow`: the whole source running, with inotify: how soon, and how often.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on should fail there"
)]

mod decode;
mod folder;
mod follow;
mod support;
