//! The metrics server: what is measured, how this proxy is configured, and with profiling a few things for debugging.

mod debug;
mod scrape;
mod zpages;

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use tokio::runtime::Handle;

use self::scrape::Scrapes;
use super::answer::{Answer, JSON, TEXT, answer, not_found, text};
use super::host::ToolGuard;
use super::server::Handler;
use super::start::{self, Bind, BindError, Name, Server};
use crate::serve::health::Health;
use crate::serve::metrics::Metrics;

pub use debug::SetVerbosity;

/// A Prometheus or two, and somebody who looks.
const CONNECTIONS: usize = 64;
/// For a name that a web page may have made lead here.
const REFUSED: &str = "on a loopback address this server answers by address, by localhost, by names of the cluster, and by the node's name\n";
/// The paths that `/statusz` names.
const PATHS: [&str; 7] = [
    "/configz",
    "/flagz",
    "/healthz",
    "/metrics",
    "/metrics/slis",
    "/proxyMode",
    "/statusz",
];

/// What the metrics server shows.
pub struct Pages {
    /// What is measured.
    pub metrics: Arc<Metrics>,
    /// Knows how old the data are.
    pub health: Arc<Health>,
    /// How the kernel is programmed, as `/proxyMode` says it.
    pub mode: String,
    /// The configuration in use, with `kind` and `apiVersion`.
    pub config: serde_json::Value,
    /// The flags that were typed, by name.
    pub flags: BTreeMap<String, String>,
    /// Serve what is for debugging.
    pub profiling: bool,
    /// Changes how much is logged.
    pub set_verbosity: SetVerbosity,
    /// The node's names, by which a proxy on this machine may be asked.
    pub names: Vec<String>,
}

/// Starts the metrics server.
///
/// # Errors
/// If its port is taken and it was to fail then.
pub fn serve_metrics(runtime: &Handle, bind: &Bind, pages: Pages) -> Result<Server, BindError> {
    let name = Name {
        what: "metrics",
        reason: "FailedToStartMetricServer",
    };
    let handler = MetricsPages {
        guard: ToolGuard::new(bind.address.ip(), pages.names.clone()),
        scrapes: Scrapes::new(Arc::clone(&pages.metrics), Arc::clone(&pages.health)),
        config: serde_json::json!({ "kubeproxy.config.k8s.io": pages.config }).to_string(),
        pages,
    };
    start::start(runtime, &name, bind, CONNECTIONS, handler)
}

struct MetricsPages {
    guard: ToolGuard,
    pages: Pages,
    scrapes: Scrapes,
    config: String,
}

impl Handler for MetricsPages {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        if !self.guard.allows(request.headers()) {
            return answer(StatusCode::FORBIDDEN, TEXT, REFUSED);
        }
        let accept = zpages::accept(request.headers());
        match request.uri().path() {
            "/metrics" => self.scrapes.answer().await,
            "/metrics/slis" => self.slis(request.method()),
            "/healthz" => self.ping(request.uri().query()),
            "/healthz/ping" => {
                self.pages.metrics.slis().pinged();
                text("ok")
            }
            "/proxyMode" => text(self.pages.mode.clone()),
            "/configz" => answer(StatusCode::OK, JSON, self.config.clone()),
            "/flagz" => zpages::flagz(&self.pages.flags, accept),
            "/statusz" => {
                let metrics = &self.pages.metrics;
                zpages::statusz(metrics.started(), metrics.up(), &PATHS, accept)
            }
            path if self.pages.profiling && path.starts_with("/debug/") => {
                debug::answer(request, &self.pages.set_verbosity).await
            }
            _ => not_found(),
        }
    }
}

impl MetricsPages {
    /// Whether this server answers, and nothing more.
    fn ping(&self, query: Option<&str>) -> Answer {
        self.pages.metrics.slis().pinged();
        let mut parameters = query.unwrap_or_default().split('&');
        if parameters.any(|parameter| parameter.split('=').next() == Some("verbose")) {
            text("[+]ping ok\nhealthz check passed\n")
        } else {
            text("ok")
        }
    }

    fn slis(&self, method: &Method) -> Answer {
        if *method == Method::DELETE {
            self.pages.metrics.slis().reset();
            return text("metrics reset\n");
        }
        let mut page = String::new();
        self.pages.metrics.expose_slis(&mut page);
        answer(StatusCode::OK, scrape::EXPOSITION, page)
    }
}
