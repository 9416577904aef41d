//! Makes an HTTP client of a way to the server.
//!
//! It speaks HTTP/2 with servers that offer it in the TLS handshake (ALPN), so that all requests share one connection as they do for
//! kube-proxy, and HTTP/1.1 with others.

use std::time::Duration;

use http::Uri;
use hyper::rt::{Read, Write};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::client::legacy::{Client as HttpClient, connect::Connect};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt as _, RustlsTlsError};
use kube::{Client, Config, Error};
use tower::{BoxError, Service, ServiceExt as _};

use super::access::AccessError;
use super::gate::Gate;
use super::proxy;
use super::times::Times;

/// A connection whose peer has not acknowledged anything for this long is closed. What the server sends while packets are lost it sends
/// again ever more rarely, after 20 s only every 13 s; a new connection is there as soon as packets pass again.
const DEAD_AFTER: Duration = Duration::from_secs(10);

/// The first keepalive probe, and the time between two. Only kernels see them.
const PROBE_EVERY: Duration = Duration::from_secs(3);

/// How long to try to connect to one address. Time for two more SYN packets: kernels send the later ones ever more rarely.
const TCP_CONNECT: Duration = Duration::from_secs(3);

/// Connections that nobody uses are closed after this long.
const IDLE: Duration = Duration::from_secs(30);

/// The most that is read from a connection at once. As much is taken together (see `chunks.rs`), and a watch, which lasts for ever, keeps the
/// room that its first list needed.
const READ_AT_ONCE: usize = 64 * 1024;

/// What an HTTP/2 server may send of one answer before it was read, at most as much is in memory. Enough for 10 MB/s at a round-trip time of
/// 50 ms.
const STREAM_WINDOW: u32 = 512 * 1024;

/// The same for all answers together. More than there are requests at a time, so that an answer that is not read holds up no other.
const CONNECTION_WINDOW: u32 = 16 * STREAM_WINDOW;

/// As client-go has it: if this is not empty, HTTP/2 is not offered to servers.
const DISABLE_HTTP2: &str = "DISABLE_HTTP2";

/// Makes clients that share nothing but their settings and TLS sessions. Needs a tokio runtime round it.
pub(super) type Factory = Box<dyn Fn() -> Result<Client, AccessError> + Send + Sync>;

/// How to speak to a server.
#[derive(Clone, Copy)]
struct Protocol {
    offers_http2: bool,
    /// A connection from which nothing came for the first time is sent a PING, and closed if there is no answer for the second.
    ping: (Duration, Duration),
}

/// Prepares clients.
pub(super) fn factory(mut config: Config, times: &Times) -> Result<Factory, AccessError> {
    // Retries are ours: they must show in the metrics and respect the back-off.
    config.default_retry = false;
    let names_authority = config.root_cert.is_some();
    if !names_authority && !checks_certificates(&config) {
        // The library would look for this machine's authorities all the same, and fail where there are none, as in an image of nothing but
        // our binary.
        config.root_cert = Some(Vec::new());
    }
    let server = config.cluster_url.to_string();
    let protocol = Protocol {
        offers_http2: offers_http2(std::env::var(DISABLE_HTTP2).ok()),
        ping: times.ping,
    };
    connect(config, protocol).map_err(|error| match error {
        Error::RustlsTls(RustlsTlsError::AddRootCertificate(what)) if !names_authority => {
            AccessError::NoAuthority {
                server,
                what: what.to_string(),
            }
        }
        error => explain(server, &error),
    })
}

fn offers_http2(disabled: Option<String>) -> bool {
    disabled.is_none_or(|value| value.is_empty())
}

/// Whether a certificate will be looked at: the server's, or that of a proxy before it.
fn checks_certificates(config: &Config) -> bool {
    let is_tls = |address: &Uri| address.scheme_str() == Some("https");
    let proxy = config.proxy_url.as_ref();
    !config.accept_invalid_certs && (is_tls(&config.cluster_url) || proxy.is_some_and(is_tls))
}

/// The library's own stack, but for two things: HTTP/2, and dead peers are noticed, also behind a proxy.
fn connect(config: Config, protocol: Protocol) -> Result<Factory, Error> {
    let Some(proxy) = config.proxy_url.clone() else {
        return clients(config, protocol, connector());
    };
    match proxy.scheme_str() {
        Some("http") => clients(config, protocol, tunnel(proxy, connector())),
        Some("https") => {
            let connector = config.rustls_https_connector_with_connector(connector())?;
            clients(config, protocol, tunnel(proxy, connector))
        }
        _ => Err(Error::ProxyProtocolUnsupported {
            proxy_url: Box::new(proxy),
        }),
    }
}

