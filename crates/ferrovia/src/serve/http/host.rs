//! The `Host` header: the name a client was sent here by.
//!
//! A web page can make a name of its own lead to 127.0.0.1 and is then of the same origin as we are (DNS rebinding). It cannot do so with an address, nor with a
//! name that others control.

use std::net::IpAddr;

use http::HeaderMap;
use http::header::HOST;

/// Endings of names that no public DNS server answers for.
const PRIVATE: [&str; 4] = [".svc", ".local", ".internal", ".localhost"];

/// The one host that a request names; none if it names several or what cannot be read.
pub(crate) fn only_host(headers: &HeaderMap) -> Option<&str> {
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().ok(),
        _ => None,
    }
}

/// The name or address, without brackets; none if what follows is not a port.
pub(crate) fn without_port(host: &str) -> Option<&str> {
    let (name, rest) = match host.strip_prefix('[') {
        Some(inside) => inside.split_once(']')?,
        None => host.find(':').map_or((host, ""), |at| host.split_at(at)),
    };
    let is_port = match rest.strip_prefix(':') {
        Some(port) => port.parse::<u16>().is_ok(),
        None => rest.is_empty(),
    };
    is_port.then_some(name)
}

/// Guards a server that tools ask, such as that of metrics, as far as a browser could be made to ask it.
///
/// Only a loopback address needs it: others are reached directly, and kube-proxy looks at no names. A proxy on this machine that passes on the name it was asked by
/// still gets through, by address, by a name of the cluster or by this node's name.
#[derive(Debug)]
pub(crate) struct ToolGuard {
    is_needed: bool,
    names: Vec<String>,
}

impl ToolGuard {
    /// For a server at this address of a node with these names.
    pub(crate) fn new(bound: IpAddr, names: Vec<String>) -> Self {
        Self {
            is_needed: bound.is_loopback(),
            names,
        }
    }

    /// A request may be answered.
    pub(crate) fn allows(&self, headers: &HeaderMap) -> bool {
        // Every browser names the host, so a client that does not is none.
        if !self.is_needed || !headers.contains_key(HOST) {
            return true;
        }
        let name = only_host(headers).and_then(without_port);
        name.is_some_and(|name| self.knows(name))
    }

    fn knows(&self, name: &str) -> bool {
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let is_private = !name.contains('.') || PRIVATE.iter().any(|end| name.ends_with(end));
        let is_own = self.names.iter().any(|own| own.eq_ignore_ascii_case(&name));
        !name.is_empty() && (name.parse::<IpAddr>().is_ok() || is_private || is_own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(bound: &str, host: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        if let Some(host) = host {
            headers.insert(HOST, host.parse().unwrap());
        }
        let names = vec!["Node-1.example.net".to_owned()];
        ToolGuard::new(bound.parse().unwrap(), names).allows(&headers)
    }

    #[test]
    fn scrapers_are_answered_by_every_name_they_use() {
        for host in [
            "127.0.0.1:10249",
            "localhost:10249",
            "[::1]:10249",
            "10.0.0.5:10249",
            "[fd00::5]:10249",
            "node-1:10249",
            "node-1.example.net:10249",
            "kube-proxy.kube-system.svc:10249",
            "kube-proxy.kube-system.svc.cluster.local:10249",
            "ip-10-0-0-5.ec2.internal",
        ] {
            assert!(allows("127.0.0.1", Some(host)), "{host}");
            assert!(allows("::1", Some(host)), "{host}");
        }
        assert!(allows("127.0.0.1", None));
        for bound in ["0.0.0.0", "::", "192.0.2.1"] {
            assert!(allows(bound, Some("metrics.example.org:10249")), "{bound}");
        }
    }

    #[test]
    fn names_that_others_can_point_at_loopback_are_refused() {
        for host in [
            "evil.example",
            "evil.example:10249",
            "127.0.0.1.nip.io",
            "localhost.evil.example",
            "node-1.example.net.evil.example",
            "",
            ":10249",
            "localhost:x",
        ] {
            assert!(!allows("127.0.0.1", Some(host)), "{host}");
            assert!(!allows("::1", Some(host)), "{host}");
        }
    }

    #[test]
    fn two_hosts_are_none() {
        let mut headers = HeaderMap::new();
        headers.append(HOST, "localhost".parse().unwrap());
        headers.append(HOST, "evil.example".parse().unwrap());
        assert!(!ToolGuard::new([127, 0, 0, 1].into(), Vec::new()).allows(&headers));
    }
}
