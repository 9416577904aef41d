//! Who hears of what the loop does.

use std::ops::ControlFlow;

use ferrovia_core::model::Warning;

use super::engine::Engine;
use super::family::Outcome;

/// Hears of what the loop does. The loop waits for every answer, so none may take long.
pub trait Observer {
    /// Something came in and was noted; nothing has been written of it yet.
    fn received(&mut self, _engine: &Engine) {}

    /// The first write is about to be done; an error ends the loop instead.
    fn ready(&mut self, _engine: &Engine) -> Result<(), String> {
        Ok(())
    }

    /// Something is wrong with objects, which their authors should know.
    fn warned(&mut self, _warnings: &[Warning]) {}

    /// A sync begins.
    fn syncing(&mut self) {}

    /// A sync has ended: what each family that had something to write came to. One that had nothing is in sync. Breaking ends the
    /// loop.
    fn synced(&mut self, engine: &Engine, outcomes: &[Outcome]) -> ControlFlow<()>;
}
