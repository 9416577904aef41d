//! The folder of manifests, on real files.
//!
//! - `decode`: what a file means, and what is said of a broken one.
//! - `folder`: what a rescan gives, one change of a file at a time.
//! - `tree`: folders, links, and files that do not count.
//! - `complete`: when a folder counts as read in full.
//! - `follow`: the whole source running, with inotify: how soon, and how often.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on should fail there"
)]

mod complete;
mod decode;
mod folder;
mod follow;
mod support;
mod tree;
