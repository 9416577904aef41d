//! A simulated Kubernetes API server, for tests and benchmarks of clients.
//!
//! It serves lists and watches as real servers do, over HTTP/1.1 and HTTP/2, with and without TLS, in JSON or protobuf as the client
//! prefers, for Nodes, Services, EndpointSlices and ServiceCIDRs; it accepts Events and reports its version. Faults of server and network
//! can be injected.
//!
//! ```no_run
//! use ferrovia_lab::apiserver::{ApiServer, Kind, ApiServerOptions, sample};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = ApiServer::start(ApiServerOptions::default())?;
//! server.apply_many((0..100).map(sample::service))?;
//! let kubeconfig = server.kubeconfig(std::path::Path::new("/tmp/somewhere"))?;
//! // Start a client with the kubeconfig here. Then:
//! server.wait_until(|server| server.watches(Kind::Service) == 1)?;
//! server.apply(sample::slice(7, 3))?;
//! server.delete(Kind::Service, sample::NAMESPACE, "web-00007");
//! # Ok(())
//! # }
//! ```
//!
//! # What it does
//!
//! - It runs on its own thread, so that all functions here can be called from anywhere; only those
//!   named `wait` wait for a client. The listening socket is opened on the calling thread, and so in
//!   its network namespace. Dropping the server stops it.
//! - [`ApiServer::apply`] creates or replaces an object: it gets the next revision, and keeps its
//!   uid and creation time. Nothing else is validated or changed, so an object with fields of the
//!   wrong type is served as it is. Applying the same object again is a change, too.
//! - Lists support selectors, `limit` and `continue` (all pages have the resourceVersion of the first
//!   one), `resourceVersion` and `resourceVersionMatch`. Watches support selectors (an object that
//!   starts or stops matching is added or deleted), bookmarks, `timeoutSeconds` and
//!   `sendInitialEvents`; see [`WatchListSupport`] for older servers.
//! - Lists of more than 128 KiB are compressed for clients that accept it.
//! - [`ApiServer::compact`] expires all earlier resourceVersions: a watch gets an `ERROR` event in a
//!   200 response, the next page of a list a 410 response.
//! - New Events are validated as by real servers; an invalid one is rejected with 422.
//! - [`sample`] has objects of realistic size.
//!
//! `make conformance` compares its responses with those of a real server.
//!
//! # Faults
//!
//! | fault | function |
//! |---|---|
//! | a request is rejected, delayed, never answered, truncated | [`ApiServer::inject`] with a [`Fault`], until [`ApiServer::heal`] |
//! | a running watch sends no events, repeats them, or reorders them | the same |
//! | a running watch sends garbage, an incomplete or a huge line, or an error | [`ApiServer::write_to_watches`] |
//! | a running watch ends, cleanly or with an error | [`ApiServer::end_watches`] |
//! | connections are refused | [`ApiServer::refuse_connections`] |
//! | connections are reset, at once or in the middle of a line | [`ApiServer::reset_connections`], [`ApiServer::reset_in_next_write`] |
//! | the server closes connections gracefully (`GOAWAY`) | [`ApiServer::go_away`] |
//! | the network is slow or drops all bytes | [`ApiServer::interfere`] |
//! | open connections drop all bytes, new ones do not | [`ApiServer::freeze_connections`] |
//! | a token is no longer valid | [`ApiServer::rotate_token`] |
//! | the storage is restored from a backup | [`ApiServer::restore`] |
//!
//! # Limitations
//!
//! There is no discovery, RBAC, no writes other than new Events, and no protobuf fields that a proxy does not read. A future
//! resourceVersion is rejected at once, where real servers wait three seconds for it. A real server expires resourceVersions only when it
//! is restarted or has no watch cache, and responds with 403 for a moment after its start.

mod body;
mod credentials;
mod encoding;
mod event;
mod faults;
mod kind;
mod list;
mod listen;
mod object;
mod options;
mod protobuf;
mod query;
mod request;
pub mod sample;
mod selector;
mod serve;
mod state;
mod status;
mod store;
mod watch;
mod wire;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::mpsc;

use credentials::{Certificates, Kubeconfig};
pub use faults::{End, Fault, FaultTarget, Verb};
pub use kind::Kind;
use listen::ListenerSocket;
use object::Draft;
pub use options::{ApiServerOptions, Auth, WatchListSupport};
pub use request::Request;
use state::{ConnectionCommand, ServerState};
pub use wire::Interference;

/// How long [`ApiServer::wait_until`] waits. Far more than needed even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// How often [`ApiServer::wait_until`] checks when nothing happens.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// An error of the server's functions.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The object's kind is not served.
    #[error("the lab's API server does not serve the object's kind")]
    UnknownKind,
    /// The object cannot be stored.
    #[error("the object has no name, or its name or namespace is not a string")]
    NoName,
    /// A certificate could not be created.
    #[error("cannot create a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// TLS rejected a certificate.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// Client certificates cannot be requested.
    #[error("cannot request client certificates: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
    /// Client certificates were required without TLS.
    #[error("client certificates need TLS")]
    CertificateWithoutTls,
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    Io { action: String, source: io::Error },
    /// A wait timed out.
    #[error("the condition did not hold within {PATIENCE:?}; last requests: {0}")]
    Impatient(String),
    /// The server's thread has exited.
    #[error("the thread of the API server has exited")]
    Gone,
}

