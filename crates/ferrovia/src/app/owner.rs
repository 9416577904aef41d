//! One proxy at a time writes in a network namespace. A second one waits, with all objects read, and goes on where the first stopped.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::bail;
use ferrovia_host::owner::{self, Owner, Ownership};
use jiff::Timestamp;

use super::watch;
use crate::config::{Config, WhenOwned};
use crate::mode::Mode;
use crate::serve::health::Health;
use crate::sync::{Engine, Input, Inputs};

/// The pause after a failure to ask the kernel.
const PAUSE: Duration = Duration::from_secs(1);

/// Whether this process may write.
pub(super) enum Claim {
    /// It may, for as long as this is kept.
    Ours(Option<Ownership>),
    /// Not before another one has exited; who this process is.
    Waiting(Owner),
}

impl Claim {
    /// Claims the network namespace of this thread. If another process has it, that is an error or a reason to wait, as the configuration says.
    pub(super) fn make(config: &Config, mode: &dyn Mode) -> anyhow::Result<Self> {
        let me = describe(&format!("mode {}", mode.name()));
        match owner::claim(&me) {
            Ok(Ok(ownership)) => Ok(Self::Ours(Some(ownership))),
            Ok(Err(owner)) if config.when_owned == WhenOwned::Exit => bail!(
                "cannot proxy: another proxy does so in this network namespace ({owner}); stop it first, or wait for it with --when-owned=wait"
            ),
            Ok(Err(owner)) => {
                tracing::warn!(%owner, "Waiting for another proxy to exit; nothing is written until then");
                Ok(Self::Waiting(me))
            }
            // This only guards against a second proxy, so it must not keep the first one from its work.
            Err(error) => {
                tracing::warn!(%error, "Failed to find out whether another proxy runs here; continuing");
                Ok(Self::Ours(None))
            }
        }
    }

    /// Keeps the claim until the process exits, or lets the engine wait for it.
    pub(super) fn hold(
        self,
        engine: Engine,
        health: &Arc<Health>,
        inputs: &Inputs,
    ) -> anyhow::Result<Engine> {
        match self {
            Self::Ours(ownership) => {
                keep(ownership);
                Ok(engine)
            }
            Self::Waiting(me) => {
                health.set_standby(true);
                let (health, inputs) = (Arc::clone(health), inputs.clone());
                watch::spawn("owner", move || {
                    keep(Some(wait(&me)));
                    health.set_standby(false);
                    let _ = inputs.send(Input::Owned);
                })?;
                Ok(engine.waiting_for_ownership())
            }
        }
    }
}

/// The same for a process that has nothing else to do meanwhile.
pub(super) fn claim_or_wait(config: &Config, mode: &dyn Mode) -> anyhow::Result<Option<Ownership>> {
    Ok(match Claim::make(config, mode)? {
        Claim::Ours(ownership) => ownership,
        Claim::Waiting(me) => Some(wait(&me)),
    })
}

/// This process, as others see it: at most 128 bytes.
pub(crate) fn describe(what: &str) -> Owner {
    let (version, pid) = (env!("CARGO_PKG_VERSION"), std::process::id());
    let since = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
    Owner::new(&format!(
        "ferrovia {version}, {what}, pid {pid}, since {since}"
    ))
}

/// It is released by the kernel when the process exits, and not before: what is left to do at the end may still concern the rules.
fn keep(ownership: Option<Ownership>) {
    std::mem::forget(ownership);
}

fn wait(me: &Owner) -> Ownership {
    loop {
        match owner::wait(me) {
            Ok(ownership) => {
                tracing::info!("The other proxy has exited; continuing in its place");
                return ownership;
            }
            Err(error) => {
                tracing::debug!(%error, "Failed to find out whether the other proxy still runs");
                thread::sleep(PAUSE);
            }
        }
    }
}
