//! Waiting for the signals that end a daemon.
#![allow(
    unsafe_code,
    reason = "signal masks are only to be had by system calls"
)]

use std::io;
use std::mem::MaybeUninit;

/// SIGTERM and SIGINT, held back until someone waits for them. A process with number 1, as in a container, would otherwise never
/// get them: the kernel spares it signals that nobody waits for.
#[derive(Debug)]
pub struct Termination(libc::sigset_t);

impl Termination {
    /// Holds the signals back. To be called before other threads are started: they inherit it.
    ///
    /// # Errors
    /// If the system call fails.
    pub fn block() -> io::Result<Self> {
        let mut set = MaybeUninit::uninit();
        // SAFETY: `sigemptyset` makes the set whole; the other calls get a set that is.
        let set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
            libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
            set.assume_init()
        };
        // SAFETY: the set is whole, and no old mask is asked for.
        match unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut())
        } {
            0 => Ok(Self(set)),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Waits until one of them comes.
    pub fn wait(&self) {
        let mut signal = 0;
        // SAFETY: both pointers are to whole values that outlive the call.
        unsafe { libc::sigwait(&raw const self.0, &raw mut signal) };
    }
}
