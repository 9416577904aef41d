//! A real control plane on loopback: kube-apiserver and etcd, as processes of the calling thread's network namespace.
//!
//! The programs come from the folder that `KUBEBUILDER_ASSETS` names ([`Assets`]). Ports are fixed, so there is one control plane in a
//! namespace. The server has RBAC with its stock roles, TLS with an authority of its own, a service account issuer and dual-stack Service
//! addresses (10.96.0.0/12 and fd00:10:96::/112). There are no controllers: EndpointSlices are what a test creates.
//!
//! - `assets`: where the programs are
//! - `pki`: certificates
//! - `process`, `etcd`, `server`: the programs
//! - `client`: HTTP requests with access to all headers
//! - `relay`: a slow or broken network in front of the server

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
pub use client::{ApiClient, ApiRequest, ApiResponse, Connection, Credentials, ResponseHead};
pub use pki::{Identity, Pki};
pub use process::Stop;
pub use relay::Relay;

use crate::Folder;
use etcd::Etcd;
use server::Server;

/// The port of the API server. Pods of the lab use port 6443.
pub const PORT: u16 = 16443;

/// How long a program may take to become ready.
const READY: Duration = Duration::from_secs(180);

/// Why a control plane could not be started or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A certificate could not be created.
    #[error("cannot create a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// A certificate could not be used.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// A program did not become ready.
    #[error("{program} did not become ready: {reason}; its log ends with\n{log}")]
    NotReady {
        program: &'static str,
        reason: String,
        /// The end of its log.
        log: String,
    },
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    Io { action: String, source: io::Error },
}

impl Error {
    fn io(action: String, source: io::Error) -> Self {
        Self::Io { action, source }
    }
}

/// The options of a control plane.
#[derive(Clone, Debug)]
pub struct ControlPlaneOptions {
    /// The name of the etcd program in the folder.
    pub etcd: &'static str,
    /// Additional arguments for kube-apiserver.
    pub arguments: Vec<String>,
    /// The endpoint of the Service `kubernetes`; not a loopback address.
    pub advertise: IpAddr,
}

/// A running control plane. Dropping it kills both programs and removes their data.
#[derive(Debug)]
pub struct ControlPlane {
    // Dropped before etcd: a server without etcd only logs errors.
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
    /// If one of them does not become ready.
    pub fn start(assets: &Assets, options: ControlPlaneOptions) -> Result<Self, Error> {
        let folder =
            Folder::make().map_err(|source| Error::io("create a folder".into(), source))?;
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

    /// The server's IPv4 address on loopback.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, PORT).into()
    }

    /// The server's IPv6 address on loopback.
    pub fn address_v6(&self) -> SocketAddr {
        (Ipv6Addr::LOCALHOST, PORT).into()
    }

    /// The certificate authority of server and clients.
    pub fn pki(&self) -> &Pki {
        &self.pki
    }

    /// The folder of the programs' data and logs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A client with these credentials.
    ///
    /// # Errors
    /// If they cannot be used.
    pub fn client(&self, credentials: Credentials) -> Result<ApiClient, Error> {
        let authority = self.pki.authority();
        Ok(ApiClient::new(self.address(), &authority, credentials)?)
    }

    /// A client with all permissions.
    ///
    /// # Errors
    /// If its certificate cannot be created.
    pub fn admin(&self) -> Result<ApiClient, Error> {
        self.client(Credentials::Certificate(self.server.admin().clone()))
    }

    /// Writes a kubeconfig and the files it refers to into a folder; returns its path.
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

    /// The process ID of kube-apiserver, while it runs.
    pub fn server_process(&self) -> Option<u32> {
        self.server.process()
    }
}

/// Restarts, and operations of an administrator.
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
    /// If it does not become ready.
    pub fn start_server(&mut self) -> Result<(), Error> {
        self.server.start()
    }

    /// Trusts client certificates of an additional authority, instead of the previous additional one. The server reloads the file by itself.
    ///
    /// # Errors
    /// If its file cannot be written.
    pub fn trust_clients_of(&self, other: &Pki) -> Result<(), Error> {
        let both = format!("{}{}", self.pki.authority(), other.authority());
        server::trust(self.folder(), &both)
    }

    /// Compacts etcd to the current revision.
    ///
    /// # Errors
    /// If etcd refuses.
    pub fn compact(&self) -> Result<(), Error> {
        self.etcd.compact()
    }

    /// Backs up all data. Both programs are restarted.
    ///
    /// # Errors
    /// If the data cannot be copied, or one of the programs does not become ready.
    pub fn back_up(&mut self) -> Result<(), Error> {
        self.offline(Etcd::back_up)
    }

    /// Restores the backup. Both programs are restarted.
    ///
    /// # Errors
    /// If the data cannot be copied, or one of the programs does not become ready.
    pub fn restore(&mut self) -> Result<(), Error> {
        self.offline(Etcd::restore)
    }

    fn offline(&mut self, work: impl FnOnce(&Etcd) -> Result<(), Error>) -> Result<(), Error> {
        self.server.stop(Stop::Kill)?;
        // Its log must not be mixed with the previous one.
        self.etcd.stop(Stop::Term)?;
        work(&self.etcd)?;
        self.etcd.start_again()?;
        self.server.start()
    }
}
