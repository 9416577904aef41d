//! Makes an HTTP client of a way to the server.

use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client as HttpClient, connect::Connect};
use hyper_util::rt::TokioExecutor;
use kube::client::{AuthError, Body, ClientBuilder, ConfigExt as _, RustlsTlsError};
use kube::{Client, Config, Error};
use tower::{BoxError, ServiceExt as _};

use super::access::AccessError;

/// A peer that vanished is noticed after about this long, however silent the connection was meant to be.
const DEAD_AFTER: Duration = Duration::from_secs(45);

/// The first keepalive probe, and the time between two.
const PROBE_EVERY: Duration = Duration::from_secs(15);

/// How long to try to connect to one address.
const CONNECT: Duration = Duration::from_secs(10);

/// Connections that nobody uses are closed after this long.
const IDLE: Duration = Duration::from_secs(30);

/// The most that is read from a connection at once. As much is taken together (see `chunks.rs`), and a watch, which lasts for ever, keeps the
/// room that its first list needed.
const READ_AT_ONCE: usize = 64 * 1024;

/// Makes the client. May run the kubeconfig's exec plugin, and blocks while it does. Needs a tokio runtime round it.
pub(super) fn build(mut config: Config) -> Result<Client, AccessError> {
    // Retries are ours: they must show in the metrics and respect the back-off.
    config.default_retry = false;
    let names_authority = config.root_cert.is_some();
    if !names_authority && !checks_certificates(&config) {
        // The library would look for this machine's authorities all the same, and fail where there are none, as in an image of nothing but
        // our binary.
        config.root_cert = Some(Vec::new());
    }
    let command = config
        .auth_info
        .exec
        .as_ref()
        .and_then(|exec| exec.command.clone());
    let server = config.cluster_url.to_string();
    let client = if config.proxy_url.is_some() {
        ClientBuilder::try_from(config).map(ClientBuilder::build)
    } else {
        direct(&config)
    };
    client.map_err(|error| match error {
        Error::RustlsTls(RustlsTlsError::AddRootCertificate(what)) if !names_authority => {
            AccessError::NoAuthority {
                server,
                what: what.to_string(),
            }
        }
        error => explain(&server, command, &error),
    })
}

/// Whether a certificate will be looked at: the server's, or that of a proxy before it.
fn checks_certificates(config: &Config) -> bool {
    let is_tls = |address: &Uri| address.scheme_str() == Some("https");
    let proxy = config.proxy_url.as_ref();
    !config.accept_invalid_certs && (is_tls(&config.cluster_url) || proxy.is_some_and(is_tls))
}

/// The library's own stack, but for one thing: dead peers are noticed.
fn direct(config: &Config) -> Result<Client, Error> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT));
    connector.set_keepalive(Some(PROBE_EVERY));
    connector.set_keepalive_interval(Some(PROBE_EVERY));
    connector.set_keepalive_retries(Some(2));
    connector.set_tcp_user_timeout(Some(DEAD_AFTER));
    let connector = config.rustls_https_connector_with_connector(connector)?;
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

fn pooled<C: Connect + Clone>(connector: C) -> HttpClient<C, Body> {
    HttpClient::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(4)
        .http1_max_buf_size(READ_AT_ONCE)
        .build(connector)
}

/// Says what failed without repeating what the exec plugin wrote, which may be a token.
fn explain(server: &str, command: Option<String>, error: &Error) -> AccessError {
    let plugin_fault = match error {
        Error::Auth(AuthError::AuthExecStart(error)) => Some(format!("cannot be started: {error}")),
        Error::Auth(AuthError::AuthExecRun { out, .. }) => {
            Some(format!("ended with {}", out.status))
        }
        Error::Auth(AuthError::AuthExecParse(_)) => {
            Some("what it wrote is not an ExecCredential".to_owned())
        }
        Error::Auth(AuthError::MissingCommand) => Some("no command is given".to_owned()),
        Error::Auth(error @ (AuthError::ExecPluginFailed | AuthError::AuthExec(_))) => {
            Some(error.to_string())
        }
        _ => None,
    };
    // The proxy's address may have a password in it.
    let what = match error {
        Error::ProxyProtocolUnsupported { .. } | Error::ProxyProtocolDisabled { .. } => {
            "only proxies of the kinds http:// and https:// are supported".to_owned()
        }
        error => error.to_string(),
    };
    match plugin_fault {
        Some(what) => AccessError::ExecPlugin {
            command: command.unwrap_or_default(),
            what,
        },
        None => AccessError::Connection {
            server: server.to_owned(),
            what,
        },
    }
}
