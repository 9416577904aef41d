//! The wiring of a running proxy: sources and watchers on their own threads, all of them telling one sync loop.

use std::net::IpAddr;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use ferrovia_host::addr::{self, AddressMonitor};
use ferrovia_host::{iptables, memory};

use crate::config::{Action, Config, ModeName, Source};
use crate::mode::{Installed, Listen, Mode};
use crate::source::manifest::{self, Folder, Problem, Severity};
use crate::sync::{self, Engine, Input, Outcome, Pace, Stop};

/// How long a watcher that fails waits before it tries again.
const REST: Duration = Duration::from_secs(1);

/// Runs the proxy until it is told to stop, or to its first sync with `once`.
pub fn run(config: Config) -> anyhow::Result<()> {
    tracing::info!(version = env!("CARGO_PKG_VERSION"), node = %config.settings.node_name, "starting");
    let manifests = supported(&config)?.to_owned();
    let Installed { backends, listen } = Mode::default()
        .install(config.counters)
        .map_err(anyhow::Error::from_boxed)?;
    let folder = Folder::open(&manifests)?;
    let (inputs, received) = mpsc::channel();
    // Watched before it is read: what changes in between is then told a second time, but never missed.
    if !config.once {
        watch_signals(inputs.clone())?;
        watch_addresses(inputs.clone())?;
    }
    inputs.send(Input::Addresses(local_addresses()?))?;
    watch_folder(folder, inputs.clone())?;

    let engine = Engine::new(config.settings, backends);
    if config.once {
        return run_once(engine, &received, config.pace);
    }
    let mut when_ready = Some(|| settle_in(listen, inputs));
    let stop = sync::run(engine, &received, config.pace, |outcomes| {
        if is_success(outcomes)
            && let Some(when_ready) = when_ready.take()
        {
            when_ready();
        }
        ControlFlow::Continue(())
    });
    match stop {
        Stop::SourceEnded(why) => bail!("no more changes can be followed: {why}"),
        Stop::Asked | Stop::Satisfied => tracing::info!("stopping; the rules stay in force"),
    }
    Ok(())
}

/// The folder to use, if all that is asked for is there.
fn supported(config: &Config) -> anyhow::Result<&Path> {
    if let Some(mode) = config.mode.filter(|mode| *mode != ModeName::Nftables) {
        bail!(
            "the mode {} is not there yet; use nftables (--proxy-mode=nftables, or mode: nftables in the configuration file)",
            mode.name()
        );
    }
    ensure!(config.action == Action::Run, "--init-only is not wired yet");
    match &config.source {
        Source::Manifests(folder) => Ok(folder),
        Source::Kube(_) => {
            bail!("objects from an API server are not wired yet; give --manifests DIR")
        }
    }
}

/// Syncs once.
fn run_once(engine: Engine, received: &Receiver<Input>, pace: Pace) -> anyhow::Result<()> {
    let mut succeeded = false;
    let stop = sync::run(engine, received, pace, |outcomes| {
        succeeded = is_success(outcomes);
        if outcomes.is_empty() {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    if let Stop::SourceEnded(why) = stop {
        bail!("the manifests cannot be read: {why}");
    }
    ensure!(succeeded, "the rules could not be written");
    take_over();
    Ok(())
}

/// Something was synced, and nothing failed.
fn is_success(outcomes: &[Outcome]) -> bool {
    !outcomes.is_empty() && outcomes.iter().all(|outcome| outcome.result.is_ok())
}

/// The rules are in force for the first time: tells those who wait for it, and begins to look after them.
fn settle_in(listen: Listen, inputs: Sender<Input>) {
    tracing::info!("ready: all services are in the kernel");
    notify_systemd();
    // All objects were in memory as they were read; of that, little is kept.
    memory::give_back();
    // The tools may take seconds, or wait for a lock, and changes must be followed meanwhile.
    let started = watch_rules(listen, inputs).and_then(|()| spawn("takeover", take_over));
    if let Err(error) = started {
        tracing::warn!("{error:#}; the rules are checked every sync period all the same");
    }
}

/// Our rules are in force, so a predecessor's iptables chains can go without a gap. (Its nftables table went in our first transaction.)
fn take_over() {
    match iptables::remove_leftovers() {
        Ok(removed) => removed
            .tools
            .iter()
            .filter(|tool| !tool.is_empty())
            .for_each(|tool| tracing::info!("took over from kube-proxy: removed {tool}")),
        Err(error) => {
            tracing::warn!(%error, "cannot remove what kube-proxy left in iptables; both sets of rules are in force");
        }
    }
}

fn local_addresses() -> anyhow::Result<Vec<IpAddr>> {
    addr::local_addresses().context("cannot read this machine's addresses")
}

fn watch_folder(folder: Folder, inputs: Sender<Input>) -> anyhow::Result<()> {
    let ended = inputs.clone();
    let deliver = move |batch: manifest::Batch| {
        batch.problems.iter().for_each(log_problem);
        // The loop has ended if nobody receives any more.
        let news = Input::Events {
            events: batch.events,
            is_partial: !batch.is_complete,
        };
        match inputs.send(news) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    };
    spawn("manifests", move || {
        if let Err(error) = manifest::run(folder, deliver) {
            let _ = ended.send(Input::SourceEnded(error.to_string()));
        }
    })
}

fn log_problem(problem: &Problem) {
    match problem.severity {
        Severity::Info => tracing::info!("{problem}"),
        Severity::Warning => tracing::warn!("{problem}"),
        Severity::Error => tracing::error!("{problem}"),
    }
}

/// Tells the loop when somebody else writes to our rules.
fn watch_rules(listen: Listen, inputs: Sender<Input>) -> anyhow::Result<()> {
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
fn watch_addresses(inputs: Sender<Input>) -> anyhow::Result<()> {
    let mut monitor = AddressMonitor::open().context("cannot watch this machine's addresses")?;
    spawn("addresses", move || {
        loop {
            if let Err(error) = monitor.wait() {
                tracing::warn!(%error, "cannot hear of changes to this machine's addresses; reading them again");
                thread::sleep(REST);
            }
            match addr::local_addresses() {
                Ok(addresses) => {
                    if inputs.send(Input::Addresses(addresses)).is_err() {
                        return;
                    }
                }
                Err(error) => tracing::warn!(%error, "cannot read this machine's addresses"),
            }
        }
    })
}

/// SIGTERM and SIGINT end the loop between two syncs.
fn watch_signals(inputs: Sender<Input>) -> anyhow::Result<()> {
    let signals = ferrovia_host::signal::Termination::block().context("cannot wait for signals")?;
    spawn("signals", move || {
        signals.wait();
        let _ = inputs.send(Input::Stop);
    })
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    thread::Builder::new()
        .name(name.into())
        .spawn(work)
        .context("cannot start a thread")?;
    Ok(())
}

/// Tells systemd, if it started us, that services are being proxied.
fn notify_systemd() {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let sent = std::os::unix::net::UnixDatagram::unbound()
        .and_then(|socket| socket.send_to(b"READY=1", path));
    if let Err(error) = sent {
        tracing::debug!(%error, "cannot notify systemd");
    }
}
