//! A real control plane on loopback: kube-apiserver and etcd, as processes of the calling thread's network namespace.
//!
//! The programs come from the folder that `KUBEBUILDER_ASSETS` names ([`Assets`]). Ports are fixed, so there is one control plane in a
//! namespace. The server has RBAC with its stock roles, TLS with an authority of its own, a service account issuer and dual-stack Service
//! addresses (10.96.0.0/12 and fd00:10:96::/112). There are no controllers: EndpointSlices are what a test creates.
//!
//! - `assets`: where the programs are
//! - `pki`: certificates
//! - `process`, `etcd`, `server`: the programs
//! - `client`: requests with every header in view
//! - `relay`: a slow or broken network before the server

mod assets;
mod client;
mod etcd;
mod pki;
mod process;
mod relay;
mod server;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use assets::{Assets, AssetsError, VARIABLE};
pub use client::{Ask, Client, Connection, Credentials, Head, Reply};
pub use pki::{Identity, Pki};
pub use process::Stop;
pub use relay::Relay;

use crate::Folder;
use etcd::Etcd;
use server::Server;

/// The port of the API server. Port 6443 belongs to the lab's pods.
pub const PORT: u16 = 16443;

/// How long a program may take to be ready.
const READY: Duration = Duration::from_secs(180);

/// Why a control plane could not be run or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A certificate could not be made.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// A certificate could not be used.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// A program did not get ready.
    #[error("{program} did not become ready: {reason}; its log ends with\n{log}")]
    NotReady {
        /// The program.
        program: &'static str,
        /// What was seen last.
        reason: String,
        /// The end of its log.
        log: String,
    },
    /// The system refused something.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried.
        action: String,
        /// The refusal.
        source: io::Error,
    },
}

impl Error {
    fn io(action: String, source: io::Error) -> Self {
        Self::Io { action, source }
    }
}

/// What a control plane is to be like.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which etcd of the folder to run.
    pub etcd: &'static str,
    /// More arguments for kube-apiserver.
    pub arguments: Vec<String>,
    /// The address at which the Service `kubernetes` finds the server; none on loopback.
    pub advertise: IpAddr,
}

/// A running control plane. Dropping it kills both programs and removes their data.
#[derive(Debug)]
pub struct ControlPlane {
    // Dropped before etcd: a server without etcd only complains.
    server: Server,
    etcd: Etcd,
    pki: Pki,
    folder: Folder,
}

impl ControlPlane {
    /// Starts etcd and kube-apiserver in the network namespace of the calling thread, and waits until they are ready. They do not outlive
    /// that thread.
    ///
    /// # Errors
    /// If one of them does not get ready.
    pub fn start(assets: &Assets, options: Options) -> Result<Self, Error> {
        let folder = Folder::make().map_err(|source| Error::io("make a folder".into(), source))?;
        let pki = Pki::new()?;
        let etcd = Etcd::start(assets.path(options.etcd), folder.path())?;
        let mut server = Server::new(assets.path("kube-apiserver"), &folder, &pki, options)?;
        server.start()?;
        Ok(Self {
            server,
            etcd,
            pki,
            folder,
        })
    }

    /// Where the server listens on loopback, IPv4.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, PORT).into()
    }

    /// The same, IPv6.
    pub fn address_v6(&self) -> SocketAddr {
        (Ipv6Addr::LOCALHOST, PORT).into()
    }

    /// The authority that signed the server and signs clients.
    pub fn pki(&self) -> &Pki {
        &self.pki
    }

    /// Where the data and logs of the programs are.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A client with these credentials.
    ///
    /// # Errors
    /// If they cannot be used.
    pub fn client(&self, credentials: Credentials) -> Result<Client, Error> {
        let authority = self.pki.authority();
        Ok(Client::new(self.address(), &authority, credentials)?)
    }

    /// A client that may do everything.
    ///
    /// # Errors
    /// If its certificate cannot be made.
    pub fn admin(&self) -> Result<Client, Error> {
        self.client(Credentials::Certificate(self.server.admin().clone()))
    }

    /// Writes a kubeconfig and what it names into a folder; answers with its path.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn kubeconfig(
        &self,
        folder: &Path,
        address: SocketAddr,
        identity: &Identity,
    ) -> Result<PathBuf, Error> {
        server::kubeconfig(folder, address, &self.pki.authority(), identity)
    }

    /// The process number of kube-apiserver, while it runs.
    pub fn server_process(&self) -> Option<u32> {
        self.server.process()
    }
}

/// What an administrator does, and what happens to machines.
impl ControlPlane {
    /// Stops kube-apiserver.
    ///
    /// # Errors
    /// If it cannot be stopped.
    pub fn stop_server(&mut self, how: Stop) -> Result<(), Error> {
        self.server.stop(how)
    }

    /// Starts kube-apiserver, and waits until it is ready.
    ///
    /// # Errors
    /// If it does not get ready.
    pub fn start_server(&mut self) -> Result<(), Error> {
        self.server.start()
    }

    /// Accepts client certificates of one more authority, instead of the one that was given here before. The server notices by itself.
    ///
    /// # Errors
    /// If its file cannot be written.
    pub fn trust_clients_of(&self, other: &Pki) -> Result<(), Error> {
        let both = format!("{}{}", self.pki.authority(), other.authority());
        server::trust(self.folder(), &both)
    }

    /// Makes etcd forget all revisions before the present one.
    ///
    /// # Errors
    /// If etcd refuses.
    pub fn compact(&self) -> Result<(), Error> {
        self.etcd.compact()
    }

    /// Keeps a copy of all data. Both programs are stopped for that and started again.
    ///
    /// # Errors
    /// If the data cannot be copied, or one of the programs does not get ready.
    pub fn back_up(&mut self) -> Result<(), Error> {
        self.offline(Etcd::back_up)
    }

    /// Goes back to the copy. Both programs are stopped for that and started again.
    ///
    /// # Errors
    /// If the data cannot be copied, or one of the programs does not get ready.
    pub fn restore(&mut self) -> Result<(), Error> {
        self.offline(Etcd::restore)
    }

    fn offline(&mut self, work: impl FnOnce(&Etcd) -> Result<(), Error>) -> Result<(), Error> {
        self.server.stop(Stop::Kill)?;
        // It must not have to read its log of the time before.
        self.etcd.stop(Stop::Term)?;
        work(&self.etcd)?;
        self.etcd.start_again()?;
        self.server.start()
    }
}
