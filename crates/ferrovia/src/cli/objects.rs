//! Where commands that only look get their objects from, and what they make of them.
//!
//! [`Source`] is the one list of places; everything after it is the same whichever it is.

use std::net::IpAddr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use ferrovia_core::desired::{Builder, Desired};
use ferrovia_core::family::Family;
use ferrovia_core::store::{Event, Store};
use ferrovia_core::trace::Ground;
use ferrovia_core::wire::Kind;

use super::flags::ShapeFlags;
use crate::config::{Config, ModeName, Source, flags};
use crate::mode::Mode;
use crate::source::kube::{self, Api, ApiAccess, Freshness, Times, Unobserved};
use crate::source::manifest::{Folder, Severity};

/// How long an API server may take to tell all objects.
const API_LIMIT: Duration = Duration::from_secs(60);

/// What is needed before an answer is right. Legacy Endpoints are none of an API server's business.
const NEEDED: [Kind; 4] = [
    Kind::Service,
    Kind::EndpointSlice,
    Kind::Node,
    Kind::ServiceCidr,
];

/// Which objects to use, for which node and mode.
#[derive(Debug, Args)]
pub(super) struct ObjectFlags {
    #[command(flatten)]
    shape: ShapeFlags,

    /// Configuration file of kube-proxy; all settings are then taken from it, and the objects from the API server it names
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Credentials for the API server, to take the objects from there
    #[arg(long, value_name = "FILE", conflicts_with = "manifests")]
    kubeconfig: Option<PathBuf>,

    /// Address of the API server, to take the objects from there
    #[arg(long, value_name = "URL", conflicts_with = "manifests")]
    master: Option<String>,

    /// Mode that programs the kernel [default: the configuration's, or nftables]
    #[arg(long, value_name = "MODE", alias = "proxy-mode")]
    mode: Option<ModeFlag>,

    /// An address of the node that is asked about, instead of this machine's; may be given several times
    #[arg(long, value_name = "IP")]
    local_address: Vec<IpAddr>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModeFlag {
    Nftables,
    Iptables,
}

impl ModeFlag {
    fn name(self) -> ModeName {
        match self {
            Self::Nftables => ModeName::Nftables,
            Self::Iptables => ModeName::Iptables,
        }
    }
}

/// Which families to look at.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Families {
    Ipv4,
    Ipv6,
    Both,
}

impl Families {
    pub(super) fn list(self) -> &'static [Family] {
        match self {
            Self::Ipv4 => &[Family::V4],
            Self::Ipv6 => &[Family::V6],
            Self::Both => &Family::ALL,
        }
    }
}

/// What the objects amount to on the node.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) store: Store,
    pub(super) builder: Builder,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) mode: Mode,
    /// The rules count connections.
    pub(super) counters: bool,
    /// What people should know about the objects.
    warnings: Vec<String>,
    /// All objects could be read.
    pub(super) is_complete: bool,
    /// The question is about this machine, so its kernel can be asked too.
    pub(super) is_here: bool,
}

impl Loaded {
    /// Says what is wrong with the objects.
    pub(super) fn print_warnings(&self) {
        self.warnings.iter().for_each(|line| eprintln!("{line}"));
    }

    pub(super) fn desired(&self, family: Family) -> &Desired {
        self.builder.desired(family)
    }

    /// What traces are drawn from.
    pub(super) fn ground(&self) -> Ground<'_> {
        Ground {
            builder: &self.builder,
            store: &self.store,
            addresses: &self.addresses,
            mode: self.mode.to_trace(),
        }
    }
}

impl ObjectFlags {
    /// Reads all objects.
    pub(super) fn load(&self) -> anyhow::Result<Loaded> {
        let config = self.configuration()?;
        self.load_from(&config.source, &config)
    }

    /// The same from a folder, whatever other source the flags name.
    pub(super) fn load_folder(&self, folder: &Path) -> anyhow::Result<Loaded> {
        let typed = self.typed(Some(folder));
        let config = self.with_mode(Config::load(flags::parse(typed)?)?);
        self.load_from(&config.source, &config)
    }

    fn configuration(&self) -> anyhow::Result<Config> {
        let in_cluster = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
        let is_named = self.shape.manifests.is_some()
            || self.config.is_some()
            || self.kubeconfig.is_some()
            || self.master.is_some();
        if !is_named && !in_cluster {
            bail!(
                "where are the objects? Give --manifests DIR, or --config FILE or --kubeconfig FILE for those of an API server"
            );
        }
        let typed = self.typed(self.shape.manifests.as_deref());
        Ok(self.with_mode(Config::load(flags::parse(typed)?)?))
    }

