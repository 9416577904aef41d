//! The wiring of a running proxy, in the order of its start.
//!
//! One thread syncs. Whatever it hears comes through one queue, from threads that wait for the outside (`watch.rs`) and from the source
//! of objects (`source.rs`); whatever it has to tell goes to `report.rs`. HTTP and the API server share one thread of their own (`io.rs`).

mod authors;
mod io;
pub mod ip_families;
pub(crate) mod owner;
mod report;
mod source;
mod systemd;
mod takeover;
mod watch;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{bail, ensure};
use ferrovia_core::desired::LocalSetting;
use ferrovia_core::family::{Family, PerFamily};
use ferrovia_host::nft::NftConnection;
use ferrovia_host::portals::Directory;
use ferrovia_host::privileges;
use ferrovia_host::sysctl::Files;
use jiff::Timestamp;

use self::authors::Authors;
use self::io::Io;
use self::owner::Claim;
use self::report::{FirstSync, Preflight, Reporter, WhenReady};
use self::takeover::Patience;
use crate::config::{Action, Config, Source};
use crate::conntrack::fill;
use crate::conntrack::limits::{self, Finding};
use crate::conntrack::worker::{Cleaned, Cleaner, PACE};
use crate::inspect::query::diff::Kernel;
use crate::kube_event::Noticeboard;
use crate::logging::LogControl;
use crate::mode::{
    self, DynamicSets, InstallContext, Installed, Listen, Mode, TakeOver, read_connections,
};
use crate::serve::admin::{About, Admin, History, Looker};
use crate::serve::http::ServiceChecks;
use crate::serve::metrics::{DEFAULT_MAX_SERIES, Metrics, ReadConnections};
use crate::source::manifest::Folder;
use crate::sync::{self, Engine, Input, InputReceiver, Inputs, NodeNeed, Received, Stop};

/// Runs the proxy until it is told to stop; with `once` to its first sync, with `--init-only` not at all.
pub fn run(config: Config, log: LogControl) -> anyhow::Result<()> {
    tracing::info!(version = env!("CARGO_PKG_VERSION"), node = %config.settings.node_name, "starting");
    // Before the mode is chosen: without rights the kernel seems to be able to do nothing.
    privileges::require(&[privileges::RULES])?;
    let mode = mode::choose(&config);
    if config.once {
        return run_once(config, &*mode);
    }
    let claim = match config.action {
        Action::InitOnly => None,
        _ => Some(Claim::make(&config, &*mode)?),
    };
    let mut io = Io::new(&config, &*mode)?;
    // All that takes more than we need later comes before the first thread is made, because threads inherit what we may do.
    let findings = set_limits(&config);
    if config.action == Action::InitOnly {
        mode.prepare().map_err(anyhow::Error::from_boxed)?;
        tracing::info!("all that needs more than CAP_NET_ADMIN is done");
        return Ok(());
    }
    let context = InstallContext {
        counters: config.counters,
        notices: io.notices.clone(),
    };
    let Installed {
        backends,
        listen,
        read,
        take_over,
        proxies,
        dynamic_sets,
    } = mode.install(&context).map_err(anyhow::Error::from_boxed)?;
    let supported = PerFamily::from_fn(|family: Family| backends[family].is_some());
    drop_privileges(&config, &*mode);

    let (inputs, received) = sync::queue();
    // Watched before it is read: what changes in between is then told a second time, but never missed.
    watch::watch_signals(inputs.clone())?;
    watch::watch_addresses(inputs.clone())?;
    watch::spawn("flows", fill::watch)?;
    if let Some(file) = config.config_file.clone() {
        watch::watch_config(file, inputs.clone())?;
    }
    inputs.send(Input::Addresses(watch::local_addresses()?))?;

    if let Err(error) = io.serve(&config, &*mode, log) {
        io.post_notices();
        return Err(error);
    }
    let history = Arc::new(History::default());
    let admin = admin(&config, &mode, &io, supported, &proxies, &inputs, &history)?;
    io.serve_admin(&config, &Arc::new(admin));
    let mut engine = Engine::new(config.settings.clone(), backends).waiting_for(node_need(&config));
    if let Some(claim) = claim {
        engine = claim.hold(engine, &io.health, &inputs)?;
    }
    let watched = inputs.clone();
    let needs_tools = mode.properties().needs_iptables_tools;
    let notices = io.notices.clone();
    let when_ready = move || settle_in(needs_tools, listen, take_over, watched, notices);
    let dynamic_sets = maintain_dynamic_sets(&config, &io, dynamic_sets)?;
    let mut reporter = reporter(
        &config,
        &io,
        supported,
        Box::new(when_ready),
        history,
        dynamic_sets,
    )?;
    findings
        .iter()
        .filter_map(Finding::notice)
        .for_each(|notice| (io.notices)(notice));
    if let Some(read) = read {
        io.metrics.read_mode(read);
    }
    if let Some(read) = connections(&config, &*mode, &inputs)? {
        io.metrics.count_connections(read, DEFAULT_MAX_SERIES);
    }
    io.metrics.count_proxies(proxies, DEFAULT_MAX_SERIES);
    let pace = config.pace;
    let _servers = io.start(config, inputs)?;
    serve_until_stopped(engine, &received, pace, &mut reporter)
}

