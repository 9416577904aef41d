//! Label and field selectors of a query.

use std::collections::BTreeMap;

use super::kind::Kind;

/// The objects that a request selects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<Requirement>,
}

/// One requirement of a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    /// The key exists with one of these values.
    In(Vec<String>),
    /// The key has none of these values, or does not exist.
    NotIn(Vec<String>),
}

impl Selector {
    /// Parses both selectors of a request; the error is that of real servers.
    pub(super) fn parse(kind: Kind, labels: &str, fields: &str) -> Result<Self, String> {
        Ok(Self {
            labels: label_terms(labels)?,
            fields: field_terms(kind, fields)?,
        })
    }

    /// Whether every object matches.
    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether an object with these labels and selectable fields matches.
    pub(super) fn matches<'a>(
        &self,
        labels: &BTreeMap<String, String>,
        field: impl Fn(&str) -> Option<&'a str>,
    ) -> bool {
        self.labels
            .iter()
            .all(|term| term.test.holds(labels.get(&term.key).map(String::as_str)))
            && self
                .fields
                .iter()
                .all(|term| term.test.holds(Some(field(&term.key).unwrap_or_default())))
    }
}

impl Test {
    fn holds(&self, value: Option<&str>) -> bool {
        match self {
            Self::Exists => value.is_some(),
            Self::Absent => value.is_none(),
            Self::In(values) => value.is_some_and(|value| values.iter().any(|v| v == value)),
            Self::NotIn(values) => !value.is_some_and(|value| values.iter().any(|v| v == value)),
        }
    }
}

fn label_terms(text: &str) -> Result<Vec<Requirement>, String> {
    terms(text)
        .into_iter()
        .map(|term| {
            label_term(term)
                .ok_or_else(|| format!("unable to parse requirement: invalid term {term:?}"))
        })
        .collect()
}

fn label_term(term: &str) -> Option<Requirement> {
    if let Some(key) = term.strip_prefix('!') {
        return requirement(key, Test::Absent);
    }
    if let Some(listed) = term.strip_suffix(')') {
        let (head, values) = listed.split_once('(')?;
        let (key, operator) = head.trim().split_once(char::is_whitespace)?;
        let values = values.split(',').map(|v| v.trim().to_owned()).collect();
        return match operator.trim() {
            "in" => requirement(key, Test::In(values)),
            "notin" => requirement(key, Test::NotIn(values)),
            _ => None,
        };
    }
    match comparison(term) {
        Some((key, test)) => requirement(key, test),
        None => requirement(term, Test::Exists),
    }
}

fn field_terms(kind: Kind, text: &str) -> Result<Vec<Requirement>, String> {
    terms(text)
        .into_iter()
        .map(|term| {
            let (key, test) = comparison(term)
                .ok_or_else(|| format!("invalid selector: {text:?}; can't understand {term:?}"))?;
            let known = ["metadata.name", "metadata.namespace"];
            let ours = kind.selectable().iter().map(|(name, _)| *name);
            if !known.into_iter().chain(ours).any(|name| name == key) {
                return Err(format!("field label not supported: {key}"));
            }
            requirement(key, test).ok_or_else(|| format!("invalid selector: {text:?}"))
        })
        .collect()
}

/// `a=b`, `a==b` or `a!=b`.
fn comparison(term: &str) -> Option<(&str, Test)> {
    if let Some((key, value)) = term.split_once("!=") {
        return Some((key.trim(), Test::NotIn(vec![value.trim().to_owned()])));
    }
    let (key, value) = term.split_once('=')?;
    let value = value.strip_prefix('=').unwrap_or(value);
    Some((key.trim(), Test::In(vec![value.trim().to_owned()])))
}

fn requirement(key: &str, test: Test) -> Option<Requirement> {
    let key = key.trim();
    let allowed = |c: char| c.is_ascii_alphanumeric() || "./-_".contains(c);
    (!key.is_empty() && key.chars().all(allowed)).then(|| Requirement {
        key: key.to_owned(),
        test,
    })
}

/// Splits at the commas that are not inside brackets.
fn terms(text: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    text.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(str::trim)
    .filter(|term| !term.is_empty())
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(labels: &str, fields: &str, object: &[(&str, &str)]) -> bool {
        let selector = Selector::parse(Kind::Service, labels, fields).unwrap();
        let map = object
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        selector.matches(&map, |field| match field {
            "spec.clusterIP" => Some("10.0.0.1"),
            "metadata.name" => Some("web"),
            _ => None,
        })
    }

    #[test]
    fn labels_select_by_presence_and_value() {
        let web = [("app", "web"), ("empty", "")];
        for (selector, expected) in [
            ("", true),
            ("app", true),
            ("!app", false),
            ("!other", true),
            ("!empty", false),
            ("app=web", true),
            ("app==web", true),
            ("app=db", false),
            ("app!=db", true),
            ("other!=db", true),
            ("app in (db, web)", true),
            ("app in (db)", false),
            ("app notin (db,web)", false),
            ("other notin (db)", true),
            ("app=web,!other", true),
            ("app=web,other", false),
            ("!service.kubernetes.io/headless", true),
        ] {
            assert_eq!(matches(selector, "", &web), expected, "{selector}");
        }
    }

    #[test]
    fn fields_select_by_value() {
        for (selector, expected) in [
            ("metadata.name=web", true),
            ("metadata.name=db", false),
            ("spec.clusterIP!=None", true),
            ("spec.clusterIP=None", false),
            ("spec.clusterIP!=None,metadata.name!=web", false),
            ("spec.type=", true),
        ] {
            assert_eq!(matches("", selector, &[]), expected, "{selector}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(Selector::parse(Kind::Service, "a b", "").is_err());
        assert!(Selector::parse(Kind::Service, "!", "").is_err());
        assert!(Selector::parse(Kind::Service, "a within (b)", "").is_err());
        assert!(Selector::parse(Kind::Service, "", "metadata.name").is_err());
        let unknown = Selector::parse(Kind::Node, "", "spec.clusterIP!=None");
        assert_eq!(
            unknown.unwrap_err(),
            "field label not supported: spec.clusterIP"
        );
    }
}
