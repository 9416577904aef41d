//! The Kubernetes API as a source, over real HTTP and TLS, with a server that can be made to do anything wrong.
//!
//! - `list`: both ways to list, and what a second list tells.
//! - `fallback`: what a watch-list or a watch that fails leads to.
//! - `watch`: what a watch tells, how it is resumed, and what it does not believe.
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
