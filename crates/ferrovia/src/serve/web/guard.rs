//! Who may ask: a browser that was sent here by name, and by a page of ours.
//!
//! A page of somebody else can make its own name lead to 127.0.0.1 and would then be of the same origin as we are. So `Host` must be a name or
//! an address that cannot be made to lead elsewhere, whatever its port: people come through tunnels.

use std::net::IpAddr;

use http::HeaderMap;
use http::header::ORIGIN;

use crate::serve::http::host::{only_host, without_port};

/// Looks at requests.
#[derive(Debug)]
pub(super) struct Guard {
    bound: IpAddr,
}

/// Why somebody may not ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error(
        "this page answers only to localhost and to the address it is bound to; open it by one of these"
    )]
    Host,
    #[error("this page answers only to itself, not to pages of another origin")]
    Origin,
}

impl Guard {
    /// For a server at this address.
    pub(super) fn new(bound: IpAddr) -> Self {
        Self { bound }
    }

    pub(super) fn check(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let host = only_host(headers).ok_or(Refusal::Host)?;
        if !self.is_ours(host) {
            return Err(Refusal::Host);
        }
        let mut origins = headers.get_all(ORIGIN).iter();
        let is_own = |origin: &http::HeaderValue| {
            let origin = origin.to_str().ok();
            let authority = origin.and_then(|origin| origin.strip_prefix("http://"));
            authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
        };
        if origins.all(is_own) {
            Ok(())
        } else {
            Err(Refusal::Origin)
        }
    }

    fn is_ours(&self, host: &str) -> bool {
        let Some(name) = without_port(host) else {
            return false;
        };
        if name.eq_ignore_ascii_case("localhost") {
            return true;
        }
        let Ok(ip) = name.parse::<IpAddr>() else {
            return false;
        };
        // Bound to every address, any of them may be ours; an address, unlike a name, cannot be made to lead here by somebody else.
        ip.is_loopback() || ip == self.bound || self.bound.is_unspecified()
    }
}

#[cfg(test)]
mod tests {
    use http::header::HOST;

    use super::*;

    fn check(bound: &str, host: &str, origin: Option<&str>) -> Result<(), Refusal> {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(ORIGIN, origin.parse().unwrap());
        }
        Guard::new(bound.parse().unwrap()).check(&headers)
    }

    #[test]
    fn names_that_others_can_point_at_us_are_refused() {
        for good in [
            "localhost",
            "LOCALHOST:1",
            "127.0.0.1:10247",
            "127.1.2.3",
            "[::1]:80",
            "[::1]",
        ] {
            assert_eq!(check("127.0.0.1", good, None), Ok(()), "{good}");
        }
        for bad in [
            "evil.example",
            "evil.example:10247",
            "localhost.evil.example",
            "192.0.2.1",
            "127.0.0.1:x",
            "[::1",
            "",
            "127.0.0.1.nip.io",
            "localhost:1:2",
        ] {
            assert_eq!(check("127.0.0.1", bad, None), Err(Refusal::Host), "{bad}");
        }
        assert_eq!(check("192.0.2.1", "192.0.2.1:10247", None), Ok(()));
        assert_eq!(check("0.0.0.0", "192.0.2.7:10247", None), Ok(()));
        assert_eq!(check("0.0.0.0", "evil.example", None), Err(Refusal::Host));
        let nobody = Guard::new([127, 0, 0, 1].into()).check(&HeaderMap::new());
        assert_eq!(nobody, Err(Refusal::Host));
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        let host = "localhost:10247";
        assert_eq!(
            check("127.0.0.1", host, Some("http://localhost:10247")),
            Ok(())
        );
        for bad in [
            "http://evil.example",
            "http://localhost",
            "https://localhost:10247",
            "null",
            "http://127.0.0.1:10247",
        ] {
            assert_eq!(
                check("127.0.0.1", host, Some(bad)),
                Err(Refusal::Origin),
                "{bad}"
            );
        }
    }
}
