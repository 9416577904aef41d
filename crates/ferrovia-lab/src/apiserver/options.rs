//! What a server is to be like.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// What a server is to be like.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen: the address clients use, not a wildcard; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Whether to speak TLS, with an authority made for this server.
    pub tls: bool,
    /// Whether HTTP/2 is offered to clients that speak TLS.
    pub http2: bool,
    /// What clients must show.
    pub auth: Auth,
    /// How watches with `sendInitialEvents` are treated.
    pub streaming_lists: StreamingLists,
    /// Whether lists of any version (`resourceVersion=0`) come from a cache, which gives everything whatever the limit.
    pub watch_cache: bool,
    /// Whether it can answer in protobuf to clients that ask for it.
    pub protobuf: bool,
    /// Whether there are ServiceCIDRs; older servers answer 404.
    pub service_cidrs: bool,
    /// The time between bookmarks; one more comes when the time of a watch is up.
    pub bookmark_every: Duration,
    /// How many changes of each kind are remembered.
    pub history: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            tls: false,
            http2: true,
            auth: Auth::None,
            streaming_lists: StreamingLists::Served,
            watch_cache: true,
            protobuf: true,
            service_cidrs: true,
            bookmark_every: Duration::from_secs(60),
            history: 65_536,
        }
    }
}

/// What a client must show to be let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    /// Nothing.
    None,
    /// A bearer token, which is in the kubeconfig.
    Token,
    /// A bearer token, which is in a file that the kubeconfig names.
    TokenFile,
    /// A certificate; needs TLS.
    ClientCertificate,
}

/// How a server treats watches that ask for the initial state with `sendInitialEvents`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamingLists {
    /// It serves them.
    Served,
    /// It serves those that name a resourceVersion; others end with an error, as on etcd before 3.4.31, which cannot report its progress.
    WithoutProgress,
    /// It knows and refuses them, with 422 (since 1.27, while the feature is off).
    Forbidden,
    /// It does not know the parameter, and serves a common watch (before 1.27).
    Ignored,
}
