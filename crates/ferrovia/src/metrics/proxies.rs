//! What the proxies of this process carried, for single services and endpoints: read when somebody asks, and limited in number.

use std::collections::BTreeMap;
use std::fmt;

use ferrovia_core::family::Family;
use ferrovia_core::model::TrafficPolicy;
use ferrovia_core::plan::userspace::ProxyName;
use ferrovia_host::portals::Directory;
use ferrovia_host::userspace::{DIAL_BOUNDS, Failure, Figures};

use super::connections::protocol;
use super::series::{write_head, write_sample};

/// The families of series, in the order of the page: name, what it tells, kind.
const FAMILIES: [(&str, &str, &str); 6] = [
    (
        CONNECTIONS,
        "Connections, or flows of UDP, that a proxy carried.",
        "counter",
    ),
    (
        OPEN,
        "Connections, or flows of UDP, that are open.",
        "gauge",
    ),
    (
        BYTES,
        "Bytes that a proxy carried, to the endpoint (in) and to the client (out).",
        "counter",
    ),
    (
        FAILURES,
        "Connections and attempts to reach an endpoint that failed, by kind.",
        "counter",
    ),
    (
        RETRIES,
        "Attempts to reach another endpoint after one had failed.",
        "counter",
    ),
    (
        DIALS,
        "Time it took to reach an endpoint, of all service ports.",
        "histogram",
    ),
];
const CONNECTIONS: &str = "ferrovia_proxy_connections_total";
const OPEN: &str = "ferrovia_proxy_open_connections";
const BYTES: &str = "ferrovia_proxy_bytes_total";
const FAILURES: &str = "ferrovia_proxy_failures_total";
const RETRIES: &str = "ferrovia_proxy_retries_total";
const DIALS: &str = "ferrovia_proxy_dial_duration_seconds";

/// Where the figures come from, and how many series of them there may be.
#[derive(Debug)]
pub(super) struct ProxyFigures {
    pub(super) directory: Directory,
    pub(super) limit: usize,
}

impl ProxyFigures {
    /// Writes all of it. What exceeds the limit is left out, services before endpoints.
    pub(super) fn expose(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        let mut page = Page {
            left: self.limit,
            texts: BTreeMap::new(),
        };
        let services = self.directory.services();
        let mut all_dials = ([0; DIAL_BOUNDS.len() + 1], 0);
        for (name, family, service) in &services {
            let figures = service.figures();
            for (total, dials) in all_dials.0.iter_mut().zip(figures.dials) {
                *total += dials;
            }
            all_dials.1 += figures.dial_micros;
            page.figures(name, *family, None, &figures);
        }
        for (name, family, service) in &services {
            for endpoint in service.endpoint_figures() {
                let address = endpoint.address.to_string();
                page.figures(name, *family, Some(&address), &endpoint.figures);
            }
        }
        if !services.is_empty() {
            page.dials(&all_dials.0, all_dials.1);
        }
        for (name, help, kind) in FAMILIES {
            if let Some(samples) = page.texts.get(name) {
                let mut head = String::new();
                write_head(&mut head, name, help, kind);
                out.write_str(&head)?;
                out.write_str(samples)?;
            }
        }
        Ok(())
    }
}

/// The samples of each family, while there is room.
struct Page {
    left: usize,
    texts: BTreeMap<&'static str, String>,
}

impl Page {
    fn figures(
        &mut self,
        proxy: &ProxyName,
        family: Family,
        endpoint: Option<&str>,
        figures: &Figures,
    ) {
        let key = &proxy.key;
        let policy = match proxy.policy {
            TrafficPolicy::Cluster => "Cluster",
            TrafficPolicy::Local => "Local",
        };
        let mut labels = vec![
            ("ip_family", super::label(family)),
            ("namespace", key.service.namespace()),
            ("policy", policy),
            ("port", &key.name),
            ("protocol", protocol(key.protocol)),
            ("service", key.service.name()),
        ];
        labels.extend(endpoint.map(|endpoint| ("endpoint", endpoint)));
        self.sample(CONNECTIONS, &labels, None, figures.connections);
        self.sample(OPEN, &labels, None, figures.open);
        self.sample(BYTES, &labels, Some(("direction", "in")), figures.bytes_in);
        self.sample(
            BYTES,
            &labels,
            Some(("direction", "out")),
            figures.bytes_out,
        );
        // Most kinds never happen.
        for kind in Failure::ALL {
            let failures = figures.failures(kind);
            if failures > 0 {
                self.sample(FAILURES, &labels, Some(("kind", kind.name())), failures);
            }
        }
        if figures.retries > 0 {
            self.sample(RETRIES, &labels, None, figures.retries);
        }
    }

    fn sample(
        &mut self,
        name: &'static str,
        labels: &[(&str, &str)],
        more: Option<(&str, &str)>,
        value: u64,
    ) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        let mut labels: Vec<_> = labels.iter().copied().chain(more).collect();
        labels.sort_unstable();
        let text = self.texts.entry(name).or_default();
        write_sample(text, name, "", &labels, value);
    }

    /// One histogram for all: a dozen lines for each service would crowd out what matters.
    fn dials(&mut self, buckets: &[u64], micros: u64) {
        let text = self.texts.entry(DIALS).or_default();
        let mut so_far = 0;
        let bounds = DIAL_BOUNDS.iter().map(|bound| seconds(*bound).to_string());
        for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(buckets) {
            so_far += count;
            write_sample(text, DIALS, "_bucket", &[("le", &bound)], so_far);
        }
        write_sample(text, DIALS, "_sum", &[], seconds(micros));
        write_sample(text, DIALS, "_count", &[], so_far);
    }
}

fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}
