//! The thread that speaks to the network: HTTP servers and the API server's client, on one runtime.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::timeout;

use super::source;
use super::watch::spawn;
use crate::config::{Config, Source};
use crate::kube_event::{Notice, Noticeboard, Regarding, Severity};
use crate::logging::LogControl;
use crate::mode::Mode;
use crate::serve::admin::{Admin, AdminSocket, serve_socket};
use crate::serve::health::{Health, State};
use crate::serve::http::{Bind, Pages, Server, serve_health, serve_metrics};
use crate::serve::metrics::{Feature, Metrics};
use crate::serve::web::serve_page;
use crate::source::kube::events::{Reporter, noticeboard};
use crate::source::kube::{self, Api, Freshness};
use crate::source::manifest::Folder;
use crate::sync::Inputs;

/// How long the API server may take for the events of a start that fails.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Work that is done beside everything else.
type Task = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// What answers as long as it lives.
pub(super) struct Serving {
    _servers: Vec<Server>,
    _socket: Option<AdminSocket>,
}

/// Everything on that thread, before it runs.
pub(super) struct Io {
    runtime: Runtime,
    api: Option<Api>,
    tasks: Vec<Task>,
    servers: Vec<Server>,
    socket: Option<AdminSocket>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) health: Arc<Health>,
    pub(super) notices: Noticeboard,
}

impl Io {
    /// Opens the way to the API server, if there is one.
    pub(super) fn new(config: &Config, mode: &dyn Mode) -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the network thread")?;
        let metrics = Arc::new(Metrics::new(mode.name(), mode.failure_metrics()));
        metrics.features(config.gates.iter().map(|gate| Feature {
            name: gate.name,
            stage: gate.stage.label(),
            is_enabled: gate.enabled,
        }));
        let expects_node = matches!(config.source, Source::Kube(_));
        let health = Health::new(State::new(2 * config.pace.sync_period, expects_node));
        let mut io = Self {
            runtime,
            api: None,
            tasks: Vec::new(),
            servers: Vec::new(),
            socket: None,
            metrics,
            health: Arc::new(health),
            notices: Arc::new(|_| {}),
        };
        if let Source::Kube(access) = &config.source {
            let api = source::open_api(&io.runtime, access.clone(), &io.metrics)?;
            let reporter = Reporter {
                node_name: config.settings.node_name.clone(),
                hostname: hostname(),
            };
            let (notices, posting) = noticeboard(api.clone(), reporter);
            io.notices = notices;
            io.tasks.push(Box::pin(posting));
            io.api = Some(api);
        }
        Ok(io)
    }

    pub(super) fn handle(&self) -> &Handle {
        self.runtime.handle()
    }

    /// Begins to listen; answers come once the thread runs.
    pub(super) fn serve(
        &mut self,
        config: &Config,
        mode: &dyn Mode,
        log: LogControl,
    ) -> anyhow::Result<()> {
        let bind = |address| Bind {
            address,
            hard_fail: config.bind_hard_fail,
            notices: self.notices.clone(),
        };
        if let Some(address) = config.health {
            let (health, metrics) = (Arc::clone(&self.health), Arc::clone(&self.metrics));
            let server = serve_health(self.runtime.handle(), &bind(address), health, metrics)?;
            self.servers.push(server);
        }
        if let Some(address) = config.metrics {
            let pages = Pages {
                metrics: Arc::clone(&self.metrics),
                health: Arc::clone(&self.health),
                mode: mode.name().into(),
                config: config.document.clone(),
                flags: config.flags.clone(),
                profiling: config.profiling,
                names: vec![config.settings.node_name.clone(), hostname()],
                set_verbosity: Arc::new(move |level| log.set_verbosity(level)),
            };
            let server = serve_metrics(self.runtime.handle(), &bind(address), pages)?;
            self.servers.push(server);
        }
        Ok(())
    }

    /// Begins to listen for people and commands. Nothing depends on them, so a failure is no more than a warning.
    pub(super) fn serve_admin(&mut self, config: &Config, admin: &Arc<Admin>) {
        let runtime = self.runtime.handle();
        if let Some(path) = &config.admin_socket {
            self.socket = Some(serve_socket(runtime, path, Arc::clone(admin)));
        }
        if let Some(address) = config.web {
            let bind = Bind {
                address,
                hard_fail: false,
                notices: self.notices.clone(),
            };
            match serve_page(runtime, &bind, Arc::clone(admin)) {
                Ok(server) => self.servers.push(server),
                Err(error) => tracing::warn!(%error, "there is no page"),
            }
        }
    }

    /// For an end before the thread was started: what there is to tell is told first, if that does not take long.
    pub(super) fn post_notices(self) {
        // Posting ends when nobody is left who could tell more.
        drop(self.notices);
        let posted = self.runtime.block_on(async {
            timeout(LAST_WORDS, async {
                for task in self.tasks {
                    task.await;
                }
            })
            .await
        });
        if posted.is_err() {
            tracing::debug!("the API server took too long to take events");
        }
        // Somebody may still be looking up the server's address, and nobody waits for that.
        self.runtime.shutdown_background();
    }

    /// Starts the thread and the source. The servers answer as long as what is returned lives.
    pub(super) fn start(mut self, config: Config, inputs: Inputs) -> anyhow::Result<Serving> {
        match config.source {
            Source::Manifests(folder) => source::follow_folder(Folder::open(&folder)?, inputs)?,
            Source::Kube(_) => self.follow_api(config.settings.node_name, inputs),
        }
        (self.notices)(Notice {
            regarding: Regarding::Node,
            severity: Severity::Normal,
            reason: "Starting",
            action: "StartKubeProxy",
            note: String::new(),
        });
        let (runtime, tasks) = (self.runtime, self.tasks);
        spawn("io", move || {
            for task in tasks {
                runtime.spawn(task);
            }
            runtime.block_on(std::future::pending::<()>());
        })?;
        Ok(Serving {
            _servers: self.servers,
            _socket: self.socket,
        })
    }

    fn follow_api(&mut self, node_name: String, inputs: Inputs) {
        let Some(api) = self.api.take() else {
            return;
        };
        let freshness = Freshness::new(Instant::now());
        let watched = freshness.clone();
        self.health
            .show_data_age(Box::new(move |now| watched.age(now)));
        self.tasks.push(Box::pin(async move {
            kube::run(api, &node_name, freshness, inputs).await;
        }));
    }
}

fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_lowercase())
        .unwrap_or_default()
}
