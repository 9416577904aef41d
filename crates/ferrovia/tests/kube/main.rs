//! The Kubernetes API as a source, over real HTTP and TLS, with a server that can be made to do anything wrong.
//!
//! - `list`: watch-lists and paged lists, and the changes that a second list sends.
//! - `fallback`: what a watch-list or a watch that fails leads to.
//! - `watch`: events of a watch, resuming, and invalid events.
//! - `trouble`: servers that are down, slow, silent, busy or forbidding.
//! - `access`: certificates, tokens, exec plugins and proxies.
//! - `encoding`: protobuf and JSON.
//! - `notices`: events we post.
//! - `scale`: long lists.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on should fail there"
)]

mod access;
mod authority;
mod encoding;
mod fallback;
mod list;
mod notices;
mod scale;
mod support;
mod trouble;
mod watch;