    fn typed(&self, manifests: Option<&Path>) -> Vec<String> {
        let folder = manifests.map(|folder| format!("--manifests={}", folder.display()));
        if let Some(file) = &self.config {
            let file = format!("--config={}", file.display());
            return [file].into_iter().chain(folder).collect();
        }
        let kubeconfig = self.kubeconfig.as_ref().filter(|_| folder.is_none());
        let kubeconfig = kubeconfig.map(|file| format!("--kubeconfig={}", file.display()));
        let master = self.master.as_ref().filter(|_| folder.is_none());
        let master = master.map(|url| format!("--master={url}"));
        let shape = self.shape.as_typed().into_iter();
        shape
            .chain(folder)
            .chain(kubeconfig)
            .chain(master)
            .collect()
    }

    fn with_mode(&self, mut config: Config) -> Config {
        config.mode = self
            .mode
            .map(ModeFlag::name)
            .or(config.mode)
            .or(Some(ModeName::Nftables));
        config
    }

    fn load_from(&self, source: &Source, config: &Config) -> anyhow::Result<Loaded> {
        let settings = config.settings.clone();
        let (events, mut reading) = events(source, &settings.node_name)?;
        let mut store = Store::new(&settings.node_name);
        let news: Vec<_> = events
            .iter()
            .flat_map(|event| store.handle(event))
            .collect();
        let mut builder = Builder::new(settings);
        let mut touched = store.take_touched();
        touched.node = true;
        let addresses = self.addresses()?;
        let update = builder.update(&store, touched, &addresses);
        let told = news.iter().chain(&update.warnings);
        reading
            .lines
            .extend(told.map(|warning| format!("warning: {warning}")));
        Ok(Loaded {
            store,
            builder,
            addresses,
            mode: Mode::choose(config),
            counters: config.counters,
            warnings: reading.lines,
            is_complete: reading.is_complete,
            is_here: self.local_address.is_empty(),
        })
    }

    fn addresses(&self) -> anyhow::Result<Vec<IpAddr>> {
        if self.local_address.is_empty() {
            return Ok(ferrovia_host::addr::local_addresses()?);
        }
        Ok(self.local_address.clone())
    }
}

/// What is known of a source besides its objects.
struct Reading {
    /// What is wrong with it.
    lines: Vec<String>,
    /// All objects could be read.
    is_complete: bool,
}

/// All objects of a source.
fn events(source: &Source, node_name: &str) -> anyhow::Result<(Vec<Event>, Reading)> {
    match source {
        Source::Manifests(folder) => from_folder(folder),
        Source::Kube(access) => from_api(access, node_name),
    }
}

fn from_folder(folder: &Path) -> anyhow::Result<(Vec<Event>, Reading)> {
    let batch = Folder::open(folder)?.rescan();
    let problems = || batch.problems.iter();
    let reading = Reading {
        lines: problems().map(ToString::to_string).collect(),
        is_complete: !problems().any(|problem| problem.severity == Severity::Error),
    };
    Ok((batch.events, reading))
}

/// What has been told so far.
#[derive(Default)]
struct Told {
    events: Vec<Event>,
    missing: Vec<Kind>,
    is_complete: bool,
}

/// Lists everything once, as the daemon does when it starts.
fn from_api(access: &ApiAccess, node_name: &str) -> anyhow::Result<(Vec<Event>, Reading)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime for the API")?;
    let told = Arc::new(Mutex::new(Told {
        missing: NEEDED.to_vec(),
        ..Told::default()
    }));
    let listener = Arc::clone(&told);
    let deliver = move |batch: kube::Batch| {
        let mut told = listener.lock().unwrap_or_else(PoisonError::into_inner);
        for event in &batch.events {
            if let Event::Listed(kind) = event {
                told.missing.retain(|missing| missing != kind);
            }
        }
        told.events.extend(batch.events);
        told.is_complete = batch.is_complete;
        if told.missing.is_empty() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    runtime.block_on(async {
        let api = Api::open(access.clone(), Times::default(), Arc::new(Unobserved)).await?;
        let following = kube::run(api, node_name, Freshness::new(Instant::now()), deliver);
        // Whether the time was enough is seen by what was told.
        match tokio::time::timeout(API_LIMIT, following).await {
            Ok(result) => result.context("cannot follow the API server"),
            Err(_) => Ok(()),
        }
    })?;
    let told = std::mem::take(&mut *told.lock().unwrap_or_else(PoisonError::into_inner));
    let lacks = |kind| told.missing.contains(&kind);
    if lacks(Kind::Service) || lacks(Kind::EndpointSlice) {
        bail!(
            "the API server did not tell all Services and EndpointSlices within {} s; the log above says why, or try -v 4",
            API_LIMIT.as_secs()
        );
    }
    let reading = Reading {
        lines: Vec::new(),
        is_complete: told.is_complete,
    };
    Ok((told.events, reading))
}
