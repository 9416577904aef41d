//! The admin API and the page, against the real daemon in a node's namespace.
//!
//! - `api`: what the routes answer, over TCP and over the socket
//! - `doors`: who may ask, and what is refused
//! - `events`: news as they happen
//! - `top`: the command, in a terminal
//! - `page`: the page in a headless Chromium

mod api;
mod browser;
mod doors;
mod events;
mod page;
#[allow(dead_code, reason = "the daemon's tests use more of it")]
#[path = "../daemon/support.rs"]
mod support;
mod top;
mod view;

use ferrovia_lab::plain_http as client;
