//! `/flagz` and `/statusz`: text for people, and objects for tools that ask for them by name.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use http::StatusCode;
use http::header::{ACCEPT, HeaderMap, HeaderValue, WARNING};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::serve::http::answer::{Answer, JSON, TEXT, answer, set, text};
use crate::version::{KUBERNETES, KUBERNETES_MAJOR_MINOR};

/// What we are called on these pages, as tools expect it.
const COMPONENT: &str = "kube-proxy";
const GROUP: &str = "config.k8s.io";
const YAML: &str = "application/yaml";

/// How an answer should look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Accept {
    /// Text.
    Text,
    /// An object of this kind and version.
    Object {
        kind: String,
        version: Version,
        encoding: &'static str,
    },
    /// Nothing we have.
    Other,
}

/// A version of the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V1Alpha1,
    V1Beta1,
}

/// The first wish in the `Accept` header that can be met. No header means text.
pub(super) fn accept(headers: &HeaderMap) -> Accept {
    let wishes: Vec<&str> = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .collect();
    if wishes.is_empty() {
        return Accept::Text;
    }
    wishes.into_iter().find_map(wish).unwrap_or(Accept::Other)
}

fn wish(range: &str) -> Option<Accept> {
    let mut parts = range.split(';').map(str::trim);
    let media = parts.next()?.to_ascii_lowercase();
    let encoding = match &*media {
        "*/*" | "text/*" | "text/plain" => return Some(Accept::Text),
        JSON => JSON,
        YAML => YAML,
        _ => return None,
    };
    let parameters: BTreeMap<&str, &str> = parts.filter_map(|part| part.split_once('=')).collect();
    let version = match *parameters.get("v")? {
        "v1alpha1" => Version::V1Alpha1,
        "v1beta1" => Version::V1Beta1,
        _ => return None,
    };
    if *parameters.get("g")? != GROUP {
        return None;
    }
    Some(Accept::Object {
        kind: (*parameters.get("as")?).to_owned(),
        version,
        encoding,
    })
}

/// The flags that were typed.
pub(super) fn flagz(flags: &BTreeMap<String, String>, accept: Accept) -> Answer {
    page("Flagz", accept, json!({ "flags": flags }), || {
        let mut page = head("flagz");
        for (name, value) in flags {
            // Writing to memory cannot fail.
            let _ = writeln!(page, "{name}:{value}");
        }
        page
    })
}

/// What runs, and since when.
pub(super) fn statusz(
    started: Option<f64>,
    up: Duration,
    paths: &[&str],
    accept: Accept,
) -> Answer {
    let (major, minor) = KUBERNETES_MAJOR_MINOR;
    let binary = KUBERNETES.trim_start_matches('v');
    let emulation = format!("{major}.{minor}");
    let started = Timestamp::from_second(started.unwrap_or_default() as i64).unwrap_or_default();
    let up = up.as_secs();
    let rust = concat!("none; ferrovia ", env!("CARGO_PKG_VERSION"), " is in Rust");
    let object = json!({
        "startTime": started.to_string(),
        "uptimeSeconds": up,
        "goVersion": rust,
        "binaryVersion": binary,
        "emulationVersion": emulation,
        "paths": paths,
    });
    page("Statusz", accept, object, || {
        let mut page = head("statusz");
        let (hours, minutes, seconds) = (up / 3600, up / 60 % 60, up % 60);
        let _ = write!(
            page,
            "Started: {started}\nUp: {hours} hr {minutes:02} min {seconds:02} sec\nGo version: {rust}\n\
             Binary version: {binary}\nEmulation version: {emulation}\nPaths: {}\n",
            paths.join(" ")
        );
        page
    })
}

fn head(page: &str) -> String {
    format!(
        "\n{COMPONENT} {page}\nFor people who look for a fault; tools should ask for an object of {GROUP} instead.\n\n"
    )
}

fn page(kind: &str, accept: Accept, fields: Value, as_text: impl FnOnce() -> String) -> Answer {
    match accept {
        Accept::Text => text(as_text()),
        Accept::Object {
            kind: wanted,
            version,
            encoding,
        } if wanted == kind => object(kind, version, encoding, fields),
        _ => answer(
            StatusCode::NOT_ACCEPTABLE,
            TEXT,
            format!(
                "this page is text/plain, or application/json or application/yaml with ;v=v1beta1;g={GROUP};as={kind}\n"
            ),
        ),
    }
}

fn object(kind: &str, version: Version, encoding: &'static str, fields: Value) -> Answer {
    let name = match version {
        Version::V1Alpha1 => "v1alpha1",
        Version::V1Beta1 => "v1beta1",
    };
    let mut object = json!({
        "kind": kind,
        "apiVersion": format!("{GROUP}/{name}"),
        "metadata": { "name": COMPONENT },
    });
    if let (Value::Object(object), Value::Object(fields)) = (&mut object, fields) {
        object.extend(fields);
    }
    // JSON is YAML too.
    let mut answer = answer(StatusCode::OK, encoding, object.to_string());
    if version == Version::V1Alpha1 {
        let warning = "299 - \"config.k8s.io/v1alpha1 is deprecated; use v1beta1\"";
        set(&mut answer, WARNING, HeaderValue::from_static(warning));
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(value: &str) -> Accept {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, value.parse().unwrap());
        accept(&headers)
    }

    #[test]
    fn the_first_wish_that_can_be_met_counts() {
        let object = |version, encoding| Accept::Object {
            kind: "Flagz".into(),
            version,
            encoding,
        };
        assert_eq!(accept(&HeaderMap::new()), Accept::Text);
        for text in ["*/*", "text/*", "text/plain;q=0.9", "image/png, */*;q=0.1"] {
            assert_eq!(accepted(text), Accept::Text, "{text}");
        }
        assert_eq!(
            accepted("application/json;as=Flagz;v=v1beta1;g=config.k8s.io"),
            object(Version::V1Beta1, JSON)
        );
        assert_eq!(
            accepted("application/yaml; v=v1alpha1; g=config.k8s.io; as=Flagz, */*"),
            object(Version::V1Alpha1, YAML)
        );
        for other in [
            "application/json",
            "application/json;v=v1;g=config.k8s.io;as=Flagz",
            "application/json;v=v1beta1;g=apps;as=Flagz",
            "application/json;v=v1beta1;g=config.k8s.io",
            "image/png",
            "",
        ] {
            assert_eq!(accepted(other), Accept::Other, "{other:?}");
        }
    }
}