/// The state of a server at some point in time.
#[derive(Clone, Debug)]
pub struct Backup(store::Store);

/// A running server. Dropping it stops it and closes all connections.
pub struct ApiServer {
    address: SocketAddr,
    shared: Arc<ServerState>,
    certificates: Option<Box<Certificates>>,
    // The thread exits when this is dropped.
    commands: Option<mpsc::UnboundedSender<listen::ListenerCommand>>,
    thread: Option<JoinHandle<()>>,
}

impl ApiServer {
    /// Starts a server, listening in the network namespace of the calling thread.
    pub fn start(mut options: ApiServerOptions) -> Result<Self, Error> {
        if options.auth == Auth::ClientCertificate && !options.tls {
            return Err(Error::CertificateWithoutTls);
        }
        // A timer needs a period.
        options.bookmark_every = options.bookmark_every.max(Duration::from_millis(1));
        let socket = ListenerSocket::open(options.listen)
            .map_err(|source| failed(format!("listen on {}", options.listen), source))?;
        let address = socket.address;
        let certificates = match options.tls {
            true => Some(Box::new(Certificates::new(address.ip(), options.http2)?)),
            false => None,
        };
        let tls = certificates.as_ref().map(|c| c.server_config.clone());
        let shared = Arc::new(ServerState::new(options, new_token(1)));
        let (commands, incoming) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|source| failed("create a runtime", source))?;
        let served = shared.clone();
        let thread = std::thread::Builder::new()
            .name("lab-apiserver".into())
            .spawn(move || {
                let acceptor = tls.map(Into::into);
                // It fails only if the socket cannot be polled, and then no client can connect.
                let _ = runtime.block_on(listen::run(socket, served, acceptor, incoming));
            })
            .map_err(|source| failed("start a thread", source))?;
        Ok(Self {
            address,
            shared,
            certificates,
            commands: Some(commands),
            thread: Some(thread),
        })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL for clients.
    pub fn url(&self) -> String {
        credentials::url(self.address, self.certificates.is_some())
    }

    /// Writes a kubeconfig and the files it refers to into a folder; returns its path. Written again
    /// after [`ApiServer::rotate_token`] it has the new token.
    pub fn kubeconfig(&self, folder: &Path) -> Result<PathBuf, Error> {
        let token = self.token();
        let kubeconfig = Kubeconfig {
            address: self.address,
            certificates: self.certificates.as_deref(),
            auth: self.shared.options.auth,
            token: &token,
        };
        kubeconfig
            .write(folder)
            .map_err(|source| failed(format!("write into {}", folder.display()), source))
    }

    /// Signs another client certificate; [`ApiServer::kubeconfig`] writes it. The previous one stays valid.
    pub fn renew_client_certificate(&self) -> Result<(), Error> {
        match &self.certificates {
            Some(certificates) => certificates.renew_client(),
            None => Err(Error::CertificateWithoutTls),
        }
    }

    /// The newest client certificate (DER).
    pub fn client_certificate(&self) -> Vec<u8> {
        let certificates = self.certificates.as_deref();
        certificates.map(Certificates::client).unwrap_or_default()
    }

    /// The valid bearer token.
    pub fn token(&self) -> String {
        self.shared.state().token.clone()
    }

    /// Replaces the valid token, and returns the new one.
    pub fn rotate_token(&self) -> String {
        let mut state = self.shared.state();
        let number = state.token.rsplit('-').next().and_then(|n| n.parse().ok());
        state.token = new_token(number.unwrap_or(1) + 1);
        state.token.clone()
    }
}

/// Objects and requests.
impl ApiServer {
    /// Creates or replaces an object; returns its revision.
    pub fn apply(&self, object: Value) -> Result<u64, Error> {
        let draft = Draft::new(object)?;
        let revision = self.shared.state().store.apply(draft);
        self.shared.tell();
        Ok(revision)
    }

    /// Creates or replaces objects, one after the other.
    pub fn apply_many(&self, objects: impl IntoIterator<Item = Value>) -> Result<(), Error> {
        for object in objects {
            self.apply(object)?;
        }
        Ok(())
    }

    /// Deletes an object (the namespace is empty for cluster-scoped kinds); returns whether it existed.
    pub fn delete(&self, kind: Kind, namespace: &str, name: &str) -> bool {
        let deleted = self.shared.state().store.delete(kind, namespace, name);
        self.shared.tell();
        deleted.is_some()
    }

    /// All objects of a kind.
    pub fn objects(&self, kind: Kind) -> Vec<Value> {
        let objects = self.shared.state().store.all(kind);
        objects.iter().map(|object| object.value(kind)).collect()
    }

    /// The revision of the last change.
    pub fn revision(&self) -> u64 {
        self.shared.state().store.revision()
    }

