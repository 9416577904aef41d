//! Makes an HTTP client of a way to the server.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::client::legacy::{Client as HttpClient, connect::Connect};
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt as _, RustlsTlsError};
use kube::{Client, Config, Error};
use tokio::time::timeout;
use tower::{BoxError, Service, ServiceExt as _};

use super::access::AccessError;
use super::proxy;

/// A connection whose peer has not acknowledged anything for this long is closed. What the server sends while packets are lost it sends
/// again ever more rarely, after 20 s only every 13 s; a new connection is there as soon as packets pass again.
const DEAD_AFTER: Duration = Duration::from_secs(10);

/// The first keepalive probe, and the time between two. Only kernels see them.
const PROBE_EVERY: Duration = Duration::from_secs(3);

/// How long to try to connect to one address. Time for two more SYN packets: kernels send the later ones ever more rarely.
const TCP_CONNECT: Duration = Duration::from_secs(3);

/// How long to try to connect, with TLS and what a proxy does. A server that many nodes come back to takes its time.
const CONNECT: Duration = Duration::from_secs(10);

/// Connections that nobody uses are closed after this long.
const IDLE: Duration = Duration::from_secs(30);

/// The most that is read from a connection at once. As much is taken together (see `chunks.rs`), and a watch, which lasts for ever, keeps the
/// room that its first list needed.
const READ_AT_ONCE: usize = 64 * 1024;

/// Makes the client. Needs a tokio runtime round it.
pub(super) fn build(mut config: Config) -> Result<Client, AccessError> {
    // Retries are ours: they must show in the metrics and respect the back-off.
    config.default_retry = false;
    let names_authority = config.root_cert.is_some();
    if !names_authority && !checks_certificates(&config) {
        // The library would look for this machine's authorities all the same, and fail where there are none, as in an image of nothing but
        // our binary.
        config.root_cert = Some(Vec::new());
    }
    let server = config.cluster_url.to_string();
    connect(&config).map_err(|error| match error {
        Error::RustlsTls(RustlsTlsError::AddRootCertificate(what)) if !names_authority => {
            AccessError::NoAuthority {
                server,
                what: what.to_string(),
            }
        }
        error => explain(server, &error),
    })
}

/// Whether a certificate will be looked at: the server's, or that of a proxy before it.
fn checks_certificates(config: &Config) -> bool {
    let is_tls = |address: &Uri| address.scheme_str() == Some("https");
    let proxy = config.proxy_url.as_ref();
    !config.accept_invalid_certs && (is_tls(&config.cluster_url) || proxy.is_some_and(is_tls))
}

/// The library's own stack, but for one thing: dead peers are noticed, also behind a proxy.
fn connect(config: &Config) -> Result<Client, Error> {
    let Some(proxy) = config.proxy_url.clone() else {
        return client(config, connector());
    };
    match proxy.scheme_str() {
        Some("http") => client(config, tunnel(proxy, connector())),
        Some("https") => {
            let connector = config.rustls_https_connector_with_connector(connector())?;
            client(config, tunnel(proxy, connector))
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

fn client<C>(config: &Config, connector: C) -> Result<Client, Error>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Read + Write + Connection + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let connector = Bounded(connector);
    let http = pooled(connector).map_err(BoxError::from);
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

/// A connector that gives up after a while.
#[derive(Clone)]
struct Bounded<C>(C);

impl<C> Service<Uri> for Bounded<C>
where
    C: Service<Uri>,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let connecting = self.0.call(server);
        Box::pin(async move {
            let late = |_| format!("no connection within {} s", CONNECT.as_secs());
            timeout(CONNECT, connecting)
                .await
                .map_err(late)?
                .map_err(Into::into)
        })
    }
}

fn pooled<C: Connect + Clone>(connector: C) -> HttpClient<C, Body> {
    HttpClient::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(4)
        .http1_max_buf_size(READ_AT_ONCE)
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
}
