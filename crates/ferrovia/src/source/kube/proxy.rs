//! The proxy that the environment names, by the rules of Go's HTTP client: cluster tools hand these variables down to kube-proxy's pod
//! and count on `NO_PROXY` being obeyed.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Uri};
use ipnet::IpNet;

/// The proxy for a server, if the environment names one and does not except the server.
pub(super) fn from_environment(
    server: &Uri,
    variable: impl Fn(&str) -> Option<String>,
) -> Option<Result<Uri, http::uri::InvalidUri>> {
    let either = |upper: &str| {
        let is_set = |value: &String| !value.is_empty();
        let lower = || variable(&upper.to_ascii_lowercase()).filter(is_set);
        variable(upper).filter(is_set).or_else(lower)
    };
    let proxy = match server.scheme_str() {
        Some("https") => either("HTTPS_PROXY")?,
        _ => either("HTTP_PROXY")?,
    };
    let exceptions = either("NO_PROXY").unwrap_or_default();
    if is_excepted(server, &exceptions) {
        return None;
    }
    Some(parse(&proxy))
}

/// An address without a scheme means an HTTP proxy.
pub(super) fn parse(proxy: &str) -> Result<Uri, http::uri::InvalidUri> {
    if proxy.contains("://") {
        proxy.parse()
    } else {
        format!("http://{proxy}").parse()
    }
}

/// The header for a proxy whose address holds a name and a password.
pub(super) fn authorization(proxy: &Uri) -> Option<HeaderValue> {
    let (user, _) = proxy.authority()?.as_str().rsplit_once('@')?;
    let encoded = STANDARD.encode(unescaped(user));
    let mut header = HeaderValue::from_str(&format!("Basic {encoded}")).ok()?;
    header.set_sensitive(true);
    Some(header)
}

/// Characters that cannot stand in an address are written as `%40`.
fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let hex = tail
            .get(..2)
            .filter(|hex| hex.iter().all(u8::is_ascii_hexdigit));
        let hex = hex.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match hex.filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    bytes
}

fn is_excepted(server: &Uri, exceptions: &str) -> bool {
    let host = server.host().unwrap_or_default();
    let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
    let address: Option<IpAddr> = host.parse().ok();
    let port = server.port_u16().unwrap_or(match server.scheme_str() {
        Some("https") => 443,
        _ => 80,
    });
    host == "localhost"
        || address.is_some_and(|address| address.is_loopback())
        || exceptions
            .split(',')
            .any(|exception| covers(&exception.trim().to_ascii_lowercase(), &host, address, port))
}

/// One entry: `*`, a range, an address, or a domain; the last two with a port if they like.
fn covers(exception: &str, host: &str, address: Option<IpAddr>, port: u16) -> bool {
    if exception.is_empty() {
        return false;
    }
    if exception == "*" {
        return true;
    }
    if let Ok(range) = exception.parse::<IpNet>() {
        return address.is_some_and(|address| range.contains(&address));
    }
    if let Ok(exact) = exception.parse::<IpAddr>() {
        return address == Some(exact);
    }
    let (name, wanted_port) = match exception.rsplit_once(':') {
        Some((name, wanted)) => (name, Some(wanted.parse::<u16>().ok())),
        None => (exception, None),
    };
    if wanted_port.is_some_and(|wanted| wanted != Some(port)) {
        return false;
    }
    let name = name.trim_matches(['[', ']']);
    if let Ok(exact) = name.parse::<IpAddr>() {
        return address == Some(exact);
    }
    // A leading dot means what is below the domain, and not itself.
    let name = name.strip_prefix('*').unwrap_or(name);
    match name.strip_prefix('.') {
        Some(_) => host.ends_with(name),
        None => {
            let below = host.strip_suffix(name);
            below.is_some_and(|below| below.is_empty() || below.ends_with('.'))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy_for(server: &str, variables: &[(&str, &str)]) -> Option<String> {
        let server = server.parse().unwrap();
        let proxy = from_environment(&server, |name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        });
        proxy.map(|proxy| proxy.unwrap().to_string())
    }

    #[test]
    fn the_scheme_of_the_server_decides() {
        let variables = [("HTTPS_PROXY", "http://a:1"), ("http_proxy", "b:2")];
        let with = |server| proxy_for(server, &variables);
        assert_eq!(
            with("https://10.0.0.1:6443").as_deref(),
            Some("http://a:1/")
        );
        assert_eq!(with("http://10.0.0.1:8080").as_deref(), Some("http://b:2/"));
        assert_eq!(with("https://127.0.0.1:6443"), None);
        assert_eq!(with("https://[::1]:6443"), None);
        assert_eq!(with("https://localhost:6443"), None);
        assert_eq!(proxy_for("https://10.0.0.1", &[("HTTPS_PROXY", "")]), None);
    }

    #[test]
    fn an_empty_variable_is_none_and_the_other_spelling_counts() {
        let variables = [("HTTPS_PROXY", ""), ("https_proxy", "a:1")];
        let proxy = proxy_for("https://10.0.0.1", &variables);
        assert_eq!(proxy.as_deref(), Some("http://a:1/"));
    }

    #[test]
    fn a_password_for_the_proxy_is_sent_as_it_is_meant() {
        let header = |proxy: &str| {
            let header = authorization(&proxy.parse().unwrap())?;
            let encoded = header.to_str().unwrap().strip_prefix("Basic ").unwrap();
            Some(String::from_utf8(STANDARD.decode(encoded).unwrap()).unwrap())
        };
        assert_eq!(header("http://proxy:3128"), None);
        assert_eq!(header("http://me:word@proxy").as_deref(), Some("me:word"));
        assert_eq!(
            header("http://me:p%40ss%3A%+A%@proxy").as_deref(),
            Some("me:p@ss:%+A%")
        );
    }

    #[test]
    fn exceptions_are_obeyed() {
        let cases = [
            ("10.96.0.0/12,10.0.0.0/8", "https://10.0.0.1:6443", true),
            ("10.96.0.0/12", "https://10.0.0.1:6443", false),
            ("10.0.0.1", "https://10.0.0.1:6443", true),
            ("10.0.0.1:6443", "https://10.0.0.1:6443", true),
            ("10.0.0.1:443", "https://10.0.0.1:6443", false),
            ("fd00::/8", "https://[fd00::1]:6443", true),
            ("[fd00::1]:6443", "https://[fd00::1]:6443", true),
            ("*", "https://10.0.0.1", true),
            ("example.com", "https://api.example.com", true),
            ("example.com", "https://EXAMPLE.com", true),
            ("example.com", "https://badexample.com", false),
            (".example.com", "https://api.example.com", true),
            ("*.example.com", "https://api.example.com", true),
            (".example.com", "https://example.com", false),
            ("api.example.com:6443", "https://api.example.com", false),
            (" , svc ,, ", "https://a.svc", true),
            ("", "https://a.svc", false),
        ];
        for (exceptions, server, is_excepted) in cases {
            let variables = [("HTTPS_PROXY", "a:1"), ("NO_PROXY", exceptions)];
            let proxy = proxy_for(server, &variables);
            assert_eq!(proxy.is_none(), is_excepted, "{exceptions:?} for {server}");
        }
    }
}
