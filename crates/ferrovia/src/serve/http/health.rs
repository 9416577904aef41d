//! The health server: `/healthz` and `/livez`, and nothing else, since anybody may ask.

use std::sync::Arc;

use http::Request;
use hyper::body::Incoming;
use tokio::runtime::Handle;

use super::answer::{Answer, not_found, verdict};
use super::server::Handler;
use super::start::{self, Bind, BindError, Name, Server};
use crate::serve::health::{Health, Moment};
use crate::serve::metrics::Metrics;

/// More clients than any number of load balancers and kubelets has at once.
const CONNECTIONS: usize = 256;

/// Starts the health server.
///
/// # Errors
/// If its port is taken and it was to fail then.
pub fn serve_health(
    runtime: &Handle,
    bind: &Bind,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
) -> Result<Server, BindError> {
    let name = Name {
        what: "health checks",
        reason: "FailedToStartProxierHealthcheck",
    };
    start::start(
        runtime,
        &name,
        bind,
        CONNECTIONS,
        HealthPages { health, metrics },
    )
}

struct HealthPages {
    health: Arc<Health>,
    metrics: Arc<Metrics>,
}

impl Handler for HealthPages {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        match request.uri().path() {
            "/healthz" => {
                let answer = self.health.healthz(Moment::now());
                self.metrics.healthz(answer.is_ok);
                verdict(answer.is_ok, answer.body)
            }
            "/livez" => {
                let answer = self.health.livez(Moment::now());
                self.metrics.livez(answer.is_ok);
                verdict(answer.is_ok, answer.body)
            }
            _ => not_found(),
        }
    }
}
