//! Opens and closes the listeners of health checks, and tries again where one cannot be opened.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrovia_core::desired::{HealthCheck, NodePortAddresses};
use ferrovia_core::family::{Family, PerFamily};
use ferrovia_core::model::ServiceKey;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::sleep;

use super::{Responder, WantedChecks};
use crate::kube_event::{Notice, Noticeboard, Regarding, Severity};
use crate::serve::health::Health;
use crate::serve::http::listen::listen_one_family;
use crate::serve::http::pool::Pool;
use crate::serve::http::server::serve;

/// How long until a port that was taken is tried again, if nothing changes before.
const RETRY: Duration = Duration::from_secs(5);
/// Connections of all checks together. Each is over in a moment.
const CONNECTIONS: usize = 1024;
/// After so many services others get their turn: with thousands of them, the health server must not wait for all.
const BATCH: usize = 64;

/// What is open, for both families.
pub(super) struct Keeper {
    health: Arc<Health>,
    notices: Noticeboard,
    pool: Arc<Pool>,
    open: PerFamily<BTreeMap<ServiceKey, Open>>,
}

/// One Service's check in one family.
struct Open {
    port: u16,
    responder: Arc<Responder>,
    listeners: BTreeMap<IpAddr, Listener>,
    /// An address could not be had, which has been told.
    is_failing: bool,
}

/// A listener at work; it ends when this is dropped.
struct Listener(JoinHandle<()>);

impl Keeper {
    pub(super) fn new(health: Arc<Health>, notices: Noticeboard) -> Self {
        Self {
            health,
            notices,
            pool: Arc::new(Pool::new(CONNECTIONS)),
            open: PerFamily::default(),
        }
    }

    /// Follows what is wanted until nobody can want anything any more.
    pub(super) async fn run(
        mut self,
        mut news: watch::Receiver<PerFamily<Option<Arc<WantedChecks>>>>,
    ) {
        loop {
            let wanted = news.borrow_and_update().clone();
            let mut is_failing = false;
            for family in Family::ALL {
                if let Some(wanted) = &wanted[family] {
                    is_failing |= self.settle(family, wanted).await;
                }
            }
            tokio::select! {
                changed = news.changed() => if changed.is_err() { return },
                () = sleep(RETRY), if is_failing => {}
            }
        }
    }

    /// Makes a family's listeners what they should be. True if some cannot be opened.
    async fn settle(&mut self, family: Family, wanted: &WantedChecks) -> bool {
        let addresses = addresses(family, &wanted.addresses);
        // All are closed before any is opened: a port may have passed from one Service to another.
        self.close(family, wanted, &addresses).await;
        let mut is_failing = false;
        for (i, (service, check)) in wanted.checks.iter().enumerate() {
            is_failing |= self.open(family, service, *check, &addresses);
            if i % BATCH == BATCH - 1 {
                yield_now().await;
            }
        }
        is_failing
    }

    async fn close(&mut self, family: Family, wanted: &WantedChecks, addresses: &BTreeSet<IpAddr>) {
        let mut unwanted = Vec::new();
        self.open[family].retain(|service, open| {
            let check = wanted.checks.get(service);
            let is_kept = check.is_some_and(|check| check.port == open.port);
            if !is_kept || open.listeners.keys().any(|ip| !addresses.contains(ip)) {
                let (kept, gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
                    std::mem::take(&mut open.listeners)
                        .into_iter()
                        .partition(|(ip, _)| is_kept && addresses.contains(ip));
                open.listeners = kept;
                unwanted.extend(gone.into_values());
            }
            is_kept
        });
        for listener in unwanted {
            listener.close().await;
        }
    }

    /// Opens what is missing of one check and sets its count. True if some of it cannot be opened.
    fn open(
        &mut self,
        family: Family,
        service: &ServiceKey,
        check: HealthCheck,
        addresses: &BTreeSet<IpAddr>,
    ) -> bool {
        let health = &self.health;
        let open = self.open[family]
            .entry(service.clone())
            .or_insert_with(|| Open::new(service, check.port, health));
        let count = &open.responder.local_endpoints;
        count.store(check.local_endpoints, Ordering::Relaxed);
        let mut failure = None;
        for ip in addresses {
            if open.listeners.contains_key(ip) {
                continue;
            }
            let address = SocketAddr::new(*ip, check.port);
            match listen(address, &open.responder, &self.pool) {
                Ok(listener) => drop(open.listeners.insert(*ip, listener)),
                Err(error) => failure = Some((address, error)),
            }
        }
        let was_failing = std::mem::replace(&mut open.is_failing, failure.is_some());
        if let Some((address, error)) = &failure
            && !was_failing
        {
            self.tell(service, *address, error);
        }
        failure.is_some()
    }

    fn tell(&self, service: &ServiceKey, address: SocketAddr, error: &io::Error) {
        tracing::error!(%service, %address, %error, "cannot listen for the service's health check; load balancers take this node to have no endpoints of it; trying again");
        (self.notices)(Notice {
            regarding: Regarding::Service(service.clone()),
            severity: Severity::Warning,
            reason: "FailedToStartServiceHealthcheck",
            action: "Listen",
            note: format!("cannot listen on {address} for the health check of {service}: {error}"),
        });
    }
}

impl Open {
    fn new(service: &ServiceKey, port: u16, health: &Arc<Health>) -> Self {
        Self {
            port,
            responder: Arc::new(Responder {
                service: service.clone(),
                local_endpoints: AtomicU32::new(0),
                health: Arc::clone(health),
            }),
            listeners: BTreeMap::new(),
            is_failing: false,
        }
    }
}

impl Listener {
    /// Ends it; the port is free afterwards.
    async fn close(mut self) {
        self.0.abort();
        let _ = (&mut self.0).await;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn listen(
    address: SocketAddr,
    responder: &Arc<Responder>,
    pool: &Arc<Pool>,
) -> io::Result<Listener> {
    let listener = TcpListener::from_std(listen_one_family(address)?)?;
    let task = serve(listener, Arc::clone(responder), Arc::clone(pool));
    Ok(Listener(tokio::spawn(task)))
}

/// Where checks listen. An address of the other family has no business here.
fn addresses(family: Family, addresses: &NodePortAddresses) -> BTreeSet<IpAddr> {
    match (addresses, family) {
        (NodePortAddresses::Any, Family::V4) => BTreeSet::from([Ipv4Addr::UNSPECIFIED.into()]),
        (NodePortAddresses::Any, Family::V6) => BTreeSet::from([Ipv6Addr::UNSPECIFIED.into()]),
        (NodePortAddresses::Only(these), _) => these
            .iter()
            .copied()
            .filter(|ip| Family::of(*ip) == family)
            .collect(),
    }
}
