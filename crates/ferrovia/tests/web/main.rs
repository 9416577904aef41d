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
mod top;
mod view;

/// The program under test.
const FERROVIA: &str = env!("CARGO_BIN_EXE_ferrovia");

use ferrovia_lab::plain_http as client;
