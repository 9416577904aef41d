//! SIGINT, SIGTERM and SIGHUP as a value that long operations poll.
//!
//! A program that a signal kills runs no destructors, and would leave its [`World`](crate::World)
//! behind. So the signals are blocked, and the program exits by itself after cleaning up.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::sys::EndSignals;

/// Whether the program was asked to exit.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<InterruptState>);

#[derive(Debug, Default)]
struct InterruptState {
    raised: Mutex<bool>,
    news: Condvar,
}

impl Interrupt {
    /// Blocks the signals and waits for them. Call this before other threads are started.
    ///
    /// Children inherit the signal mask: Ctrl-C, which the terminal sends to all of them, does not stop
    /// an `ip` half way through its work.
    pub fn watch() -> io::Result<Self> {
        let signals = EndSignals::block()?;
        let shared = Arc::new(InterruptState::default());
        let interrupt = Self(Arc::clone(&shared));
        thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                signals.wait();
                *shared.raised.lock().unwrap_or_else(PoisonError::into_inner) = true;
                shared.news.notify_all();
            })?;
        Ok(interrupt)
    }

    /// Whether a signal was received.
    pub fn is_raised(&self) -> bool {
        self.sleep(Duration::ZERO)
    }

    /// Sleeps until a signal is received or the time is up; returns whether a signal was received.
    pub fn sleep(&self, time: Duration) -> bool {
        let raised = self.0.raised.lock().unwrap_or_else(PoisonError::into_inner);
        let (raised, _) = self
            .0
            .news
            .wait_timeout_while(raised, time, |raised| !*raised)
            .unwrap_or_else(PoisonError::into_inner);
        *raised
    }
}