    /// Expires all earlier resourceVersions: watches and pages from before now get 410 Gone.
    pub fn compact(&self) {
        self.shared.state().store.compact();
    }

    /// A backup of all objects and their history.
    pub fn back_up(&self) -> Backup {
        Backup(self.shared.state().store.clone())
    }

    /// Restores a backup and resets all connections, as when etcd is restored and the server restarted: later revisions are assigned again, to
    /// other changes.
    pub fn restore(&self, backup: &Backup) {
        let mut state = self.shared.state();
        state.store = backup.0.clone();
        state.send_to_connections(ConnectionCommand::Reset);
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.state().requests.clone()
    }

    /// All Events that clients have created, in the order of arrival.
    pub fn events(&self) -> Vec<Value> {
        self.shared.state().events.clone()
    }

    /// How many watches of a kind are open.
    pub fn watches(&self, kind: Kind) -> usize {
        self.shared.state().watches(kind)
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.shared.state().connections()
    }

    /// How many connections were made so far, with and without a request.
    pub fn connections_made(&self) -> usize {
        self.shared.state().connections_made()
    }

    /// How many answers were compressed so far.
    pub fn compressed(&self) -> usize {
        self.shared.state().compressed
    }

    /// Waits until something is so. Asks again whenever something has happened here, and now and
    /// then, as the condition may be about the client.
    pub fn wait_until(&self, mut condition: impl FnMut(&Self) -> bool) -> Result<(), Error> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let seen = self.shared.news();
            if condition(self) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(Error::Impatient(self.last_requests()));
            }
            self.shared.wait_for_news(seen, ASK_AGAIN);
        }
    }

    fn last_requests(&self) -> String {
        let state = self.shared.state();
        let last = state.requests.iter().rev().take(5);
        let lines: Vec<_> = last.map(|r| format!("{} {}", r.method, r.path)).collect();
        lines.join(", ")
    }
}

/// Faults.
impl ApiServer {
    /// Injects a fault into all future requests of a target.
    pub fn inject(&self, target: FaultTarget, fault: Fault) {
        self.shared.state().faults.add(target, fault, None);
        self.shared.tell();
    }

    /// Injects a fault into the next `times` requests of a target. Faults of running watches (such as
    /// [`Fault::Silence`]) stay until [`ApiServer::heal`].
    pub fn inject_times(&self, times: u32, target: FaultTarget, fault: Fault) {
        self.shared.state().faults.add(target, fault, Some(times));
        self.shared.tell();
    }

    /// Removes all faults and interference. A hanging request continues to hang.
    pub fn heal(&self) -> Result<(), Error> {
        let mut state = self.shared.state();
        state.faults.clear();
        state.interference = Interference::None;
        drop(state);
        self.shared.tell();
        self.refuse_connections(false)
    }

    /// Interferes with the bytes of all connections from now on.
    pub fn interfere(&self, interference: Interference) {
        self.shared.state().interference = interference;
    }

    /// Refuses new connections, or accepts them again. Open connections stay.
    pub fn refuse_connections(&self, refuse: bool) -> Result<(), Error> {
        let (done, finished) = std_mpsc::channel();
        let commands = self.commands.as_ref().ok_or(Error::Gone)?;
        commands
            .send(listen::ListenerCommand::Listen(!refuse, done))
            .map_err(|_| Error::Gone)?;
        let result = finished.recv().map_err(|_| Error::Gone)?;
        result.map_err(|source| failed(format!("listen on {} again", self.address), source))
    }

    /// Resets all open connections.
    pub fn reset_connections(&self) {
        let state = self.shared.state();
        state.send_to_connections(ConnectionCommand::Reset);
    }

    /// Stops all bytes on the connections that are open now, in both directions, until they are closed.
    pub fn freeze_connections(&self) {
        self.shared.state().freeze_connections();
    }

    /// Resets each open connection in the middle of what is written to it next. If that is an
    /// event, half of its line arrives.
    pub fn reset_in_next_write(&self) {
        self.shared.state().reset_in_next_write();
    }

    /// Makes all clients open new connections for new requests, while running ones finish.
    pub fn go_away(&self) {
        let state = self.shared.state();
        state.send_to_connections(ConnectionCommand::GoAway);
    }

    /// Writes bytes into all open watches of a kind, after the events so far. Nothing is added,
    /// not even a line ending.
    pub fn write_to_watches(&self, kind: Kind, bytes: impl Into<Bytes>) {
        let command = watch::WatchCommand::Write(bytes.into());
        self.shared.state().send_to_watches(kind, &command);
    }

    /// Ends all open watches of a kind, after the events so far.
    pub fn end_watches(&self, kind: Kind, end: End) {
        let command = watch::WatchCommand::End(end);
        self.shared.state().send_to_watches(kind, &command);
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            // The thread's panic has been printed already.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiServer({})", self.url())
    }
}

fn failed(action: impl Into<String>, source: io::Error) -> Error {
    let action = action.into();
    Error::Io { action, source }
}

fn new_token(number: u32) -> String {
    format!("lab-token-{number}")
}
