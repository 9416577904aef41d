//! Signals: waiting for those that end a daemon, and what programs that it starts see of them.
#![allow(
    unsafe_code,
    reason = "signal masks are only to be had by system calls"
)]

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// SIGTERM and SIGINT, held back until another process waits for them. A process with number 1, as in a container, would otherwise never
/// get them: the kernel does not deliver signals to it that it does not handle.
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

/// Lets a program that is to be started get all signals: it would inherit ours, held back, and could not be asked to exit. It also gets a
/// process group of its own, so that what it starts can be killed with it.
pub fn detach(command: &mut Command) {
    command.process_group(0);
    let unblock_all = || {
        let mut none = MaybeUninit::uninit();
        // SAFETY: `sigemptyset` makes the set whole, and no old mask is asked for.
        match unsafe {
            libc::sigemptyset(none.as_mut_ptr());
            libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut())
        } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: between fork and exec it makes only the two calls above, which are async-signal-safe.
    unsafe { command.pre_exec(unblock_all) };
}

/// Kills a process that was started detached, and all that it started. Must be called before the process is waited for, as its number could
/// be another's afterwards.
pub(crate) fn kill_group(leader: u32) {
    if let Ok(group) = libc::pid_t::try_from(leader) {
        // SAFETY: the call takes two numbers. That the group is gone already is no matter.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
}
