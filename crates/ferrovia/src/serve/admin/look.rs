//! Questions that take a look into the kernel, or much work: answered one at a time, on a thread of their own.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use ferrovia_core::desired::Desired;
use ferrovia_core::family::Family;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::problem::Problem;
use super::query::Query;
use super::{Admin, VERSION};
use crate::inspect::query::diff::{Compared, Kernel};
use crate::inspect::query::plan::{Plans, alone};
use crate::inspect::query::service_name;
use crate::sync::Engine;

/// So many may wait for their turn.
const MOST_WAITING: usize = 8;
/// The longest that anybody waits, for those before and for the answer: the iptables tools may wait for a lock.
const PATIENCE: Duration = Duration::from_secs(50);
/// How often a comparison is made again because something was written meanwhile.
const ATTEMPTS: usize = 3;

type Job = Box<dyn FnOnce(&Kernel) + Send>;

/// The way to the thread that looks.
#[derive(Debug)]
pub struct Looker(SyncSender<Job>);

/// What the thread does: it waits for questions until nobody can ask any more. Whoever starts it decides with which privileges.
pub struct Looking {
    kernel: Kernel,
    jobs: Receiver<Job>,
}

impl Looker {
    /// Both ends.
    pub fn new(kernel: Kernel) -> (Self, Looking) {
        let (sender, jobs) = sync_channel(MOST_WAITING);
        (Self(sender), Looking { kernel, jobs })
    }

    /// Calls this on the thread that looks.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Kernel) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let (answer, answered) = oneshot::channel();
        let job = move |kernel: &Kernel| {
            // Whoever has gone away need not be answered.
            if !answer.is_closed() {
                let _ = answer.send(look(kernel));
            }
        };
        self.0
            .try_send(Box::new(job))
            .map_err(|error| match error {
                TrySendError::Full(_) => busy("several others are being answered"),
                TrySendError::Disconnected(_) => busy("the daemon is about to end"),
            })?;
        match timeout(PATIENCE, answered).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(busy("the question was given up")),
            Err(_) => Err(busy("looking into the kernel takes too long")),
        }
    }
}

impl Looking {
    /// Answers, until nobody can ask any more.
    pub fn run(self) {
        for job in self.jobs {
            job(&self.kernel);
        }
    }
}

fn busy(error: &str) -> Problem {
    Problem::busy(error, "try again; the log may say more")
}

impl Admin {
    /// What would be written into an empty kernel, as a whole or for one Service.
    pub(super) async fn plan(&self, query: &Query) -> Result<Value, Problem> {
        let families = self.families(query)?;
        let Some(name) = query.get("service") else {
            let wanted = self.wanted(families, Desired::clone).await?;
            let plans = self.looker.ask(move |it| Plans::whole(&*it.mode, &wanted));
            return versioned(&plans.await?);
        };
        let service = service_name(name)?;
        let key = service.clone();
        let wanted = self.wanted(families, move |whole| alone(whole, &key));
        let wanted = wanted.await?;
        if wanted.iter().all(|desired| desired.ports.is_empty()) {
            return Err(Problem::missing(
                format!("there is no Service {service} on this node"),
                "look at services?filter=; services without a cluster IP are not ours",
            ));
        }
        let plans = self
            .looker
            .ask(move |it| Plans::of_service(&*it.mode, &wanted));
        versioned(&plans.await?)
    }

    /// Where the kernel is not as wanted.
    pub(super) async fn diff(&self, query: &Query) -> Result<Value, Problem> {
        let families = self.families(query)?;
        let mut attempt = 1;
        loop {
            let before = *self.history.newest().borrow();
            let wanted = self.wanted(families.clone(), Desired::clone).await?;
            let compared = self.looker.ask(move |it| compare(it, &wanted)).await??;
            // What was written in between is not what was wanted before.
            let is_settled = *self.history.newest().borrow() == before;
            if compared.same || is_settled || attempt == ATTEMPTS {
                return versioned(&compared);
            }
            attempt += 1;
        }
    }

    /// What is wanted of each family, copied out of the loop by this.
    async fn wanted(
        &self,
        families: Vec<Family>,
        copy: impl Fn(&Desired) -> Desired + Send + Sync + 'static,
    ) -> Result<Vec<Desired>, Problem> {
        let wanted = self.ask(move |engine: &Engine| {
            let families = families.iter();
            let wanted = families.filter_map(|family| engine.desired(*family).map(&copy));
            engine.is_ready().then(|| wanted.collect())
        });
        wanted.await?.ok_or_else(|| {
            Problem::busy(
                "the daemon does not know all objects yet",
                "try again; overview says what it waits for",
            )
        })
    }

    /// The families that are asked about.
    fn families(&self, query: &Query) -> Result<Vec<Family>, Problem> {
        let Some(name) = query.get("family") else {
            return Ok(self.about.families.clone());
        };
        let known = Family::ALL
            .into_iter()
            .find(|family| family.name().eq_ignore_ascii_case(name));
        known.map(|family| vec![family]).ok_or_else(|| {
            Problem::bad(
                format!("there is no family {name:?}"),
                "give family=IPv4 or family=IPv6, or leave it out for both",
            )
        })
    }
}

fn compare(kernel: &Kernel, wanted: &[Desired]) -> Result<Compared, Problem> {
    kernel.compare(wanted).map_err(|error| {
        Problem::busy(
            format!("the kernel cannot be compared: {error}"),
            "the log may say more",
        )
    })
}

/// An answer as JSON, with the program's version.
fn versioned(answer: &impl Serialize) -> Result<Value, Problem> {
    let mut value = serde_json::to_value(answer).map_err(|error| busy(&error.to_string()))?;
    value["version"] = json!(VERSION);
    Ok(value)
}
