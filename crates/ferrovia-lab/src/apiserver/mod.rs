//! A stand-in for the Kubernetes API server, for tests and benchmarks of clients.
//!
//! It speaks list and watch as real servers do, over HTTP/1.1 and HTTP/2, with and without TLS, in
//! JSON or protobuf as the client prefers, for Nodes, Services, EndpointSlices and ServiceCIDRs; it takes events, and answers with its version. And
//! whatever can go wrong between a client and a server can be made to go wrong.
//!
//! ```no_run
//! use ferrovia_lab::apiserver::{ApiServer, Kind, Options, sample};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = ApiServer::start(Options::default())?;
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
//! - It runs on a thread of its own, so that all functions here can be called from anywhere; none
//!   waits for a client, but those that are called `wait`. The listening socket is opened on the
//!   calling thread, and so in its network namespace. Dropping the server ends it.
//! - [`ApiServer::apply`] creates or replaces an object: it gets the next revision, and keeps its
//!   uid and creation time. Nothing else of it is checked or changed, so an object with fields of
//!   the wrong type is served as it is. Applying the same again is a change, too.
//! - Lists know selectors, `limit` and `continue` (pages show the state of the first one),
//!   `resourceVersion` and `resourceVersionMatch`. Watches know selectors (an object that starts or
//!   stops to match is added or deleted), bookmarks, `timeoutSeconds` and `sendInitialEvents`; see
//!   [`StreamingLists`] for older servers.
//! - Lists of more than 128 KiB are compressed for clients that ask for it.
//! - [`ApiServer::compact`] makes everything before now too old: for a watch that is an `ERROR`
//!   event in an answer of 200, for the next page of a list an answer of 410.
//! - New Events are checked as real servers do; an Event that lacks something is refused with 422.
//! - [`sample`] has objects of realistic size.
//!
//! `make conformance` compares its answers with those of a real server.
//!
//! # What can go wrong
//!
//! | what | how |
//! |---|---|
//! | a request is refused, delayed, never answered, cut off | [`ApiServer::inject`] with a [`Fault`], until [`ApiServer::heal`] |
//! | a running watch falls silent, repeats events, or sends them in the wrong order | the same |
//! | a running watch sends garbage, a half or a huge line, or an error | [`ApiServer::write_to_watches`] |
//! | a running watch ends, rightly or with an error | [`ApiServer::end_watches`] |
//! | connections are refused | [`ApiServer::refuse_connections`] |
//! | connections are reset, at once or in the middle of a line | [`ApiServer::reset_connections`], [`ApiServer::reset_in_next_write`] |
//! | the client shall go elsewhere (`GOAWAY`) | [`ApiServer::go_away`] |
//! | bytes drip, or stop | [`ApiServer::interfere`] |
//! | open connections stop, new ones do not | [`ApiServer::freeze_connections`] |
//! | a token is no longer valid | [`ApiServer::rotate_token`] |
//! | the storage is restored from a backup | [`ApiServer::restore`] |
//!
//! # What it leaves out
//!
//! Discovery, fields in protobuf that no proxy reads, writes other than new events, and access rules. A version in
//! the future is refused at once, where real servers wait three seconds for it. A real server forgets
//! history only when it is restarted or has no watch cache, and answers 403 for a moment after its start.

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
mod shared;
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
pub use faults::{End, Fault, Target, Verb};
pub use kind::Kind;
use listen::Door;
use object::Draft;
pub use options::{Auth, Options, StreamingLists};
pub use request::Request;
use shared::{ConnectionOrder, Shared};
pub use wire::Interference;

/// How long [`ApiServer::wait_until`] waits. Far more than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// How often [`ApiServer::wait_until`] asks when nothing happens.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An object of a kind the server does not serve.
    #[error("the object's kind is not one the lab's API server knows")]
    UnknownKind,
    /// An object that cannot be stored.
    #[error("the object has no name, or its name or namespace is not a text")]
    NoName,
    /// A certificate could not be made.
    #[error("a certificate could not be made: {0}")]
    Certificate(#[from] rcgen::Error),
    /// TLS does not take what we made.
    #[error("TLS could not be set up: {0}")]
    Tls(#[from] rustls::Error),
    /// Client certificates could not be asked for.
    #[error("client certificates could not be asked for: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
    /// Client certificates were demanded of clients that cannot show them.
    #[error("client certificates need TLS")]
    CertificateWithoutTls,
    /// The system refused something.
    #[error("{action}: {source}")]
    Io {
        /// What was tried.
        action: String,
        /// The refusal.
        source: io::Error,
    },
    /// What was waited for has not happened.
    #[error("what was waited for has not happened within {PATIENCE:?}; last requests: {0}")]
    Impatient(String),
    /// The server's thread has ended.
    #[error("the thread of the API server is gone")]
    Gone,
}

/// The state of a server at some time.
#[derive(Clone, Debug)]
pub struct Backup(store::Store);

/// A running server. Dropping it ends it and closes all connections.
pub struct ApiServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    certificates: Option<Box<Certificates>>,
    // The thread ends when this is dropped.
    orders: Option<mpsc::UnboundedSender<listen::Order>>,
    thread: Option<JoinHandle<()>>,
}

