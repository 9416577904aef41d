//! The section `logging`, which is the same for all of Kubernetes' programs.

use serde::{Deserialize, Deserializer, Serialize};

use super::{is_default, or_default};
use crate::config::duration::{GoDuration, text_or_nanoseconds};

/// `logging`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Logging {
    /// `text` or `json`.
    #[serde(deserialize_with = "or_default")]
    pub format: String,
    /// How often buffered lines are written.
    #[serde(deserialize_with = "text_or_nanoseconds")]
    pub flush_frequency: GoDuration,
    /// How much is logged.
    #[serde(deserialize_with = "or_default")]
    pub verbosity: u32,
    /// How much single source files log.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub vmodule: Vec<VModule>,
    /// Options of the two formats.
    #[serde(deserialize_with = "or_default")]
    pub options: LogOptions,
}

/// One entry of `logging.vmodule`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VModule {
    /// Pattern for the name of a source file without extension.
    #[serde(deserialize_with = "or_default")]
    pub file_pattern: String,
    /// How much it logs.
    #[serde(deserialize_with = "or_default")]
    pub verbosity: u32,
}

/// `logging.options`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct LogOptions {
    /// For `text`.
    #[serde(deserialize_with = "or_default")]
    pub text: LogStream,
    /// For `json`.
    #[serde(deserialize_with = "or_default")]
    pub json: LogStream,
}

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LogStream {
    /// Information to standard output, errors to standard error.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub split_stream: bool,
    /// How much of standard output is buffered, as the API writes quantities.
    #[serde(deserialize_with = "quantity")]
    pub info_buffer_size: String,
}

impl Default for LogStream {
    fn default() -> Self {
        Self {
            split_stream: false,
            info_buffer_size: "0".to_owned(),
        }
    }
}

/// A quantity is a text such as `64Ki`, or a bare number.
fn quantity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Quantity {
        Number(u64),
        Text(String),
    }
    let quantity = Option::<Quantity>::deserialize(deserializer)?;
    Ok(match quantity {
        None => "0".to_owned(),
        Some(Quantity::Number(number)) => number.to_string(),
        Some(Quantity::Text(text)) if text.is_empty() => "0".to_owned(),
        Some(Quantity::Text(text)) => text,
    })
}