fn connector() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(TCP_CONNECT));
    connector.set_keepalive(Some(PROBE_EVERY));
    connector.set_keepalive_interval(Some(PROBE_EVERY));
    connector.set_keepalive_retries(Some(3));
    connector.set_tcp_user_timeout(Some(DEAD_AFTER));
    connector
}

fn tunnel<C>(proxy: Uri, connector: C) -> Tunnel<C> {
    let authorization = proxy::authorization(&proxy);
    let tunnel = Tunnel::new(proxy, connector);
    match authorization {
        Some(authorization) => tunnel.with_auth(authorization),
        None => tunnel,
    }
}

fn clients<C>(config: Config, protocol: Protocol, connector: C) -> Result<Factory, Error>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Read + Write + Connection + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    let connector = if protocol.offers_http2 {
        either_version(&config, connector)?
    } else {
        config.rustls_https_connector_with_connector(connector)?
    };
    // What could fail later fails now.
    config.extra_headers_layer()?;
    config.auth_layer()?;
    Ok(Box::new(move || {
        let http = pooled(Gate::new(connector.clone()), protocol);
        client(&config, http).map_err(|error| explain(config.cluster_url.to_string(), &error))
    }))
}

/// As the library's, which offers HTTP/1.1 only.
fn either_version<C>(config: &Config, connector: C) -> Result<HttpsConnector<C>, Error> {
    let mut builder = HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = name.clone().try_into();
        let name = name.map_err(|error| Error::RustlsTls(RustlsTlsError::InvalidServerName(error)));
        builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name?));
    }
    Ok(builder
        .enable_http1()
        .enable_http2()
        .wrap_connector(connector))
}

fn client<C>(config: &Config, http: HttpClient<C, Body>) -> Result<Client, Error>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let http = http.map_err(BoxError::from);
    let namespace = config.default_namespace.clone();
    let builder = ClientBuilder::new(http, namespace).with_layer(&config.extra_headers_layer()?);
    Ok(match config.auth_layer()? {
        Some(auth) => builder
            .with_layer(&auth)
            .with_layer(&config.base_uri_layer())
            .build(),
        None => builder.with_layer(&config.base_uri_layer()).build(),
    })
}

fn pooled<C: Connect + Clone>(connector: C, protocol: Protocol) -> HttpClient<C, Body> {
    let (idle, answer) = protocol.ping;
    HttpClient::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(4)
        .http1_max_buf_size(READ_AT_ONCE)
        .timer(TokioTimer::new())
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keep_alive_interval(idle)
        .http2_keep_alive_timeout(answer)
        .http2_keep_alive_while_idle(true)
        .build(connector)
}

/// Says what failed without the proxy's address, which may have a password in it.
fn explain(server: String, error: &Error) -> AccessError {
    let what = match error {
        Error::ProxyProtocolUnsupported { .. } | Error::ProxyProtocolDisabled { .. } => {
            "only proxies of the kinds http:// and https:// are supported".to_owned()
        }
        error => error.to_string(),
    };
    AccessError::Connection { server, what }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use socket2::SockRef;

    use super::*;

    /// Answers one request as a proxy that has connected to the server, and gives the connection back.
    fn accept_tunnel(listener: &TcpListener) -> TcpStream {
        let (mut client, _) = listener.accept().unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        assert!(head.starts_with(b"CONNECT 192.0.2.1:6443 "));
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        client
    }

    fn assert_notices_dead_peers(socket: &SockRef<'_>) {
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), PROBE_EVERY);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), PROBE_EVERY);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 3);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(DEAD_AFTER));
    }

    #[tokio::test]
    async fn dead_peers_are_noticed_with_and_without_a_proxy() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server: Uri = format!("https://{address}").parse().unwrap();
        let direct = connector().oneshot(server).await.unwrap();
        assert_notices_dead_peers(&SockRef::from(direct.inner()));
        drop(listener.accept().unwrap());

        let proxy: Uri = format!("http://{address}").parse().unwrap();
        let proxied = thread::spawn(move || accept_tunnel(&listener));
        let server = Uri::from_static("https://192.0.2.1:6443");
        let through = tunnel(proxy, connector()).oneshot(server).await.unwrap();
        assert_notices_dead_peers(&SockRef::from(through.inner()));
        drop(proxied.join().unwrap());
    }

    #[test]
    fn http2_is_offered_unless_the_variable_says_anything() {
        assert!(offers_http2(None));
        assert!(offers_http2(Some(String::new())));
        assert!(!offers_http2(Some("1".to_owned())));
        assert!(!offers_http2(Some("false".to_owned())));
    }
}
