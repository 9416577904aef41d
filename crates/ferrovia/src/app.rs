//! The wiring of a running proxy: sources and watchers on their own threads, all of them telling one sync loop.

use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::mpsc::{self, Sender};
use std::thread;

use anyhow::{Context, bail};
use ferrovia_host::addr::{self, AddressMonitor};
use ferrovia_host::iptables;

use crate::config::Config;
use crate::mode::{Installed, Mode, Watcher};
use crate::source::manifest::{self, Folder, Problem, Severity};
use crate::sync::{self, Engine, Input, Outcome, Stop};

/// Runs the proxy until it is told to stop, or to its first success with `once`.
pub fn run(config: Config) -> anyhow::Result<()> {
    tracing::info!(version = env!("CARGO_PKG_VERSION"), node = %config.settings.node_name, "starting");
    let Installed { backends, watcher } = Mode::default()
        .install(config.counters)
        .map_err(anyhow::Error::from_boxed)?;
    let folder = Folder::open(&config.manifests)?;
    let (inputs, received) = mpsc::channel();
    // The watchers come first: what changes while we read is then told a second time, but never missed.
    if !config.once {
        watch_signals(inputs.clone())?;
        watch_rules(watcher, inputs.clone())?;
        watch_addresses(inputs.clone())?;
    }
    inputs.send(Input::Addresses(local_addresses()?))?;
    watch_folder(folder, inputs)?;

    let engine = Engine::new(config.settings, backends);
    let mut progress = Progress {
        once: config.once,
        ready: false,
        failed: false,
    };
    let stop = sync::run(engine, &received, config.pace, |outcomes| {
        progress.report(outcomes)
    });
    match stop {
        Stop::Asked => tracing::info!("stopping; the rules stay in force"),
        Stop::SourceEnded(why) => bail!("no more changes can be followed: {why}"),
        Stop::Satisfied if progress.failed => bail!("the rules could not be written"),
        Stop::Satisfied => {}
    }
    Ok(())
}

/// What the outside hears of the syncs.
struct Progress {
    once: bool,
    ready: bool,
    failed: bool,
}

impl Progress {
    fn report(&mut self, outcomes: &[Outcome]) -> ControlFlow<()> {
        if outcomes.is_empty() {
            return ControlFlow::Continue(());
        }
        self.failed = outcomes.iter().any(|outcome| outcome.result.is_err());
        if !self.failed && !self.ready {
            self.ready = true;
            tracing::info!("ready: all services are in the kernel");
            take_over();
            notify_systemd();
        }
        if self.once {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// Our rules are in force, so a predecessor's iptables chains can go without a gap. (Its nftables table went in our first transaction.)
fn take_over() {
    let work = || match iptables::remove_leftovers() {
        Ok(removed) => removed
            .tools
            .iter()
            .filter(|tool| !tool.is_empty())
            .for_each(|tool| tracing::info!("took over from kube-proxy: {tool}")),
        Err(error) => {
            tracing::warn!(%error, "cannot remove what kube-proxy left in iptables; both sets of rules are in force");
        }
    };
    // The tools may take seconds, or wait for a lock, and the rules must be followed meanwhile.
    if let Err(error) = spawn("takeover", work) {
        tracing::warn!("cannot look for what kube-proxy left in iptables: {error:#}");
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
        match inputs.send(Input::Events(batch.events)) {
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
fn watch_rules(mut watcher: Box<dyn Watcher>, inputs: Sender<Input>) -> anyhow::Result<()> {
    spawn("rules", move || {
        loop {
            match watcher.wait() {
                Ok(family) if inputs.send(Input::ForeignChange(family)).is_ok() => {}
                Ok(_) => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot watch our rules; changes by others are noticed at the next check");
                    return;
                }
            }
        }
    })
}

/// Tells the loop when this machine's addresses change.
fn watch_addresses(inputs: Sender<Input>) -> anyhow::Result<()> {
    let mut monitor = AddressMonitor::open().context("cannot watch this machine's addresses")?;
    spawn("addresses", move || {
        while monitor.wait().is_ok() {
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
