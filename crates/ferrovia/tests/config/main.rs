//! The configuration, from what people type and write to what is used.
//!
//! - `golden`: every field, every flag and every message, as data in `goldens/*.txt`
//! - `roundtrip`: what is written is read back, and nothing that can be typed or written is too odd
//! - `modes`: only one module names the modes
//! - `process`: the real program's answers, exit codes and names
//! - `watch`: the file changes

mod golden;
mod modes;
mod process;
mod roundtrip;
mod support;
mod watch;
