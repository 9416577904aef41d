//! A whole kernel of our own as an ordinary process: user-mode Linux, for what the machine's kernel lacks.
//!
//! [`Machine::run`] boots it with the machine's files as its root (read-only, by hostfs), loads the modules of `modules.rs`, runs one program
//! as root and brings back its output and exit code. Whatever the program does to network, settings and modules is gone afterwards: nothing
//! of it reaches the machine.
//!
//! There is no image and no init of another project. The calling program is the guest's first process too, which is why its `main` must
//! begin with [`become_init_if_asked`]. [`suite::main`] does all of this for a test binary: outside it boots, inside it runs the tests.
//!
//! - `boot`: the outer side, a process to start, listen to and end.
//! - `init`: the inner side, process 1.
//! - `job`: what the one tells the other.
//! - `modules`: which modules are loaded, and in what order.
//! - `xstate`: what it needs on processors that are newer than it.
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
