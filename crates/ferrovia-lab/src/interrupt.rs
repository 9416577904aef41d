//! Ctrl-C, `kill` and a closed terminal, as a value that long work looks at.
//!
//! A program that dies of a signal runs no destructors, and a [`World`](crate::World) would stay
//! behind. So the signals are held back, and whoever works stops by itself and tidies up.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::sys::EndSignals;

/// Whether somebody wants the program to end.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    raised: Mutex<bool>,
    news: Condvar,
}

impl Interrupt {
    /// Takes over the signals. To be called before other threads are started.
    ///
    /// Children inherit that the signals are held back: Ctrl-C, which the terminal sends to all of
    /// them, does not stop an `ip` half way through its work.
    pub fn watch() -> io::Result<Self> {
        let signals = EndSignals::block()?;
        let shared = Arc::new(Shared::default());
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

    /// Whether a signal has come.
    pub fn is_raised(&self) -> bool {
        self.sleep(Duration::ZERO)
    }

    /// Waits, though no longer than until a signal comes; whether one has.
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
