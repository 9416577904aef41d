//! A health check of its own for each Service with a `healthCheckNodePort`: external load balancers ask it whether this node has
//! endpoints of the Service, and send traffic to those nodes that have.
//!
//! The sync loop says after every success which checks there should be; `keeper.rs` opens and closes listeners until it is so.

mod keeper;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ferrovia_core::desired::{HealthChecks, NodePortAddresses};
use ferrovia_core::family::{Family, PerFamily};
use ferrovia_core::model::ServiceKey;
use http::Request;
use http::header::{HeaderName, HeaderValue};
use hyper::body::Incoming;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use self::keeper::Keeper;
use super::answer::{Answer, set, verdict};
use super::server::Handler;
use crate::kube_event::Noticeboard;
use crate::serve::health::{Health, Moment};

const WEIGHT: HeaderName = HeaderName::from_static("x-load-balancing-endpoint-weight");

/// The checks that one family should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedChecks {
    /// Where they listen.
    pub addresses: NodePortAddresses,
    /// The Services that have one and a cluster IP of the family.
    pub checks: Arc<HealthChecks>,
}

/// All services' health checks; they end when this is dropped.
#[derive(Debug)]
pub struct ServiceChecks {
    wanted: watch::Sender<PerFamily<Option<Arc<WantedChecks>>>>,
    task: AbortHandle,
}

impl ServiceChecks {
    /// Starts without any check.
    pub fn start(runtime: &Handle, health: Arc<Health>, notices: Noticeboard) -> Self {
        let (wanted, news) = watch::channel(PerFamily::default());
        let keeper = Keeper::new(health, notices);
        Self {
            wanted,
            task: runtime.spawn(keeper.run(news)).abort_handle(),
        }
    }

    /// Says what a family should have from now on. Does not wait; only the last word counts.
    pub fn update(&self, family: Family, wanted: WantedChecks) {
        self.wanted.send_if_modified(|all| {
            let is_news = all[family].as_deref() != Some(&wanted);
            if is_news {
                all[family] = Some(Arc::new(wanted));
            }
            is_news
        });
    }
}

impl Drop for ServiceChecks {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers for one Service, whatever the path.
#[derive(Debug)]
struct Responder {
    service: ServiceKey,
    local_endpoints: AtomicU32,
    health: Arc<Health>,
}

impl Responder {
    fn reply(&self, now: Moment) -> Answer {
        let count = self.local_endpoints.load(Ordering::Relaxed);
        // A node that is about to go still serves what it has, so only the proxy's own health counts.
        let is_healthy = self.health.is_healthy(now);
        let mut answer = verdict(
            count > 0 && is_healthy,
            body(&self.service, count, is_healthy),
        );
        set(&mut answer, WEIGHT, HeaderValue::from(count));
        answer
    }
}

impl Handler for Responder {
    async fn answer(&self, _: Request<Incoming>) -> Answer {
        self.reply(Moment::now())
    }
}

/// Laid out exactly as kube-proxy does it, as some compare texts. Names are checked API names: nothing in them needs escaping.
fn body(service: &ServiceKey, local_endpoints: u32, is_healthy: bool) -> String {
    let (namespace, name) = (service.namespace(), service.name());
    format!(
        "{{\n\t\"service\": {{\n\t\t\"namespace\": \"{namespace}\",\n\t\t\"name\": \"{name}\"\n\t}},\n\
         \t\"localEndpoints\": {local_endpoints},\n\t\"serviceProxyHealthy\": {is_healthy}\n}}"
    )
}
