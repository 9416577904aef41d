//! Asking the sync loop.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Admin;
use super::problem::Problem;
use crate::sync::{Engine, Input, Question};

/// A loop that is busy for longer has other worries than answers for people.
const PATIENCE: Duration = Duration::from_secs(5);

impl Admin {
    /// Calls this with the engine, on the loop's thread, which waits for it. So it must be quick: copy out and be gone.
    pub(super) async fn ask<T, F>(&self, look: F) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: FnOnce(&Engine) -> T + Send + Sync + 'static,
    {
        let (answer, answered) = oneshot::channel();
        // A question may be dropped by any thread, so what it holds must be shareable; the sender is, inside a lock.
        let answer = std::sync::Mutex::new(Some(answer));
        let input = Input::Ask(Question::new(move |engine| {
            let answer = answer.lock().ok().and_then(|mut answer| answer.take());
            if let Some(answer) = answer.filter(|answer| !answer.is_closed()) {
                let _ = answer.send(look(engine));
            }
        }));
        let exchange = async {
            self.inputs.send_async(input).await.map_err(|_| ending())?;
            answered.await.map_err(|_| ending())
        };
        timeout(PATIENCE, exchange).await.map_err(|_| busy())?
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
