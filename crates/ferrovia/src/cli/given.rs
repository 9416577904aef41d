//! Objects and settings for commands that only look: from a folder, or once from the API server.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use ferrovia_core::store::{Event, Store};
use ferrovia_core::wire::Kind;

use crate::config::{Config, ModeName, Source, flags};
use crate::source::kube::{self, Api, ApiAccess, Freshness, Times, Unobserved};
use crate::source::manifest::{Folder, Severity};

/// How long an API server may take to tell all objects.
const API_LIMIT: Duration = Duration::from_secs(60);
/// What has to be known before an answer is right.
const NEEDED: [Kind; 2] = [Kind::Service, Kind::EndpointSlice];

/// Where settings and objects come from.
#[derive(Debug, Args)]
pub(super) struct GivenFlags {
    /// Configuration file of kube-proxy; objects are taken from the API server it names, unless --manifests is given
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Folder with Services and EndpointSlices, instead of an API server
    #[arg(long, value_name = "DIR")]
    manifests: Option<PathBuf>,

    /// Credentials for the API server
    #[arg(long, value_name = "FILE", conflicts_with = "manifests")]
    kubeconfig: Option<PathBuf>,

    /// Name of this node [default: the host name]
    #[arg(long, value_name = "NAME", alias = "hostname-override")]
    node_name: Option<String>,
}

impl GivenFlags {
    /// The flags name a place for objects, or a configuration that does.
    pub(super) fn has_objects(&self) -> bool {
        self.config.is_some() || self.manifests.is_some() || self.kubeconfig.is_some()
    }

    /// The configuration, as if a mode were set in it; with nothing given, the daemon's own defaults.
    pub(super) fn config(&self, mode: Option<ModeName>) -> anyhow::Result<Config> {
        let flag = |name: &str, path: &Option<PathBuf>| {
            let path = path.as_ref()?;
            Some(format!("--{name}={}", path.display()))
        };
        // A configuration file names an API server, and the daemon would not know which of the two is meant.
        let folder = self.manifests.as_ref().filter(|_| self.config.is_some());
        let manifests = self.manifests.clone().filter(|_| folder.is_none());
        let node_name = self.node_name.as_ref();
        let typed = [
            flag("config", &self.config),
            flag("manifests", &manifests),
            flag("kubeconfig", &self.kubeconfig),
            node_name.map(|name| format!("--hostname-override={name}")),
        ];
        let typed = flags::parse(typed.into_iter().flatten())?;
        let mut config = Config::load_in(typed, mode)?;
        if let Some(folder) = folder {
            config.source = Source::Manifests(folder.clone());
        }
        Ok(config)
    }
}

/// All objects of a source. What is wrong with them is printed to standard error.
pub(super) fn store(config: &Config) -> anyhow::Result<Store> {
    let node_name = &config.settings.node_name;
    let events = match &config.source {
        Source::Manifests(folder) => from_folder(folder)?,
        Source::Kube(access) => from_api(access, node_name)?,
    };
    let mut store = Store::new(node_name);
    for warning in events.iter().flat_map(|event| store.handle(event)) {
        eprintln!("warning: {warning}");
    }
    Ok(store)
}

fn from_folder(folder: &Path) -> anyhow::Result<Vec<Event>> {
    let batch = Folder::open(folder)?.rescan();
    for problem in &batch.problems {
        eprintln!("{problem}");
    }
    let mut problems = batch.problems.iter();
    if problems.any(|problem| problem.severity == Severity::Error) {
        bail!("some files could not be read, see above; mend them, or give another folder");
    }
    Ok(batch.events)
}

/// Lists everything once, as the daemon does when it starts.
fn from_api(access: &ApiAccess, node_name: &str) -> anyhow::Result<Vec<Event>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime for the API")?;
    let told = Arc::new(Mutex::new(Vec::new()));
    let (done, is_done) = mpsc::channel();
    let events = Arc::clone(&told);
    let mut missing = NEEDED.to_vec();
    let deliver = move |batch: kube::Batch| {
        for event in &batch.events {
            if let Event::Listed(listed) = event {
                missing.retain(|kind| kind != listed);
            }
        }
        let mut events = events.lock().unwrap_or_else(PoisonError::into_inner);
        events.extend(batch.events);
        if missing.is_empty() {
            let _ = done.send(());
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    };
    runtime.block_on(async {
        let api = Api::open(access.clone(), Times::default(), Arc::new(Unobserved)).await?;
        let following = kube::run(api, node_name, Freshness::new(Instant::now()), deliver);
        match tokio::time::timeout(API_LIMIT, following).await {
            Ok(result) => result.context("cannot follow the API server"),
            // Whether the time was enough is seen below.
            Err(_) => Ok(()),
        }
    })?;
    if is_done.try_recv().is_err() {
        bail!(
            "the API server did not tell all Services and EndpointSlices within {} s; the log above says why, or give --manifests",
            API_LIMIT.as_secs()
        );
    }
    let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(std::mem::take(&mut *told))
}
