//! What the proxies of this process carried, for single services and endpoints: read when somebody asks, and limited in number.

use std::collections::BTreeMap;
use std::fmt;

use ferrovia_core::family::Family;
use ferrovia_core::model::TrafficPolicy;
use ferrovia_core::plan::userspace::ProxyName;
use ferrovia_host::portals::Directory;
use ferrovia_host::userspace::{ConnectFailure, DIAL_BOUNDS, Figures};

use super::connections::protocol;
use super::series::{write_head, write_sample};

/// The names of the series about one kind of thing.
struct Names {
    connections: &'static str,
    bytes: &'static str,
    failures: &'static str,
}

const SERVICE: Names = Names {
    connections: "ferrovia_proxy_connections_total",
    bytes: "ferrovia_proxy_bytes_total",
    failures: "ferrovia_proxy_failures_total",
};
const ENDPOINT: Names = Names {
    connections: "ferrovia_proxy_endpoint_connections_total",
    bytes: "ferrovia_proxy_endpoint_bytes_total",
    failures: "ferrovia_proxy_endpoint_failures_total",
};
const OPEN: &str = "ferrovia_proxy_open_connections";
const RETRIES: &str = "ferrovia_proxy_retries_total";
const DIALS: &str = "ferrovia_proxy_dial_duration_seconds";
const SERVICE_DIALS: &str = "ferrovia_proxy_service_dial_duration_seconds";
const OMITTED: &str = "ferrovia_proxy_series_omitted";

/// All of them in the order of the page: name, type, what it tells.
const FAMILIES: [(&str, &str, &str); 11] = [
    (
        SERVICE.connections,
        "counter",
        "Connections or flows of UDP that a proxy took.",
    ),
    (OPEN, "gauge", "Connections or flows of UDP that are open."),
    (
        SERVICE.bytes,
        "counter",
        "Bytes that a proxy carried in to endpoints and out to clients.",
    ),
    (
        SERVICE.failures,
        "counter",
        "Connections and attempts to reach an endpoint that failed.",
    ),
    (
        RETRIES,
        "counter",
        "Attempts to reach another endpoint after one failed.",
    ),
    (
        ENDPOINT.connections,
        "counter",
        "Connections or flows of UDP that an endpoint got from a proxy.",
    ),
    (
        ENDPOINT.bytes,
        "counter",
        "Bytes that a proxy carried in to an endpoint and out from it.",
    ),
    (
        ENDPOINT.failures,
        "counter",
        "Attempts to reach an endpoint, and connections to it, that failed.",
    ),
    (
        DIALS,
        "histogram",
        "Time it took to reach an endpoint, of all proxies.",
    ),
    (
        SERVICE_DIALS,
        "histogram",
        "Time it took to reach an endpoint of a service.",
    ),
    (
        OMITTED,
        "gauge",
        "Series about proxies that there was no room for.",
    ),
];

/// Where the figures come from, and how many series of them there may be.
#[derive(Debug)]
pub(super) struct ProxyFigures {
    pub(super) directory: Directory,
    pub(super) limit: usize,
}

