//! What the sync loop is told from outside besides the objects: signals, this machine's addresses, foreign changes to our rules, the
//! configuration file. One thread each; all of them block most of their lives.

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use ferrovia_host::addr::{self, AddressMonitor};
use ferrovia_host::privileges::{self, Capability};

use crate::config::ConfigFile;
use crate::config::watch::Watch;
use crate::mode::Listen;
use crate::sync::{Input, Inputs};

/// How long a watcher that fails waits before it tries again.
const REST: Duration = Duration::from_secs(1);

/// What every thread may need, except the one that runs the old iptables tools.
const WITHOUT_TOOLS: [Capability; 3] = [
    privileges::RULES.capability,
    privileges::FILES_OF_OTHERS.capability,
    privileges::LOW_PORTS.capability,
];

/// Does something on a thread of its own, with no more privileges than it needs.
pub(super) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    spawn_with_tools(name, || {
        give_up_tools();
        work();
    })
}

/// From now on this thread cannot run the old iptables tools.
pub(super) fn give_up_tools() {
    if let Err(error) = privileges::drop_in_this_thread(&WITHOUT_TOOLS) {
        tracing::debug!(%error, "going on with more privileges than needed");
    }
}

/// The same, for what runs the iptables tools.
pub(super) fn spawn_with_tools(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> anyhow::Result<()> {
    thread::Builder::new()
        .name(name.into())
        .spawn(work)
        .context("cannot start a thread")?;
    Ok(())
}

pub(super) fn local_addresses() -> anyhow::Result<Vec<IpAddr>> {
    addr::local_addresses().context("cannot read this machine's addresses")
}

/// Tells the loop when somebody else writes to our rules.
pub(super) fn watch_rules(listen: Listen, inputs: Inputs) -> anyhow::Result<()> {
    let mut watcher = listen().map_err(anyhow::Error::from_boxed)?;
    spawn("rules", move || {
        // What happened before we listened.
        let mut news = Input::Check;
        while inputs.send(news).is_ok() {
            news = match watcher.wait() {
                Ok(family) => Input::ForeignChange(family),
                Err(error) => {
                    tracing::warn!(%error, "cannot hear of changes to our rules; trying again");
                    thread::sleep(REST);
                    Input::Check
                }
            };
        }
    })
}

/// Tells the loop when this machine's addresses change.
pub(super) fn watch_addresses(inputs: Inputs) -> anyhow::Result<()> {
    let mut monitor = AddressMonitor::open().context("cannot watch this machine's addresses")?;
    spawn("addresses", move || {
        loop {
            if let Err(error) = monitor.wait() {
                tracing::warn!(%error, "cannot hear of changes to this machine's addresses; reading them again");
                thread::sleep(REST);
            }
            if inputs.send(Input::Addresses(addresses_now())).is_err() {
                return;
            }
        }
    })
}

/// Tried until it succeeds: nobody tells a second time that they have changed.
fn addresses_now() -> Vec<IpAddr> {
    loop {
        match addr::local_addresses() {
            Ok(addresses) => return addresses,
            Err(error) => {
                tracing::warn!(%error, "cannot read this machine's addresses; trying again");
                thread::sleep(REST);
            }
        }
    }
}

/// SIGTERM and SIGINT end the loop between two syncs.
pub(super) fn watch_signals(inputs: Inputs) -> anyhow::Result<()> {
    let signals = ferrovia_host::signal::Termination::block().context("cannot wait for signals")?;
    spawn("signals", move || {
        signals.wait();
        let _ = inputs.send(Input::Stop);
    })
}

/// A changed configuration ends the process, so that whoever started it starts it again with the new one.
pub(super) fn watch_config(file: ConfigFile, inputs: Inputs) -> anyhow::Result<()> {
    let path = file.path.clone();
    let watch = Watch::new(file)?;
    spawn("config", move || match watch.wait() {
        Ok(()) => {
            let why = format!("the configuration file {} was updated", path.display());
            let _ = inputs.send(Input::Fail(why));
        }
        Err(error) => {
            tracing::warn!(%error, "changes of the configuration file are not noticed any more; restart after one");
        }
    })
}
