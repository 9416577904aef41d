//! Service level indicators: how the health checks of the metrics server went, on a page of their own.

use super::series::{Counter, Expose, Family, Gauge};

/// What `/metrics/slis` shows besides the start of the process.
#[derive(Debug)]
pub struct Slis {
    last: Family<Gauge, 2>,
    total: Family<Counter, 3>,
}

impl Slis {
    pub(super) fn new() -> Self {
        Self {
            last: Family::new(
                "kubernetes_healthcheck",
                "Whether a health check last succeeded.",
                ["name", "type"],
                Gauge::new(),
            ),
            total: Family::new(
                "kubernetes_healthchecks_total",
                "Health checks made.",
                ["name", "status", "type"],
                Counter::new(),
            ),
        }
    }

    /// The one check there is was asked for; that it can answer is its success.
    pub fn pinged(&self) {
        self.last.update(["ping", "healthz"], |last| last.set(1.0));
        self.total
            .update(["ping", "success", "healthz"], |total| total.add(1));
    }

    /// Forgets all counts.
    pub fn reset(&self) {
        self.last.clear();
        self.total.clear();
    }

    pub(super) fn expose(&self, text: &mut String) {
        self.last.expose(text);
        self.total.expose(text);
    }
}
