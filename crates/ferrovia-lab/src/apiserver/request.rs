//! The log of requests.

use std::time::Instant;

use http::{HeaderMap, Method, Version};

#[derive(Clone, Debug)]
pub struct Request {
    pub method: Method,
    pub path: String,
    /// The decoded query parameters, in order.
    pub query: Vec<(String, String)>,
    pub headers: HeaderMap,
    /// The user; `None` if authentication failed.
    pub user: Option<String>,
    /// The client certificate (DER).
    pub certificate: Option<Vec<u8>>,
    pub version: Version,
    /// The number of its connection.
    pub connection: u64,
    /// The time of arrival.
    pub at: Instant,
}

impl Request {
    /// The value of a query parameter.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Whether it is a watch.
    pub fn is_watch(&self) -> bool {
        matches!(self.parameter("watch"), Some("true" | "1"))
    }
}
