//! The certificates and tokens of server and client, and the kubeconfig that contains them.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType,
};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use super::Error;
use super::options::Auth;

/// The user of all accepted credentials.
pub(super) const USER: &str = "system:kube-proxy";

/// A certificate authority and the certificates it has signed.
pub(super) struct Certificates {
    authority: CertifiedIssuer<'static, KeyPair>,
    client: Mutex<Pair>,
    pub(super) server_config: Arc<ServerConfig>,
}

/// A certificate and its key, as PEM, and the certificate as DER.
#[derive(Clone, Debug)]
struct Pair {
    certificate: String,
    key: String,
    der: Vec<u8>,
}

impl Certificates {
    /// Creates an authority, and signs a server at this address and a client. The server may offer HTTP/2.
    pub(super) fn new(server: IpAddr, http2: bool) -> Result<Self, Error> {
        let mut params = named("lab-authority")?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;

        Ok(Self {
            client: Mutex::new(Pair::signed_by(&authority)?),
            server_config: server_config(server, &authority, http2)?,
            authority,
        })
    }

    /// Signs another client.
    pub(super) fn renew_client(&self) -> Result<(), Error> {
        let pair = Pair::signed_by(&self.authority)?;
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = pair;
        Ok(())
    }

    /// The client's certificate as DER.
    pub(super) fn client(&self) -> Vec<u8> {
        self.pair().der
    }

    fn pair(&self) -> Pair {
        let pair = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        pair.clone()
    }
}

impl Pair {
    fn signed_by(authority: &CertifiedIssuer<'static, KeyPair>) -> Result<Self, Error> {
        let mut params = named(USER)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, authority)?;
        Ok(Self {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            der: certificate.der().to_vec(),
        })
    }
}

fn named(name: &str) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::new(vec![])?;
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

fn server_config(
    address: IpAddr,
    authority: &CertifiedIssuer<'_, KeyPair>,
    http2: bool,
) -> Result<Arc<ServerConfig>, Error> {
    let mut params = named("lab-apiserver")?;
    params.subject_alt_names = vec![SanType::IpAddress(address)];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, authority)?;

    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone())?;
    let provider = Arc::new(default_provider());
    // As with real servers, a client without a certificate can connect and gets 401.
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone())
        .allow_unauthenticated()
        .build()?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate.der().clone()], key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    if http2 {
        config.alpn_protocols.insert(0, b"h2".to_vec());
    }
    Ok(Arc::new(config))
}

/// The contents of a kubeconfig.
pub(super) struct Kubeconfig<'a> {
    pub(super) address: SocketAddr,
    pub(super) certificates: Option<&'a Certificates>,
    pub(super) auth: Auth,
    pub(super) token: &'a str,
}

impl Kubeconfig<'_> {
    /// Writes it, and the files it refers to, into a folder; returns its path.
    pub(super) fn write(&self, folder: &Path) -> io::Result<PathBuf> {
        fs::create_dir_all(folder)?;
        // Clients resolve a relative path from the folder of the kubeconfig.
        let folder = &std::path::absolute(folder)?;
        let cluster = match self.certificates {
            Some(certificates) => {
                let file = put(folder, "ca.crt", &certificates.authority.pem())?;
                format!("    certificate-authority: {file}\n")
            }
            None => String::new(),
        };
        let user = self.write_user(folder)?;
        let url = url(self.address, self.certificates.is_some());
        let text = format!(
            "apiVersion: v1\n\
             kind: Config\n\
             clusters:\n- name: lab\n  cluster:\n    server: {url}\n{cluster}\
             users:\n- name: lab\n  user:{user}\
             contexts:\n- name: lab\n  context:\n    cluster: lab\n    user: lab\n\
             current-context: lab\n"
        );
        put(folder, "kubeconfig", &text)?;
        Ok(folder.join("kubeconfig"))
    }

    fn write_user(&self, folder: &Path) -> io::Result<String> {
        Ok(match (self.auth, self.certificates) {
            (Auth::Token, _) => format!("\n    token: {}\n", self.token),
            (Auth::TokenFile, _) => {
                let file = put(folder, "token", self.token)?;
                format!("\n    tokenFile: {file}\n")
            }
            (Auth::ClientCertificate, Some(certificates)) => {
                let client = certificates.pair();
                let certificate = put(folder, "client.crt", &client.certificate)?;
                let key = put(folder, "client.key", &client.key)?;
                format!("\n    client-certificate: {certificate}\n    client-key: {key}\n")
            }
            (Auth::ClientCertificate, None) | (Auth::None, _) => " {}\n".into(),
        })
    }
}

/// The URL of a server at this address.
pub(super) fn url(address: SocketAddr, tls: bool) -> String {
    let scheme = if tls { "https" } else { "http" };
    format!("{scheme}://{address}")
}

/// Writes a file atomically, because a client may be reading it; returns its path.
fn put(folder: &Path, name: &str, text: &str) -> io::Result<String> {
    let path = folder.join(name);
    let draft = folder.join(format!(".{name}.new"));
    fs::write(&draft, text)?;
    fs::rename(&draft, &path)?;
    Ok(path.display().to_string())
}
