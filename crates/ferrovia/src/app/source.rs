//! Where the objects come from: a thread or a task that tells the sync loop.

use std::ops::ControlFlow;
use std::sync::Arc;

use ferrovia_core::wire::Kind;
use tokio::runtime::Runtime;

use super::watch::spawn;
use crate::serve::metrics::Metrics;
use crate::source::kube::{self, Api, ApiAccess, Asked, Times};
use crate::source::manifest::{self, Folder, Problem, Severity};
use crate::sync::{Input, Inputs};

/// Follows a folder of manifests on a thread of its own.
pub(super) fn follow_folder(folder: Folder, inputs: Inputs) -> anyhow::Result<()> {
    let ended = inputs.clone();
    let deliver = move |batch: manifest::Batch| {
        batch.problems.iter().for_each(log_problem);
        tell(&inputs, batch.events, batch.is_complete)
    };
    spawn("manifests", move || {
        if let Err(error) = manifest::run(folder, deliver) {
            let _ = ended.send(Input::SourceEnded(error.to_string()));
        }
    })
}

/// Reads the credentials for the API server, without speaking to it yet.
pub(super) fn open_api(
    runtime: &Runtime,
    access: ApiAccess,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<Api> {
    let observer = Arc::new(Counted(Arc::clone(metrics)));
    Ok(runtime.block_on(Api::open(access, Times::default(), observer))?)
}

/// The loop has ended if nobody receives any more.
fn tell(
    inputs: &Inputs,
    events: Vec<ferrovia_core::store::Event>,
    is_complete: bool,
) -> ControlFlow<()> {
    let news = Input::Events {
        events,
        has_unreadable_objects: !is_complete,
    };
    match inputs.send(news) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    }
}

fn log_problem(problem: &Problem) {
    match problem.severity {
        Severity::Info => tracing::info!("{problem}"),
        Severity::Warning => tracing::warn!("{problem}"),
        Severity::Error => tracing::error!("{problem}"),
    }
}

/// Counts the conversation with the API server.
struct Counted(Arc<Metrics>);

impl kube::Observer for Counted {
    fn asked(&self, request: &Asked<'_>) {
        let Asked {
            method,
            host,
            code,
            took,
            held_back,
        } = request;
        self.0.api_request(method, host, *code, *took);
        self.0.api_held_back(method, host, *held_back);
    }

    fn watch_restarted(&self, kind: Kind) {
        self.0.watch_restarted(kind.name());
    }

    fn relisted(&self, kind: Kind) {
        self.0.relisted(kind.name());
    }
}
