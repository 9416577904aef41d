//! kube-apiserver: its command line, its files, and when it is ready.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use rcgen::KeyPair;

use super::client::{ApiClient, ApiRequest, Credentials};
use super::pki::{Identity, Pki};
use super::process::{Process, Stop};
use super::{ControlPlaneOptions, Error, PORT, READY, etcd};
use crate::Folder;
use crate::waiting::try_at_most;

/// The Service addresses, both families.
const SERVICE_CIDRS: &str = "10.96.0.0/12,fd00:10:96::/112";

/// The issuer of service account tokens.
const ISSUER: &str = "https://kubernetes.default.svc";

/// kube-apiserver and its configuration.
#[derive(Debug)]
pub(super) struct Server {
    program: PathBuf,
    folder: PathBuf,
    options: ControlPlaneOptions,
    admin: Identity,
    probe: ApiClient,
    process: Option<Process>,
}

impl Server {
    /// Writes its files.
    pub(super) fn new(
        program: PathBuf,
        folder: &Folder,
        pki: &Pki,
        options: ControlPlaneOptions,
    ) -> Result<Self, Error> {
        let (v4, v6) = (
            IpAddr::from(Ipv4Addr::LOCALHOST),
            Ipv6Addr::LOCALHOST.into(),
        );
        let serving = pki.server(&[v4, v6, options.advertise])?;
        let tokens = KeyPair::generate()?;
        for (name, text) in [
            ("ca.crt", pki.authority()),
            ("server.crt", serving.certificate),
            ("server.key", serving.key),
            ("tokens.key", tokens.serialize_pem()),
            ("tokens.pub", tokens.public_key_pem()),
        ] {
            write(folder.path(), name, &text)?;
        }
        let admin = pki.client("admin", Some("system:masters"))?;
        let credentials = Credentials::Certificate(admin.clone());
        let probe = ApiClient::new((v4, PORT).into(), &pki.authority(), credentials)?;
        Ok(Self {
            program,
            folder: folder.path().to_owned(),
            options,
            admin,
            probe,
            process: None,
        })
    }

    /// The administrator's certificate.
    pub(super) fn admin(&self) -> &Identity {
        &self.admin
    }

    pub(super) fn process(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// Starts it and waits until it is ready.
    pub(super) fn start(&mut self) -> Result<(), Error> {
        let process = Process::start("kube-apiserver", self.command(), &self.folder)?;
        let process = self.process.insert(process);
        let probe = &self.probe;
        try_at_most(READY, || {
            if !process.is_running() {
                return Err("the process exited".to_owned());
            }
            let reply = probe.ask(&ApiRequest::get("/readyz"));
            let reply = reply.map_err(|error| error.to_string())?;
            match reply.head.code {
                200 => Ok(()),
                _ => Err(String::from_utf8_lossy(&reply.body).into_owned()),
            }
        })
        .map_err(|reason| Error::NotReady {
            program: "kube-apiserver",
            reason,
            log: process.tail(),
        })
    }

    pub(super) fn stop(&mut self, how: Stop) -> Result<(), Error> {
        self.process
            .take()
            .map_or(Ok(()), |process| process.stop(how))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        let file = |option: &str, name: &str| {
            let path = self.folder.join(name);
            format!("--{option}={}", path.display())
        };
        command
            .args([
                format!("--etcd-servers={}", etcd::URL),
                // Tests compact explicitly.
                "--etcd-compaction-interval=0".to_owned(),
                "--bind-address=::".to_owned(),
                format!("--secure-port={PORT}"),
                format!("--advertise-address={}", self.options.advertise),
                file("cert-dir", "certificates"),
                file("tls-cert-file", "server.crt"),
                file("tls-private-key-file", "server.key"),
                file("client-ca-file", "ca.crt"),
                format!("--service-account-issuer={ISSUER}"),
                file("service-account-signing-key-file", "tokens.key"),
                file("service-account-key-file", "tokens.pub"),
                format!("--service-cluster-ip-range={SERVICE_CIDRS}"),
                "--authorization-mode=RBAC".to_owned(),
                // Its controller does not run.
                "--disable-admission-plugins=ServiceAccount".to_owned(),
            ])
            .args(&self.options.arguments);
        command
    }
}

/// Replaces the trusted client certificate authorities.
pub(super) fn trust(folder: &Path, authorities: &str) -> Result<(), Error> {
    write(folder, "ca.crt", authorities).map(drop)
}

/// Writes a kubeconfig and the files it refers to into a folder; returns its path.
pub(super) fn kubeconfig(
    folder: &Path,
    address: SocketAddr,
    authority: &str,
    identity: &Identity,
) -> Result<PathBuf, Error> {
    let authority = write(folder, "ca.crt", authority)?;
    let certificate = write(folder, "client.crt", &identity.certificate)?;
    let key = write(folder, "client.key", &identity.key)?;
    let text = format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n- name: lab\n  cluster:\n    server: https://{address}\n    certificate-authority: {}\n\
         users:\n- name: lab\n  user:\n    client-certificate: {}\n    client-key: {}\n\
         contexts:\n- name: lab\n  context:\n    cluster: lab\n    user: lab\n\
         current-context: lab\n",
        authority.display(),
        certificate.display(),
        key.display(),
    );
    write(folder, "kubeconfig", &text)
}

/// Writes a file atomically, because a program may be reading it.
fn write(folder: &Path, name: &str, text: &str) -> Result<PathBuf, Error> {
    let path = folder.join(name);
    let draft = folder.join(format!(".{name}.new"));
    fs::write(&draft, text)
        .and_then(|()| fs::rename(&draft, &path))
        .map_err(|source| Error::io(format!("write {}", path.display()), source))?;
    Ok(path)
}
