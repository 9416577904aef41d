//! Counters, gauges and histograms, in families that share a name, and their text form.
//!
//! The text is Prometheus' exposition format 0.0.4. A family is a short sorted list behind a lock that is held for as long as it takes to
//! add a number, or to print the list into memory; never while anything waits for a client.

use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most sets of label values in one family. Some values come from outside, such as the host of an API server.
const MAX_SERIES: usize = 1000;

/// All series of one name.
#[derive(Debug)]
pub(super) struct Family<T, const LABELS: usize> {
    name: &'static str,
    help: &'static str,
    labels: [&'static str; LABELS],
    /// What a series begins with.
    blank: T,
    /// Sorted by label values, so that the text is always in the same order.
    series: Mutex<Vec<([Box<str>; LABELS], T)>>,
}

/// A family whatever its type.
pub(super) trait Expose: Sync {
    /// The family's name.
    fn name(&self) -> &'static str;

    /// Appends the text of the whole family; nothing if no series exists yet.
    fn expose(&self, text: &mut String);
}

/// What a series holds.
pub(super) trait Value: Clone + Send + Sync {
    /// The type's name in the text.
    const TYPE: &'static str;

    /// Appends the lines of one series.
    fn expose(&self, text: &mut String, name: &str, labels: &[(&str, &str)]);
}

impl<T: Value, const LABELS: usize> Family<T, LABELS> {
    /// A family without series. Label names in alphabetical order, as Prometheus' own library prints them.
    pub(super) fn new(
        name: &'static str,
        help: &'static str,
        labels: [&'static str; LABELS],
        blank: T,
    ) -> Self {
        Self {
            name,
            help,
            labels,
            blank,
            series: Mutex::new(Vec::new()),
        }
    }

    /// Changes the series with these label values, which begins to exist if it did not. Beyond [`MAX_SERIES`] new ones are not kept.
    pub(super) fn update(&self, values: [&str; LABELS], change: impl FnOnce(&mut T)) {
        let mut series = self.lock();
        let place = series.binary_search_by(|(known, _)| {
            known.iter().map(AsRef::as_ref).cmp(values.iter().copied())
        });
        match place {
            Ok(place) => change(&mut series[place].1),
            Err(place) if series.len() < MAX_SERIES => {
                let mut new = self.blank.clone();
                change(&mut new);
                series.insert(place, (values.map(Into::into), new));
            }
            Err(_) => {}
        }
    }

    /// Forgets every series.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<([Box<str>; LABELS], T)>> {
        // Numbers in a list are never half changed.
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Value, const LABELS: usize> Expose for Family<T, LABELS> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn expose(&self, text: &mut String) {
        let series = self.lock();
        if series.is_empty() {
            return;
        }
        write_head(text, self.name, self.help, T::TYPE);
        for (values, value) in series.iter() {
            let mut labels = [("", ""); LABELS];
            for (label, (name, value)) in labels.iter_mut().zip(self.labels.iter().zip(values)) {
                *label = (name, value);
            }
            value.expose(text, self.name, &labels);
        }
    }
}

/// A number that only grows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counter(f64);

impl Counter {
    /// Zero.
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Counts on. The text format knows no other numbers than these, and they are exact up to 2^53.
    pub(super) fn add(&mut self, n: u64) {
        self.0 += n as f64;
    }

    /// Takes over a count that somebody else keeps.
    pub(super) fn set(&mut self, total: f64) {
        self.0 = total;
    }
}

impl Value for Counter {
    const TYPE: &'static str = "counter";

    fn expose(&self, text: &mut String, name: &str, labels: &[(&str, &str)]) {
        write_sample(text, name, "", labels, self.0);
    }
}

/// A number that goes up and down.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gauge(f64);

impl Gauge {
    /// Zero.
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Replaces it.
    pub(super) fn set(&mut self, value: f64) {
        self.0 = value;
    }
}

impl Value for Gauge {
    const TYPE: &'static str = "gauge";

    fn expose(&self, text: &mut String, name: &str, labels: &[(&str, &str)]) {
        write_sample(text, name, "", labels, self.0);
    }
}

/// How many values fell where.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    bounds: &'static [f64],
    /// For each bound the values up to it and above the one before; the last counts what is above all bounds.
    counts: Box<[u64]>,
    sum: f64,
}

impl Histogram {
    /// Nothing observed. The bounds rise.
    pub(super) fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            counts: vec![0; bounds.len() + 1].into(),
            sum: 0.0,
        }
    }

    /// Takes in a value.
    pub(super) fn observe(&mut self, value: f64) {
        let place = self.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get_mut(place) {
            *count += 1;
            self.sum += value;
        }
    }
}

