//! User-mode Linux: a kernel as an ordinary process, for features that the machine's kernel lacks.
//!
//! [`Machine::run`] boots it with the machine's files as its root (read-only, by hostfs), loads the modules of `modules.rs`, runs one program
//! as root and returns its output and exit code. Changes of network, settings and modules do not affect the machine.
//!
//! There is no image and no separate init. The calling program is also the guest's first process, so its `main` must begin with
//! [`become_init_if_asked`]. [`suite::main`] does all of this for a test binary: outside it boots, inside it runs the tests.
//!
//! - `boot`: the outer side, which starts the guest, reads its output and stops it.
//! - `init`: the inner side, process 1.
//! - `job`: the program to run, passed from the outer to the inner side.
//! - `modules`: which modules are loaded, and in what order.
//! - `xstate`: a workaround for processors that are newer than it.
//! - [`suite`]: tests that run inside.

mod boot;
mod init;
mod job;
mod modules;
pub mod suite;
mod xstate;

pub use boot::{Error, Machine};
pub use init::become_init_if_asked;
pub use job::Job;
