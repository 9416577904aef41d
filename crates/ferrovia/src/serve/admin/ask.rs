//! Asking the sync loop.

use std::sync::mpsc::TrySendError;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout_at};

use super::Admin;
use super::problem::Problem;
use crate::sync::{Engine, Input, Question};

/// A loop that is busy for longer has other worries than answers for people.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause before a full queue is tried again.
const PAUSE: Duration = Duration::from_millis(5);

impl Admin {
    /// Calls this with the engine, on the loop's thread, which waits for it. So it must be quick: copy out and be gone.
    pub(super) async fn ask<T, F>(&self, look: F) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: FnOnce(&Engine) -> T + Send + Sync + 'static,
    {
        let deadline = Instant::now() + PATIENCE;
        let (answer, answered) = oneshot::channel();
        // A question may be dropped by any thread, so what it holds must be shareable; the sender is, inside a lock.
        let answer = std::sync::Mutex::new(Some(answer));
        let mut input = Input::Ask(Question::new(move |engine| {
            let answer = answer.lock().ok().and_then(|mut answer| answer.take());
            if let Some(answer) = answer.filter(|answer| !answer.is_closed()) {
                let _ = answer.send(look(engine));
            }
        }));
        loop {
            input = match self.inputs.try_send(input) {
                Ok(()) => break,
                Err(TrySendError::Disconnected(_)) => return Err(ending()),
                Err(TrySendError::Full(_)) if Instant::now() >= deadline => return Err(busy()),
                Err(TrySendError::Full(input)) => input,
            };
            sleep(PAUSE).await;
        }
        match timeout_at(deadline, answered).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(ending()),
            Err(_) => Err(busy()),
        }
    }
}

fn busy() -> Problem {
    Problem::busy(
        "the sync loop has been busy for 5 seconds",
        "try again; the log says what it is doing",
    )
}

fn ending() -> Problem {
    Problem::busy(
        "the daemon is about to end",
        "try again once it has been started anew",
    )
}
