//! Reading all objects of a source once.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use ferrovia_core::desired::Settings;
use ferrovia_core::store::{Event, Store};
use ferrovia_core::wire::Kind;
use tokio::time::timeout;

use crate::config::{Config, Source};
use crate::inspect::query::Relevance;
use crate::source::kube::{self, Api, ApiAccess, Freshness, Times, Unobserved};
use crate::source::manifest::{Excerpt, Folder, Severity};
use crate::sync::{self, Input, InputReceiver};

/// How long an API server may take to tell all objects.
const API_LIMIT: Duration = Duration::from_secs(60);
/// How long it may take for the rest, which may not exist or not be ours to read, once all that is needed has been told.
const API_GRACE: Duration = Duration::from_secs(2);
/// What is needed before an answer is right.
const NEEDED: [Kind; 2] = [Kind::Service, Kind::EndpointSlice];
/// What makes it better. Legacy Endpoints are none of an API server's business.
const WELCOME: [Kind; 2] = [Kind::Node, Kind::ServiceCidr];

/// All objects of a source.
#[derive(Debug)]
pub(in crate::cli) struct Read {
    pub(in crate::cli) store: Store,
    /// What people should know about the objects.
    pub(in crate::cli) warnings: Vec<String>,
    /// All objects could be read.
    pub(in crate::cli) is_complete: bool,
}

impl Read {
    /// Says what is wrong with the objects, and stops if some could not be read.
    pub(in crate::cli) fn checked(self) -> anyhow::Result<Store> {
        self.warnings.iter().for_each(|line| eprintln!("{line}"));
        if !self.is_complete {
            bail!("some objects could not be read, see above; mend them, or take others");
        }
        Ok(self.store)
    }
}

/// Reads all objects of the configuration's source.
pub(in crate::cli) fn read(config: &Config) -> anyhow::Result<Read> {
    let node_name = &config.settings.node_name;
    let told = match &config.source {
        Source::Manifests(folder) => from_folder(folder)?,
        Source::Kube(access) => from_api(access, node_name)?,
    };
    Ok(told.stored(&config.settings))
}

/// Reads those objects of a folder that matter to a question; none if that cannot be done, and all must be read.
pub(in crate::cli) fn read_about(config: &Config, mut relevance: Relevance) -> Option<Read> {
    let Source::Manifests(folder) = &config.source else {
        return None;
    };
    let excerpt = Excerpt::read(folder)?;
    let events = |relevance: &Relevance| excerpt.events(|document| relevance.concerns(document));
    relevance.learn_addresses(&events(&relevance)?);
    relevance.learn_names(&events(&relevance)?);
    let told = Told {
        events: events(&relevance)?,
        is_complete: true,
        ..Told::default()
    };
    Some(told.stored(&config.settings))
}

/// What a source has told so far.
#[derive(Default)]
struct Told {
    events: Vec<Event>,
    /// What is wrong with it.
    lines: Vec<String>,
    missing: Vec<Kind>,
    is_complete: bool,
}

impl Told {
    /// Whether some kind of object that every answer needs was not listed yet.
    fn lacks_needed(&self) -> bool {
        NEEDED.iter().any(|kind| self.missing.contains(kind))
    }

    fn take(&mut self, input: Input) {
        let Input::Events {
            events,
            has_unreadable_objects,
        } = input
        else {
            return;
        };
        for event in &events {
            if let Event::Listed(kind) = event {
                self.missing.retain(|missing| missing != kind);
            }
        }
        self.events.extend(events);
        self.is_complete = !has_unreadable_objects;
    }

    fn stored(mut self, settings: &Settings) -> Read {
        let mut store = Store::with_policy(&settings.node_name, settings.services.clone());
        let news = self.events.iter().flat_map(|event| store.handle(event));
        (self.lines).extend(news.map(|warning| format!("warning: {warning}")));
        Read {
            store,
            warnings: self.lines,
            is_complete: self.is_complete,
        }
    }
}

fn from_folder(folder: &Path) -> anyhow::Result<Told> {
    let batch = Folder::open(folder)?.rescan();
    let problems = || batch.problems.iter();
    Ok(Told {
        lines: problems().map(ToString::to_string).collect(),
        is_complete: !problems().any(|problem| problem.severity == Severity::Error),
        missing: Vec::new(),
        events: batch.events,
    })
}

/// Lists everything once, as the daemon does when it starts.
fn from_api(access: &ApiAccess, node_name: &str) -> anyhow::Result<Told> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime for the API")?;
    let mut told = Told {
        missing: NEEDED.into_iter().chain(WELCOME).collect(),
        ..Told::default()
    };
    let (inputs, received) = sync::queue();
    runtime.block_on(async {
        let api = Api::open(access.clone(), Times::default(), Arc::new(Unobserved)).await?;
        // Whether the time was enough is seen by what is missing.
        tokio::select! {
            () = kube::run(api, node_name, Freshness::new(Instant::now()), inputs) => {}
            () = receive(&received, &mut told) => {}
            () = tokio::time::sleep(API_LIMIT) => {}
        }
        anyhow::Ok(())
    })?;
    if told.lacks_needed() {
        bail!(
            "the API server did not tell all Services and EndpointSlices within {} s; the log above says why, or try -v 4",
            API_LIMIT.as_secs()
        );
    }
    Ok(told)
}

/// Receives until everything is listed, or all that is needed is and the rest is late.
async fn receive(inputs: &InputReceiver, told: &mut Told) {
    while told.lacks_needed() {
        match inputs.recv_async().await {
            Ok(input) => told.take(input),
            Err(_) => return,
        }
    }
    let rest = async {
        while !told.missing.is_empty()
            && let Ok(input) = inputs.recv_async().await
        {
            told.take(input);
        }
    };
    let _ = timeout(API_GRACE, rest).await;
}
