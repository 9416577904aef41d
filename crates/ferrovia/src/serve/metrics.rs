//! What is measured, as methods that say what happened. Names of series exist only in this folder.
//!
//! Every method takes as long as adding a number; the sync thread and the HTTP servers share one [`Metrics`]. `catalogue.rs` lists all
//! series, `series.rs` holds and prints them, `expose.rs` makes the page, `connections.rs` has those of single services, which are read
//! from the kernel only when asked for, `proxies.rs` those of what this process carries itself.

mod catalogue;
mod connections;
mod expose;
mod process;
mod proxies;
mod series;
mod slis;

use std::fmt;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use ferrovia_core::family::Family;
use ferrovia_host::portals::Directory;
use jiff::Timestamp;

use self::catalogue::Catalogue;
use self::proxies::ProxyFigures;
use crate::mode::DynamicSetReport;
use crate::sync::{Outcome, SyncKind};

pub use connections::{Connections, DEFAULT_MAX_SERIES, ReadConnections, Refused};
pub use slis::Slis;

/// Everything that is measured.
pub struct Metrics {
    all: Catalogue,
    slis: Slis,
    failures: FailureMetrics,
    started: Option<f64>,
    /// The same by the clock that nobody sets.
    since: Instant,
    connections: OnceLock<Mutex<Reader>>,
    of_mode: OnceLock<Mutex<ReadMode>>,
    proxies: OnceLock<ProxyFigures>,
}

/// Looks up what only the mode knows, and tells the metrics.
pub type ReadMode = Box<dyn FnMut(&Metrics) + Send>;

/// The series of kube-proxy that count a mode's failures, by what failed. Each of its modes has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureMetrics {
    /// A full sync.
    pub full: &'static [FailureSeries],
    /// An incremental sync.
    pub incremental: &'static [FailureSeries],
    /// A removal of leftovers.
    pub cleanup: &'static [FailureSeries],
}

/// A series that counts failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureSeries {
    /// `kubeproxy_sync_proxy_rules_nftables_sync_failures_total`
    NftablesSync,
    /// `kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total`
    NftablesCleanup,
    /// `kubeproxy_sync_proxy_rules_iptables_restore_failures_total`
    IptablesRestore,
    /// `kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total`
    IptablesPartialRestore,
}

/// Which traffic a policy is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// To cluster IPs.
    Internal,
    /// To node ports, external IPs and load balancers.
    External,
}

/// A feature gate as it is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature<'a> {
    /// Its name.
    pub name: &'a str,
    /// `ALPHA`, `BETA`, `DEPRECATED`; empty once it is generally available.
    pub stage: &'a str,
    /// Whether it is on.
    pub is_enabled: bool,
}

struct Reader {
    read: ReadConnections,
    limit: usize,
}

impl Metrics {
    /// Nothing measured yet. `mode` is what people call the way the kernel is programmed.
    pub fn new(mode: &str, failures: FailureMetrics) -> Self {
        let metrics = Self {
            all: Catalogue::new(),
            slis: Slis::new(),
            failures,
            started: process::started(),
            since: Instant::now(),
            connections: OnceLock::new(),
            of_mode: OnceLock::new(),
            proxies: OnceLock::new(),
        };
        metrics.describe_build(mode);
        // Without labels a series exists from the beginning.
        metrics.all.service_changes.update([], |_| {});
        metrics.all.services_pending.update([], |_| {});
        metrics.all.endpoint_changes.update([], |_| {});
        metrics.all.endpoints_pending.update([], |_| {});
        metrics
    }

    /// Where the counts of single services come from, and how many series of them there may be. Only the first call counts.
    pub fn count_connections(&self, read: ReadConnections, limit: usize) {
        let _ = self.connections.set(Mutex::new(Reader { read, limit }));
    }

    /// What is looked up in the mode at every scrape. Only the first call counts.
    pub fn read_mode(&self, read: ReadMode) {
        let _ = self.of_mode.set(Mutex::new(read));
    }

    /// The proxies of this process, and how many series of them there may be. Only the first call counts.
    pub fn count_proxies(&self, directory: Directory, limit: usize) {
        let _ = self.proxies.set(ProxyFigures { directory, limit });
    }