impl ProxyFigures {
    /// Writes all of it; nothing if there is no proxy. What exceeds the limit is left out: histograms of services before endpoints, and those
    /// before services.
    pub(super) fn expose(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        let services = self.directory.services();
        if services.is_empty() {
            return Ok(());
        }
        let mut page = Page::new(self.limit);
        for (name, family, service) in &services {
            page.service(&Labels::of(name, *family), &service.figures());
        }
        for (name, family, service) in &services {
            for endpoint in service.endpoint_figures() {
                let address = endpoint.address.to_string();
                let labels = Labels::of(name, *family).with("endpoint", &address);
                page.carried(&ENDPOINT, &labels, &endpoint.figures);
            }
        }
        // Last, because a dozen lines for each would crowd out what matters more.
        for (name, family, service) in &services {
            page.dials_of(&Labels::of(name, *family), &service.figures());
        }
        page.sums();
        for (name, kind, help) in FAMILIES {
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

/// Labels in the order of their names.
#[derive(Clone)]
struct Labels<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Labels<'a> {
    fn of(proxy: &'a ProxyName, family: Family) -> Self {
        let key = &proxy.key;
        let policy = match proxy.policy {
            TrafficPolicy::Cluster => "Cluster",
            TrafficPolicy::Local => "Local",
        };
        Self(vec![
            ("ip_family", family.name()),
            ("namespace", key.service.namespace()),
            ("policy", policy),
            ("port", &key.name),
            ("protocol", protocol(key.protocol)),
            ("service", key.service.name()),
        ])
    }

    fn with(mut self, label: &'a str, value: &'a str) -> Self {
        let place = self.0.partition_point(|(other, _)| *other < label);
        self.0.insert(place, (label, value));
        self
    }
}

/// The samples of each family, while there is room.
struct Page {
    left: usize,
    omitted: u64,
    texts: BTreeMap<&'static str, String>,
    /// How long dialling took, of all services together.
    dials: Dials,
}

/// How long dialling took.
#[derive(Default)]
struct Dials {
    /// One bucket for each bound, not counting those below, and one for the rest.
    buckets: [u64; DIAL_BOUNDS.len() + 1],
    micros: u64,
}

impl Dials {
    /// How many lines they take: the buckets, the sum, the count.
    const LINES: usize = DIAL_BOUNDS.len() + 3;

    fn of(figures: &Figures) -> Self {
        Self {
            buckets: figures.dials,
            micros: figures.dial_micros,
        }
    }

    fn add(&mut self, figures: &Figures) {
        for (total, dials) in self.buckets.iter_mut().zip(figures.dials) {
            *total += dials;
        }
        self.micros += figures.dial_micros;
    }

    fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    fn write(&self, text: &mut String, name: &str, labels: &Labels<'_>) {
        let bounds = DIAL_BOUNDS.iter().map(|bound| seconds(*bound).to_string());
        let mut so_far = 0;
        for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(self.buckets) {
            so_far += count;
            let labels = labels.clone().with("le", &bound);
            write_sample(text, name, "_bucket", &labels.0, so_far);
        }
        write_sample(text, name, "_sum", &labels.0, seconds(self.micros));
        write_sample(text, name, "_count", &labels.0, so_far);
    }
}

impl Page {
    fn new(limit: usize) -> Self {
        Self {
            left: limit,
            omitted: 0,
            texts: BTreeMap::new(),
            dials: Dials::default(),
        }
    }

    fn service(&mut self, labels: &Labels<'_>, figures: &Figures) {
        self.carried(&SERVICE, labels, figures);
        self.sample(OPEN, labels, figures.open);
        self.sample(RETRIES, labels, figures.retries);
        self.dials.add(figures);
    }

    /// Writes a service's histogram, whole or not at all. Most of many services have not been called; those of datagrams dial nobody.
    fn dials_of(&mut self, labels: &Labels<'_>, figures: &Figures) {
        let dials = Dials::of(figures);
        if dials.count() == 0 {
            return;
        }
        if self.left < Dials::LINES {
            self.omitted += Dials::LINES as u64;
            return;
        }
        self.left -= Dials::LINES;
        let text = self.texts.entry(SERVICE_DIALS).or_default();
        dials.write(text, SERVICE_DIALS, labels);
    }

    fn carried(&mut self, names: &Names, labels: &Labels<'_>, figures: &Figures) {
        self.sample(names.connections, labels, figures.connections);
        for (direction, bytes) in [("in", figures.bytes_in), ("out", figures.bytes_out)] {
            let labels = labels.clone().with("direction", direction);
            self.sample(names.bytes, &labels, bytes);
        }
        // Most kinds never happen.
        for kind in ConnectFailure::ALL
            .into_iter()
            .filter(|kind| figures.failures(*kind) > 0)
        {
            let labels = labels.clone().with("kind", kind.name());
            self.sample(names.failures, &labels, figures.failures(kind));
        }
    }

    fn sample(&mut self, name: &'static str, labels: &Labels<'_>, value: u64) {
        if self.left == 0 {
            self.omitted += 1;
            return;
        }
        self.left -= 1;
        let text = self.texts.entry(name).or_default();
        write_sample(text, name, "", &labels.0, value);
    }

    fn sums(&mut self) {
        let text = self.texts.entry(DIALS).or_default();
        self.dials.write(text, DIALS, &Labels(Vec::new()));
        let text = self.texts.entry(OMITTED).or_default();
        write_sample(text, OMITTED, "", &[], self.omitted);
    }
}

fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(dials: [u64; DIAL_BOUNDS.len() + 1]) -> Figures {
        Figures {
            dials,
            dial_micros: 1_500_000,
            ..Figures::default()
        }
    }

    #[test]
    fn the_time_to_reach_endpoints_is_told_for_each_service() {
        let mut page = Page::new(100);
        let labels = Labels(vec![("namespace", "demo"), ("service", "web")]);
        page.dials_of(&labels, &figures([3, 0, 0, 0, 0, 0, 0, 0, 0, 1]));
        let text = &page.texts[SERVICE_DIALS];
        for line in [
            r#"_bucket{le="0.0001",namespace="demo",service="web"} 3"#,
            r#"_bucket{le="2",namespace="demo",service="web"} 3"#,
            r#"_bucket{le="+Inf",namespace="demo",service="web"} 4"#,
            r#"_sum{namespace="demo",service="web"} 1.5"#,
            r#"_count{namespace="demo",service="web"} 4"#,
        ] {
            let line = format!("{SERVICE_DIALS}{line}\n");
            assert!(text.contains(&line), "no {line} in\n{text}");
        }
        assert_eq!(text.lines().count(), Dials::LINES);
        assert_eq!(page.left, 100 - Dials::LINES);
    }

    #[test]
    fn a_histogram_without_room_is_left_out_whole() {
        let mut page = Page::new(Dials::LINES + 3);
        let labels = Labels(vec![("service", "web")]);
        page.dials_of(&labels, &figures([0; DIAL_BOUNDS.len() + 1]));
        assert!(page.texts.is_empty(), "nobody was called");
        for _ in 0..2 {
            page.dials_of(&labels, &figures([1; DIAL_BOUNDS.len() + 1]));
        }
        let text = &page.texts[SERVICE_DIALS];
        assert_eq!(text.lines().count(), Dials::LINES);
        assert_eq!(page.omitted, Dials::LINES as u64);
        assert_eq!(page.left, 3);
    }
}
