//! A strict reader of Prometheus' text format.

use std::collections::{BTreeMap, BTreeSet};

/// A metric with all its samples.
#[derive(Debug, Default)]
pub(crate) struct Metric {
    pub(crate) kind: String,
    pub(crate) samples: Vec<Sample>,
}

#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) value: f64,
}

impl Metric {
    /// The names of labels, without that of buckets; all samples have the same.
    pub(crate) fn labels(&self) -> Vec<&str> {
        let names = |sample: &'_ Sample| -> Vec<String> {
            let names = sample.labels.iter().map(|(name, _)| name.clone());
            names.filter(|name| name != "le").collect()
        };
        let first = names(&self.samples[0]);
        for sample in &self.samples {
            assert_eq!(names(sample), first, "{}", sample.name);
        }
        let labels = self.samples[0].labels.iter().map(|(name, _)| &**name);
        labels.filter(|name| *name != "le").collect()
    }

    /// The bounds of the first series' buckets as they are written, without the last.
    pub(crate) fn buckets(&self) -> Vec<&str> {
        let bounds = self
            .samples
            .iter()
            .filter_map(|sample| sample.labels.iter().find(|(name, _)| name == "le"));
        let bounds = bounds.map(|(_, bound)| &**bound);
        bounds.take_while(|bound| *bound != "+Inf").collect()
    }
}

/// Reads a page; panics with the line that is wrong.
pub(crate) fn parse(text: &str) -> BTreeMap<String, Metric> {
    assert!(text.is_empty() || text.ends_with('\n'));
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut helped = None;
    let mut current = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect(line);
            assert!(help.ends_with('.'), "not a sentence: {line}");
            helped = Some(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect(line);
            assert_eq!(helped.take().as_deref(), Some(name), "{line}");
            current = name.to_owned();
            let metric = Metric {
                kind: kind.to_owned(),
                samples: Vec::new(),
            };
            assert!(
                metrics.insert(current.clone(), metric).is_none(),
                "a second group: {line}"
            );
        } else {
            let sample = sample(line).unwrap_or_else(|| panic!("not a sample: {line}"));
            let metric = metrics.get_mut(&current).expect(line);
            let suffix = sample.name.strip_prefix(&*current).expect(line);
            let allowed: &[&str] = match &*metric.kind {
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            assert!(allowed.contains(&suffix), "{line}");
            let identity = line.rsplit_once(' ').expect(line).0.to_owned();
            assert!(seen.insert(identity), "twice: {line}");
            metric.samples.push(sample);
        }
    }
    metrics
}

fn sample(line: &str) -> Option<Sample> {
    let (identity, value) = line.rsplit_once(' ')?;
    let value = match value {
        "+Inf" => f64::INFINITY,
        number => number.parse().ok()?,
    };
    let Some((name, labels)) = identity.split_once('{') else {
        return Some(Sample {
            name: identity.to_owned(),
            labels: Vec::new(),
            value,
        });
    };
    Some(Sample {
        name: name.to_owned(),
        labels: read_labels(labels.strip_suffix('}')?)?,
        value,
    })
}

fn read_labels(mut rest: &str) -> Option<Vec<(String, String)>> {
    let mut labels = Vec::new();
    while !rest.is_empty() {
        let (name, more) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut chars = more.char_indices();
        let end = loop {
            match chars.next()? {
                (end, '"') => break end,
                (_, '\\') => value.push(match chars.next()?.1 {
                    'n' => '\n',
                    c @ ('\\' | '"') => c,
                    _ => return None,
                }),
                (_, c) => value.push(c),
            }
        };
        labels.push((name.to_owned(), value));
        rest = &more[end + 1..];
        rest = match rest.strip_prefix(',') {
            Some(more) if !more.is_empty() => more,
            None if rest.is_empty() => rest,
            _ => return None,
        };
    }
    Some(labels)
}