fn serve_until_stopped(
    engine: Engine,
    received: &InputReceiver,
    pace: sync::Pace,
    reporter: &mut Reporter,
) -> anyhow::Result<()> {
    match sync::run(engine, received, pace, reporter) {
        Stop::SourceEnded(why) => bail!("no more changes can be followed: {why}"),
        Stop::Failed(why) => bail!("{why}"),
        Stop::Asked | Stop::Satisfied => tracing::info!("stopping; the rules stay in force"),
    }
    Ok(())
}

/// Syncs once, from a folder.
fn run_once(config: Config, mode: &dyn Mode) -> anyhow::Result<()> {
    let Source::Manifests(folder) = &config.source else {
        bail!("--once needs --manifests: the objects of an API server are followed, not read once");
    };
    ensure!(
        !mode.properties().stops_with_process,
        "--once: the {} mode serves nobody once the process has ended; use another mode, or leave --once out",
        mode.name()
    );
    let _ownership = owner::claim_or_wait(&config, mode)?;
    let Installed {
        backends,
        take_over,
        ..
    } = mode
        .install(&InstallContext {
            counters: config.counters,
            ..InstallContext::default()
        })
        .map_err(anyhow::Error::from_boxed)?;
    let (inputs, received) = sync::queue();
    inputs.send(Input::Addresses(watch::local_addresses()?))?;
    source::follow_folder(Folder::open(folder)?, inputs)?;
    let mut first = FirstSync::default();
    let engine = Engine::new(config.settings, backends);
    match sync::run(engine, &received, config.pace, &mut first) {
        Stop::SourceEnded(why) => bail!("the manifests cannot be read: {why}"),
        Stop::Failed(why) => bail!("{why}"),
        Stop::Asked | Stop::Satisfied => {}
    }
    ensure!(first.succeeded, "the rules could not be written");
    let notices: Noticeboard = Arc::new(|_| {});
    takeover::remove_others(take_over, Patience::ONCE, &notices);
    Ok(())
}

/// What holds for the whole node or the whole process, and takes more privileges than running does.
fn set_limits(config: &Config) -> Vec<Finding> {
    if let Err(error) = privileges::raise_or_lower_oom_score(config.oom_score_adj) {
        tracing::debug!(%error, "cannot protect the proxy from being killed when memory runs out");
    }
    if let Err(error) = privileges::allow_many_open_files() {
        tracing::debug!(%error, "cannot raise the limit of open files");
    }
    let kernel = Files::of_this_machine();
    let findings = limits::apply(&config.conntrack, kernel.online_cpus(), &kernel);
    findings.iter().for_each(Finding::log);
    findings
}

/// Keeps what a running proxy needs: to write rules, to run the old iptables tools during a takeover, to read other people's manifests,
/// and to listen where it was told to.
fn drop_privileges(config: &Config, mode: &dyn Mode) {
    let mut needs = vec![privileges::RULES, privileges::LEGACY_IPTABLES];
    if matches!(config.source, Source::Manifests(_)) {
        needs.push(privileges::FILES_OF_OTHERS);
    }
    let servers = [config.health, config.metrics, config.web];
    let is_low = |address: &SocketAddr| address.port() < 1024;
    if servers.iter().flatten().any(is_low) || mode.properties().needs_low_ports {
        needs.push(privileges::LOW_PORTS);
    }
    let keep: Vec<_> = needs.iter().map(|need| need.capability).collect();
    if let Err(error) = privileges::drop_capabilities(&keep) {
        tracing::warn!(%error, "going on with more privileges than needed");
    }
}

/// With an API server there should be a Node, and node ports should not answer on addresses that are not its own for a moment.
fn node_need(config: &Config) -> NodeNeed {
    match (&config.source, &config.settings.local) {
        (Source::Manifests(_), _) => NodeNeed::Nothing,
        (Source::Kube(_), LocalSetting::NodeCidr) => NodeNeed::PodCidr,
        (Source::Kube(_), _) => NodeNeed::Address,
    }
}