impl ApiServer {
    /// Starts a server, listening in the network namespace of the calling thread.
    pub fn start(mut options: Options) -> Result<Self, Error> {
        if options.auth == Auth::ClientCertificate && !options.tls {
            return Err(Error::CertificateWithoutTls);
        }
        // A timer without a period is none.
        options.bookmark_every = options.bookmark_every.max(Duration::from_millis(1));
        let door = Door::open(options.listen)
            .map_err(|source| failed(format!("listening on {}", options.listen), source))?;
        let address = door.address;
        let certificates = match options.tls {
            true => Some(Box::new(Certificates::new(address.ip(), options.http2)?)),
            false => None,
        };
        let tls = certificates.as_ref().map(|c| c.server_config.clone());
        let shared = Arc::new(Shared::new(options, new_token(1)));
        let (orders, incoming) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|source| failed("making a runtime", source))?;
        let served = shared.clone();
        let thread = std::thread::Builder::new()
            .name("lab-apiserver".into())
            .spawn(move || {
                let acceptor = tls.map(Into::into);
                // It fails only if the socket cannot be watched, and then no client gets through.
                let _ = runtime.block_on(listen::run(door, served, acceptor, incoming));
            })
            .map_err(|source| failed("starting a thread", source))?;
        Ok(Self {
            address,
            shared,
            certificates,
            orders: Some(orders),
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL clients use.
    pub fn url(&self) -> String {
        credentials::url(self.address, self.certificates.is_some())
    }

    /// Writes a kubeconfig and what it names into a folder, and returns its path. Written again
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
            .map_err(|source| failed(format!("writing into {}", folder.display()), source))
    }

    /// Signs another client certificate; [`ApiServer::kubeconfig`] writes it. The one before stays valid.
    pub fn renew_client_certificate(&self) -> Result<(), Error> {
        match &self.certificates {
            Some(certificates) => certificates.renew_client(),
            None => Err(Error::CertificateWithoutTls),
        }
    }

    /// The newest client certificate, as clients show it (DER).
    pub fn client_certificate(&self) -> Vec<u8> {
        let certificates = self.certificates.as_deref();
        certificates.map(Certificates::client).unwrap_or_default()
    }

    /// The bearer token that is accepted now.
    pub fn token(&self) -> String {
        self.shared.state().token.clone()
    }

    /// Accepts a new token instead of the old one, and returns it.
    pub fn rotate_token(&self) -> String {
        let mut state = self.shared.state();
        let number = state.token.rsplit('-').next().and_then(|n| n.parse().ok());
        state.token = new_token(number.unwrap_or(1) + 1);
        state.token.clone()
    }
}

/// What the server holds and has seen.
impl ApiServer {
    /// Creates or replaces an object, and returns its revision.
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

    /// Deletes an object (the namespace is empty for kinds that have none), and says whether it was
    /// there.
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

    /// Forgets all history: watches and pages from before now are refused with 410.
    pub fn compact(&self) {
        self.shared.state().store.compact();
    }

    /// All objects and their history, to go back to.
    pub fn back_up(&self) -> Backup {
        Backup(self.shared.state().store.clone())
    }

    /// Goes back to a backup and resets all connections, as when etcd is restored and the server restarted: revisions that were given out
    /// since are given out again, for other changes.
    pub fn restore(&self, backup: &Backup) {
        let mut state = self.shared.state();
        state.store = backup.0.clone();
        state.order_connections(ConnectionOrder::Reset);
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.state().requests.clone()
    }

    /// All events clients have made, in the order of arrival.
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

/// What goes wrong.
impl ApiServer {
    /// Makes a fault happen to all requests of a target from now on.
    pub fn inject(&self, target: Target, fault: Fault) {
        self.shared.state().faults.add(target, fault, None);
        self.shared.tell();
    }

    /// Makes a fault happen to the next so many requests of a target. Those of running watches
    /// ([`Fault::Silence`] and the like) last all the same.
    pub fn inject_times(&self, times: u32, target: Target, fault: Fault) {
        self.shared.state().faults.add(target, fault, Some(times));
        self.shared.tell();
    }

    /// Takes all faults and interference back. A request that hangs goes on hanging.
    pub fn heal(&self) -> Result<(), Error> {
        let mut state = self.shared.state();
        state.faults.clear();
        state.interference = Interference::None;
        drop(state);
        self.shared.tell();
        self.refuse_connections(false)
    }

    /// Does something to the bytes of all connections from now on.
    pub fn interfere(&self, interference: Interference) {
        self.shared.state().interference = interference;
    }

    /// Refuses new connections, or accepts them again. Open connections stay.
    pub fn refuse_connections(&self, refuse: bool) -> Result<(), Error> {
        let (done, finished) = std_mpsc::channel();
        let orders = self.orders.as_ref().ok_or(Error::Gone)?;
        orders
            .send(listen::Order::Listen(!refuse, done))
            .map_err(|_| Error::Gone)?;
        let result = finished.recv().map_err(|_| Error::Gone)?;
        result.map_err(|source| failed(format!("listening on {} again", self.address), source))
    }

    /// Resets all open connections.
    pub fn reset_connections(&self) {
        let state = self.shared.state();
        state.order_connections(ConnectionOrder::Reset);
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

    /// Tells all clients to make new connections for new requests, and lets running ones finish.
    pub fn go_away(&self) {
        let state = self.shared.state();
        state.order_connections(ConnectionOrder::GoAway);
    }

    /// Writes bytes into all open watches of a kind, behind the events so far. Nothing is added,
    /// not even the end of a line.
    pub fn write_to_watches(&self, kind: Kind, bytes: impl Into<Bytes>) {
        let order = watch::Order::Write(bytes.into());
        self.shared.state().order_watches(kind, &order);
    }

    /// Ends all open watches of a kind, behind the events so far.
    pub fn end_watches(&self, kind: Kind, end: End) {
        let order = watch::Order::End(end);
        self.shared.state().order_watches(kind, &order);
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed already.
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
