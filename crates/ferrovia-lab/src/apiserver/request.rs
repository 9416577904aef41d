//! The log of requests.

use std::time::Instant;

use http::{HeaderMap, Method, Version};

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The path.
    pub path: String,
    /// The query, decoded, in its order.
    pub query: Vec<(String, String)>,
    /// The headers.
    pub headers: HeaderMap,
    /// Who asked; nothing if the credentials were not accepted.
    pub user: Option<String>,
    /// The client certificate that was shown (DER).
    pub certificate: Option<Vec<u8>>,
    /// The version of HTTP.
    pub version: Version,
    /// The connection it came on, by a number.
    pub connection: u64,
    /// When it came.
    pub at: Instant,
}

impl Request {
    /// A parameter of the query.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Whether it asks for a watch.
    pub fn is_watch(&self) -> bool {
        matches!(self.parameter("watch"), Some("true" | "1"))
    }
}
