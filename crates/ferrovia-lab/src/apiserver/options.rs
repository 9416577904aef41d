//! The options of a server.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// The options of a server.
#[derive(Clone, Debug)]
pub struct ApiServerOptions {
    /// The address to listen on, which clients use, so not a wildcard; port 0 chooses a free one.
    pub listen: SocketAddr,
    /// Whether to use TLS, with a new certificate authority.
    pub tls: bool,
    /// Whether HTTP/2 is offered over TLS.
    pub http2: bool,
    /// How clients authenticate.
    pub auth: Auth,
    /// How watches with `sendInitialEvents` are treated.
    pub watch_lists: WatchListSupport,
    /// Whether lists with `resourceVersion=0` are served from a cache, which ignores the limit.
    pub watch_cache: bool,
    /// Whether it supports protobuf.
    pub protobuf: bool,
    /// Whether it serves ServiceCIDRs; older servers respond with 404.
    pub service_cidrs: bool,
    /// The time between bookmarks; another one is sent when the time of a watch is up.
    pub bookmark_every: Duration,
    /// How many changes of each kind are kept.
    pub history: usize,
}

impl Default for ApiServerOptions {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            tls: false,
            http2: true,
            auth: Auth::None,
            watch_lists: WatchListSupport::Served,
            watch_cache: true,
            protobuf: true,
            service_cidrs: true,
            bookmark_every: Duration::from_secs(60),
            history: 65_536,
        }
    }
}

/// How clients authenticate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    None,
    /// By a bearer token in the kubeconfig.
    Token,
    /// By a bearer token in a file that the kubeconfig refers to.
    TokenFile,
    /// By a client certificate; requires TLS.
    ClientCertificate,
}

/// How a server handles watch-lists (`sendInitialEvents`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchListSupport {
    /// It serves them.
    Served,
    /// It serves those that name a resourceVersion; others end with an error, as on etcd before 3.4.31, which cannot report its progress.
    WithoutProgress,
    /// It rejects them with 422 (since 1.27, while the feature is disabled).
    Forbidden,
    /// It ignores the parameter, and serves an ordinary watch (before 1.27).
    Ignored,
}