    /// The feature gates.
    pub fn features<'a>(&self, features: impl IntoIterator<Item = Feature<'a>>) {
        for feature in features {
            self.all
                .features
                .update([feature.name, feature.stage], |enabled| {
                    enabled.set(if feature.is_enabled { 1.0 } else { 0.0 });
                });
        }
    }

    /// A sync was asked for; also called when the loop starts.
    pub fn queued(&self, family: Family, at: Timestamp) {
        let at = seconds_since_1970(at);
        self.all
            .last_queued
            .update([family.name()], |last| last.set(at));
    }

    /// A sync, or a removal of leftovers, ended.
    pub fn synced(&self, outcome: &Outcome, at: Timestamp) {
        let family = [outcome.family.name()];
        let duration = |times: &mut series::Histogram| times.observe(outcome.took.as_secs_f64());
        match outcome.kind {
            SyncKind::Full => self.all.sync_full.update(family, duration),
            SyncKind::Partial => self.all.sync_partial.update(family, duration),
            SyncKind::Tidy => {}
        }
        if outcome.kind != SyncKind::Tidy {
            self.all.sync.update(family, duration);
        }
        match &outcome.result {
            Ok(written) => {
                if outcome.kind != SyncKind::Tidy {
                    let at = seconds_since_1970(at);
                    self.all.last_synced.update(family, |last| last.set(at));
                }
                let phases = [
                    ("observe", written.observe),
                    ("plan", written.plan),
                    ("apply", written.apply),
                ];
                // A partial sync reads nothing back.
                for (phase, took) in phases.into_iter().filter(|(_, took)| !took.is_zero()) {
                    self.all.phase.update([family[0], phase], |times| {
                        times.observe(took.as_secs_f64());
                    });
                }
            }
            Err(_) => self.failed(outcome.family, outcome.kind),
        }
        if outcome.repaired {
            self.all.repaired.update(family, |n| n.add(1));
        }
    }

    fn failed(&self, family: Family, kind: SyncKind) {
        let count = |n: &mut series::Counter| n.add(1);
        let family = [family.name()];
        self.all.kernel_errors.update(family, count);
        let series = match kind {
            SyncKind::Full => self.failures.full,
            SyncKind::Partial => self.failures.incremental,
            SyncKind::Tidy => self.failures.cleanup,
        };
        for series in series {
            let series = match series {
                FailureSeries::NftablesSync => &self.all.nftables_sync_failures,
                FailureSeries::NftablesCleanup => &self.all.nftables_cleanup_failures,
                FailureSeries::IptablesRestore => &self.all.iptables_restore_failures,
                FailureSeries::IptablesPartialRestore => {
                    &self.all.iptables_partial_restore_failures
                }
            };
            series.update(family, count);
        }
    }

    /// So long after it happened, an endpoint's change is in the kernel.
    pub fn programmed(&self, family: Family, latency: Duration) {
        self.all.programming.update([family.name()], |times| {
            times.observe(latency.as_secs_f64());
        });
    }

    /// How many service ports have endpoints, but none that a policy Local allows here.
    pub fn no_local_endpoints(&self, family: Family, traffic: Traffic, ports: usize) {
        let traffic = match traffic {
            Traffic::Internal => "internal",
            Traffic::External => "external",
        };
        self.all
            .no_local_endpoints
            .update([family.name(), traffic], |n| n.set(ports as f64));
    }

    /// So many events of Services and of `EndpointSlices` arrived.
    pub fn changes(&self, services: u64, slices: u64) {
        self.all.service_changes.update([], |n| n.add(services));
        self.all.endpoint_changes.update([], |n| n.add(slices));
    }

    /// So many Services and so many slices have changes that wait for a sync.
    pub fn pending(&self, services: u64, slices: u64) {
        self.all
            .services_pending
            .update([], |n| n.set(services as f64));
        self.all
            .endpoints_pending
            .update([], |n| n.set(slices as f64));
    }

    /// Stale flows were looked for, and these were removed, by reason.
    pub fn conntrack_cleaned(
        &self,
        family: Family,
        took: Duration,
        removed: impl IntoIterator<Item = (&'static str, u64)>,
    ) {
        let family = family.name();
        self.all
            .conntrack
            .update([family], |times| times.observe(took.as_secs_f64()));
        for (reason, removed) in removed {
            self.all
                .conntrack_deleted
                .update([family], |n| n.add(removed));
            self.all
                .conntrack_removed
                .update([family, reason], |n| n.add(removed));
        }
    }

    /// A set that packets fill was full, or entries were removed from it.
    pub fn swept(&self, report: DynamicSetReport) {
        match report {
            DynamicSetReport::Overflowed {
                family,
                set,
                packets,
            } => {
                let labels = [family.name(), set];
                self.all.set_overflows.update(labels, |n| n.add(packets));
            }
            DynamicSetReport::Swept {
                family,
                set,
                service_gone,
                no_room,
            } => {
                for (reason, removed) in [("service_gone", service_gone), ("no_room", no_room)] {
                    let labels = [family.name(), reason, set];
                    self.all
                        .set_removed
                        .update(labels, |n| n.add(removed as u64));
                }
            }
        }
    }

    /// The API server answered a request, or did not: then there is no code.
    pub fn api_request(&self, verb: &str, host: &str, code: Option<u16>, took: Duration) {
        let code = code.map_or_else(|| "<error>".to_owned(), |code| code.to_string());
        self.all
            .api_requests
            .update([&code, host, verb], |n| n.add(1));
        self.all
            .api_duration
            .update([host, verb], |times| times.observe(took.as_secs_f64()));
    }

    /// A request was held back for so long.
    pub fn api_held_back(&self, verb: &str, host: &str, held: Duration) {
        self.all
            .api_rate_limited
            .update([host, verb], |times| times.observe(held.as_secs_f64()));
    }

    /// A watch ended and was taken up again.
    pub fn watch_restarted(&self, resource: &str) {
        self.all.watch_restarts.update([resource], |n| n.add(1));
    }

    /// All objects of a kind were listed again.
    pub fn relisted(&self, resource: &str) {
        self.all.relists.update([resource], |n| n.add(1));
    }

    /// How old the source's objects are.
    pub fn data_age(&self, age: Duration) {
        self.all
            .data_age
            .update([], |gauge| gauge.set(age.as_secs_f64()));
    }

    /// iptables rules of a table: in force, and written by the last sync.
    pub fn iptables_rules(&self, family: Family, table: &str, in_force: usize, written: usize) {
        let labels = [family.name(), table];
        self.all
            .iptables_rules
            .update(labels, |n| n.set(in_force as f64));
        self.all
            .iptables_rules_written
            .update(labels, |n| n.set(written as f64));
    }

    /// The lock of the legacy iptables tools, since the start: how often it was taken, for how long in all, and how long it was waited for.
    pub fn iptables_lock(&self, family: Family, taken: u64, held: Duration, waited: Duration) {
        let family = [family.name()];
        self.all.lock_taken.update(family, |n| n.set(taken as f64));
        self.all
            .lock_held
            .update(family, |time| time.set(held.as_secs_f64()));
        self.all
            .lock_waited
            .update(family, |time| time.set(waited.as_secs_f64()));
    }

    /// What the kernel's own counters of the iptables mode say; a counter that does not exist stays unknown.
    pub fn iptables_packets(&self, invalid_dropped: Option<u64>, localhost: Option<u64>) {
        if let Some(packets) = invalid_dropped {
            self.all
                .iptables_invalid_dropped
                .update([], |n| n.set(packets as f64));
        }
        if let Some(packets) = localhost {
            self.all
                .iptables_localhost_accepted
                .update([], |n| n.set(packets as f64));
        }
    }

    /// `/healthz` was answered.
    pub fn healthz(&self, is_ok: bool) {
        self.all.healthz.update([code(is_ok)], |n| n.add(1));
    }

    /// `/livez` was answered.
    pub fn livez(&self, is_ok: bool) {
        self.all.livez.update([code(is_ok)], |n| n.add(1));
    }

    /// The health checks of the metrics server.
    pub fn slis(&self) -> &Slis {
        &self.slis
    }

    /// When this process started, in seconds since 1970.
    pub fn started(&self) -> Option<f64> {
        self.started
    }

    /// How long this process runs, about. Not what the times of day differ by: somebody may have set the clock.
    pub fn up(&self) -> Duration {
        self.since.elapsed()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

fn code(is_ok: bool) -> &'static str {
    if is_ok { "200" } else { "503" }
}

fn seconds_since_1970(at: Timestamp) -> f64 {
    at.as_microsecond() as f64 / 1e6
}