impl Value for Histogram {
    const TYPE: &'static str = "histogram";

    fn expose(&self, text: &mut String, name: &str, labels: &[(&str, &str)]) {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        let mut total = 0;
        for (bound, count) in bounds.zip(&self.counts) {
            total += count;
            let le = Number(bound).to_string();
            let labels: Vec<(&str, &str)> = labels.iter().copied().chain([("le", &*le)]).collect();
            write_sample(text, name, "_bucket", &labels, total);
        }
        write_sample(text, name, "_sum", labels, self.sum);
        write_sample(text, name, "_count", labels, total);
    }
}

/// Appends the two lines that open a family.
pub(super) fn write_head(text: &mut String, name: &str, help: &str, kind: &str) {
    // Writing to memory cannot fail.
    let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

/// Appends one line: a name, labels and a number.
pub(super) fn write_sample(
    text: &mut String,
    name: &str,
    suffix: &str,
    labels: &[(&str, &str)],
    value: impl Into<Sample>,
) {
    text.push_str(name);
    text.push_str(suffix);
    for (i, (label, value)) in labels.iter().enumerate() {
        text.push(if i == 0 { '{' } else { ',' });
        text.push_str(label);
        text.push_str("=\"");
        push_escaped(text, value);
        text.push('"');
    }
    if !labels.is_empty() {
        text.push('}');
    }
    let _ = match value.into() {
        Sample::Whole(n) => writeln!(text, " {n}"),
        Sample::Real(n) => writeln!(text, " {}", Number(n)),
    };
}

/// The number of a sample.
pub(super) enum Sample {
    /// A count.
    Whole(u64),
    /// Any other number.
    Real(f64),
}

impl From<u64> for Sample {
    fn from(n: u64) -> Self {
        Self::Whole(n)
    }
}

impl From<f64> for Sample {
    fn from(n: f64) -> Self {
        Self::Real(n)
    }
}

/// A number as the text format writes it.
struct Number(f64);

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_infinite() {
            f.write_str(if self.0 > 0.0 { "+Inf" } else { "-Inf" })
        } else {
            self.0.fmt(f)
        }
    }
}

fn push_escaped(text: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(family: &dyn Expose) -> String {
        let mut text = String::new();
        family.expose(&mut text);
        text
    }

    #[test]
    fn a_family_is_absent_until_first_used_and_sorted_after() {
        let family = Family::new(
            "requests_total",
            "Requests.",
            ["code", "host"],
            Counter::new(),
        );
        assert_eq!(text_of(&family), "");
        family.update(["503", "a"], |n| n.add(1));
        family.update(["200", "b"], |n| n.add(2));
        family.update(["200", "b"], |n| n.add(3));
        assert_eq!(
            text_of(&family),
            "# HELP requests_total Requests.\n# TYPE requests_total counter\n\
             requests_total{code=\"200\",host=\"b\"} 5\nrequests_total{code=\"503\",host=\"a\"} 1\n"
        );
        family.clear();
        assert_eq!(text_of(&family), "");
    }

    #[test]
    fn a_histogram_is_cumulative_and_its_bounds_are_inclusive() {
        let family = Family::new(
            "took_seconds",
            "Time.",
            [],
            Histogram::new(&[0.001, 0.25, 1.0]),
        );
        for value in [0.001, 0.0011, 0.25, 0.7, 5.0] {
            family.update([], |times| times.observe(value));
        }
        assert_eq!(
            text_of(&family),
            "# HELP took_seconds Time.\n# TYPE took_seconds histogram\n\
             took_seconds_bucket{le=\"0.001\"} 1\ntook_seconds_bucket{le=\"0.25\"} 3\n\
             took_seconds_bucket{le=\"1\"} 4\ntook_seconds_bucket{le=\"+Inf\"} 5\n\
             took_seconds_sum 5.9521\ntook_seconds_count 5\n"
        );
    }

    #[test]
    fn label_values_are_escaped() {
        let family = Family::new("up", "Up.", ["host"], Gauge::new());
        family.update(["a\"b\\c\nd"], |up| up.set(0.5));
        assert!(text_of(&family).ends_with("up{host=\"a\\\"b\\\\c\\nd\"} 0.5\n"));
    }

    #[test]
    fn the_number_of_series_is_bounded() {
        let family = Family::new("n", "N.", ["host"], Counter::new());
        for i in 0..2 * MAX_SERIES {
            family.update([&i.to_string()], |n| n.add(1));
        }
        assert_eq!(family.lock().len(), MAX_SERIES);
        family.update(["7"], |n| n.add(1));
        assert!(text_of(&family).contains("n{host=\"7\"} 2\n"));
    }
}