fn reporter(
    config: &Config,
    io: &Io,
    supported: PerFamily<bool>,
    when_ready: WhenReady,
    history: Arc<History>,
    dynamic_sets: Option<DynamicSets>,
) -> anyhow::Result<Reporter> {
    let counted = Arc::clone(&io.metrics);
    Ok(Reporter {
        metrics: Arc::clone(&io.metrics),
        health: Arc::clone(&io.health),
        checks: ServiceChecks::start(io.handle(), Arc::clone(&io.health), io.notices.clone()),
        cleaner: Cleaner::start(PACE, move |cleaned| count_cleaned(&counted, cleaned))?,
        dynamic_sets,
        preflight: Some(preflight(config, supported)),
        when_ready: Some(when_ready),
        started: Timestamp::now(),
        counted: Received::default(),
        checked: PerFamily::default(),
        syncing: None,
        history,
        authors: Authors::new(io.notices.clone(), Instant::now()),
    })
}

/// Starts to maintain the sets that packets fill, if the mode has any.
fn maintain_dynamic_sets(
    config: &Config,
    io: &Io,
    connection: Option<NftConnection>,
) -> anyhow::Result<Option<DynamicSets>> {
    let metrics = Arc::clone(&io.metrics);
    let start = |connection| {
        DynamicSets::start(connection, config.counters, move |report| {
            metrics.swept(report);
        })
    };
    Ok(connection.map(start).transpose()?)
}

/// A way to read what the kernel counts, where it does and may. Everybody who reads gets one of their own.
fn connections(
    config: &Config,
    mode: &dyn Mode,
    inputs: &Inputs,
) -> anyhow::Result<Option<ReadConnections>> {
    if !config.counters {
        return Ok(None);
    }
    let read = read_connections(mode, inputs.clone());
    read.map_err(anyhow::Error::from_boxed)
}

/// What people and commands are answered from.
fn admin(
    config: &Config,
    mode: &Arc<dyn Mode>,
    io: &Io,
    supported: PerFamily<bool>,
    proxies: &Directory,
    inputs: &Inputs,
    history: &Arc<History>,
) -> anyhow::Result<Admin> {
    let families = Family::ALL.into_iter().filter(|family| supported[*family]);
    let about = About {
        node: config.settings.node_name.clone(),
        mode: Arc::clone(mode),
        families: families.collect(),
        source: match config.source {
            Source::Manifests(_) => "manifests",
            Source::Kube(_) => "kubernetes",
        },
    };
    let read = connections(config, &**mode, inputs)?;
    let (looker, looking) = Looker::new(Kernel {
        mode: Arc::clone(mode),
        counters: config.counters,
        proxies: Some(proxies.clone()),
    });
    if mode.properties().needs_iptables_tools {
        watch::spawn_with_tools("look", || looking.run())?;
    } else {
        watch::spawn("look", || looking.run())?;
    }
    let health = Arc::clone(&io.health);
    Ok(Admin::new(
        about,
        inputs.clone(),
        health,
        Arc::clone(history),
        read,
        looker,
    ))
}

/// What failed is tried again, and the thread that cleans up tells of it.
fn count_cleaned(metrics: &Metrics, cleaned: Cleaned) {
    let Cleaned {
        family,
        took,
        result,
    } = cleaned;
    if let Ok(removed) = result {
        let by_reason = [
            ("endpoint_gone", removed.endpoint_gone),
            ("untranslated", removed.untranslated),
            ("service_gone", removed.service_gone),
        ];
        let by_reason = by_reason.map(|(reason, flows)| (reason, flows as u64));
        metrics.conntrack_cleaned(family, took, by_reason);
    }
}

/// The address families have to fit together. The Node says which is the first, so this is looked at when it is known.
fn preflight(config: &Config, supported: PerFamily<bool>) -> Preflight {
    let config = config.clone();
    Box::new(move |engine| {
        let check = ip_families::Check {
            supported,
            settings: &config.settings,
            node: engine.node(),
            exclude_cidrs: &config.modes.ipvs.exclude_cidrs,
            health: config.health,
            metrics: config.metrics,
        };
        for oddity in check.run()? {
            tracing::warn!("{oddity}");
        }
        Ok(())
    })
}

/// The rules are in force for the first time: tells those who wait for it, and begins to look after them.
fn settle_in(
    needs_tools: bool,
    listen: Listen,
    take_over: TakeOver,
    inputs: Inputs,
    notices: Noticeboard,
) {
    tracing::info!("ready: all services are in the kernel");
    systemd::notify_ready();
    // The tools may take seconds, or wait for a lock, and changes must be followed meanwhile.
    let started = watch::watch_rules(listen, inputs).and_then(|()| {
        let work = move || takeover::remove_others(take_over, Patience::DAEMON, &notices);
        watch::spawn_with_tools("takeover", work)
    });
    if !needs_tools {
        watch::give_up_tools();
    }
    if let Err(error) = started {
        tracing::warn!("{error:#}; the rules are checked every sync period all the same");
    }
}
