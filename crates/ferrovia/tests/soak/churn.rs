//! Changes while nothing else happens: Services that clients call get other endpoints now and then, and others come and go all the time.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ferrovia_lab::random::Random;

use crate::model::{self, Model, Pods};
use crate::objects::Service;
use crate::stage::Stage;

/// Services that clients call, without the last two, whose endpoints are changed on purpose only.
pub(crate) const CALLED: u16 = 14;
/// Moved to see how long changes take.
pub(crate) const CANARY: Service = Service(CALLED);
/// Behind connections that stay open.
pub(crate) const STEADY: Service = Service(CALLED + 1);
/// The Services that come and go have numbers from here on.
const FLEETING: u16 = 1_000;
const MOST_FLEETING: usize = 150;
/// Each Service that is called changes rarely enough for a removed endpoint to be gone for good most of the time.
const CALLED_EVERY: Duration = Duration::from_millis(900);
/// A hundred a second.
const FLEETING_EVERY: Duration = Duration::from_millis(10);

/// Whether things change.
#[derive(Debug, Default)]
pub(crate) struct Churn {
    is_paused: AtomicBool,
    changes: AtomicU32,
}

impl Churn {
    /// Nothing changes until the other is called.
    pub(crate) fn pause(&self) {
        self.is_paused.store(true, Ordering::SeqCst);
        // A change that has begun is made within this.
        std::thread::sleep(FLEETING_EVERY * 5);
    }

    pub(crate) fn go_on(&self) {
        self.is_paused.store(false, Ordering::SeqCst);
    }

    /// How many changes were made since this was last asked.
    pub(crate) fn take(&self) -> u32 {
        self.changes.swap(0, Ordering::Relaxed)
    }

    /// Changes objects until it is stopped.
    pub(crate) fn run(
        &self,
        stage: &Stage,
        model: &Model,
        stop: &AtomicBool,
    ) -> anyhow::Result<()> {
        let mut random = Random::new(77);
        let mut due = Instant::now();
        let mut called_due = due;
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            due += FLEETING_EVERY;
            if self.is_paused.load(Ordering::SeqCst) {
                due = due.max(Instant::now());
                continue;
            }
            if called_due <= Instant::now() {
                called_due += CALLED_EVERY;
                let service = Service(random.below(usize::from(CALLED)) as u16);
                model.change(&stage.api, service, Pods::some(random.below(1000)))?;
            }
            let service = Service(FLEETING + random.below(MOST_FLEETING) as u16);
            match random.below(4) {
                0 => model::delete(&stage.api, service),
                1 => drop(stage.api.apply(service.object())?),
                _ => stage
                    .api
                    .apply_many(service.slices(Pods::some(random.below(1000))))?,
            }
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Takes all that came and may not have gone.
pub(crate) fn clear(stage: &Stage) {
    for number in 0..MOST_FLEETING as u16 {
        model::delete(&stage.api, Service(FLEETING + number));
    }
}
