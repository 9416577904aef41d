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
    /// What clients must show.
    pub auth: Auth,
    /// How watches with `sendInitialEvents` are treated.
    pub streaming_lists: StreamingLists,
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
            auth: Auth::None,
            streaming_lists: StreamingLists::Served,
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
    /// It knows and refuses them, with 422 (since 1.27, while the feature is off).
    Forbidden,
    /// It does not know the parameter, and serves a common watch (before 1.27).
    Ignored,
}
