//! How to reach the API server: from a kubeconfig, from the pod we run in, or from an address alone.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Uri;
use jiff::Timestamp;
use kube::Config;
use kube::config::{AuthProviderConfig, Cluster, Kubeconfig, KubeconfigError};

use super::format::Encoding;
use super::{exec, proxy};

/// More of a file than this is not read: certificates and tokens are small.
const LARGEST_FILE: u64 = 1 << 20;

/// What the configuration says about reaching the API server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ApiAccess {
    /// `clientConnection.kubeconfig`. Without it and without `master` the pod's service account is used.
    pub kubeconfig: Option<PathBuf>,
    /// `--master`: the server's address, which wins over the one in the kubeconfig.
    pub master: Option<String>,
    /// `clientConnection.qps`: requests a second; 0 means the default of 5, less means no limit.
    pub qps: f32,
    /// `clientConnection.burst`: requests at once; 0 means the default of 10.
    pub burst: u32,
    /// `clientConnection.contentType`: how objects are asked for.
    pub encoding: Encoding,
}

/// Why there is no way to the API server. Says where to look, and never repeats what a file with secrets holds.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The kubeconfig cannot be used.
    #[error("kubeconfig {path}: {field}: {what}")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The field in it.
        field: &'static str,
        /// What is wrong.
        what: String,
    },
    /// There is no kubeconfig and this is no pod of a cluster.
    #[error(
        "neither a kubeconfig nor a master address was given, and this is not a pod with a service account: {0}"
    )]
    NotInCluster(String),
    /// The address given on the command line cannot be used.
    #[error("--master {address}: {what}")]
    Master {
        /// The address.
        address: String,
        /// What is wrong.
        what: String,
    },
    /// A token cannot be read.
    #[error("the token in {path} cannot be read: {what}")]
    TokenFile {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The program that gives us credentials failed.
    #[error("the exec plugin {command:?} of the kubeconfig: {what}")]
    ExecPlugin {
        /// The program.
        command: String,
        /// What is wrong.
        what: String,
    },
    /// The kubeconfig names no authority, and the machine has none.
    #[error(
        "cannot check who {server} is: this machine's certificate authorities cannot be used ({what}); name the cluster's as \
         certificate-authority in the kubeconfig, or install the package ca-certificates"
    )]
    NoAuthority {
        /// The server.
        server: String,
        /// What is wrong.
        what: String,
    },
    /// A certificate, a key or another means of connecting cannot be used.
    #[error("cannot prepare to connect to {server}: {what}")]
    Connection {
        /// The server.
        server: String,
        /// What is wrong.
        what: String,
    },
}

/// A way to the server, and the files it depends on.
pub(super) struct Opened {
    pub(super) config: Config,
    pub(super) files: Files,
    /// When the credentials that an exec plugin gave expire.
    pub(super) expires: Option<Timestamp>,
}

impl ApiAccess {
    /// Reads the files, and runs the exec plugin if there is one, for as long as the limit. Blocks meanwhile.
    pub(super) fn open(&self, limit: Duration) -> Result<Opened, AccessError> {
        let mut opened = match (&self.kubeconfig, &self.master) {
            (Some(path), _) => self.open_kubeconfig(path)?,
            (None, Some(address)) => {
                let mut config = Config::new(server_address(address)?);
                config.proxy_url = environment_proxy(&config.cluster_url)?;
                Opened {
                    config,
                    files: Files::default(),
                    expires: None,
                }
            }
            (None, None) => in_cluster()?,
        };
        opened.take_token()?;
        opened.expires = exec::resolve(&mut opened.config.auth_info, limit)?;
        Ok(opened)
    }

    fn open_kubeconfig(&self, path: &Path) -> Result<Opened, AccessError> {
        let fail = |error: KubeconfigError| kubeconfig_error(path, &error);
        let mut kubeconfig = Kubeconfig::read_from(path).map_err(fail)?;
        let mut authority = None;
        let mut proxy = None;
        if let Some(cluster) = current_cluster(&mut kubeconfig) {
            if let Some(address) = &self.master {
                cluster.server = Some(server_address(address)?.to_string());
            }
            authority.clone_from(&cluster.certificate_authority);
            proxy = cluster.proxy_url.take().filter(|url| !url.is_empty());
        }
        let mut config = Config::try_from(kubeconfig).map_err(fail)?;
        // The library takes it for an authority that nobody has, and no server could ever be reached.
        if config.root_cert.as_ref().is_some_and(Vec::is_empty) {
            return Err(AccessError::Kubeconfig {
                path: path.to_owned(),
                field: "clusters[].cluster.certificate-authority",
                what: match &authority {
                    Some(file) => format!("there is no PEM certificate in {file}"),
                    None => "there is no PEM certificate in the data".to_owned(),
                },
            });
        }
        // The library would apply the environment's exceptions to the proxy's address instead of the server's.
        config.proxy_url = match proxy {
            Some(url) => Some(
                proxy::parse(&url).map_err(|error| fail(KubeconfigError::ParseProxyUrl(error)))?,
            ),
            None => environment_proxy(&config.cluster_url)?,
        };
        let user = &config.auth_info;
        // The library would run it without a limit. client-go has not had providers that are programs since 1.26.
        if user.auth_provider.as_ref().is_some_and(runs_program) {
            return Err(AccessError::Kubeconfig {
                path: path.to_owned(),
                field: "users[].user.auth-provider",
                what: "a provider that runs a program is not supported; use exec".to_owned(),
            });
        }
        let named = [&user.client_certificate, &user.client_key, &user.token_file];
        let files = named.into_iter().flatten().cloned().chain(authority);
        let files = files.map(PathBuf::from).chain([path.to_owned()]);
        Ok(Opened {
            files: Files(files.collect()),
            config,
            expires: None,
        })
    }
}

fn runs_program(provider: &AuthProviderConfig) -> bool {
    provider.config.contains_key("cmd-path")
}

/// The cluster that the current context names.
fn current_cluster(kubeconfig: &mut Kubeconfig) -> Option<&mut Cluster> {
    let current = kubeconfig.current_context.as_ref()?;
    let context = kubeconfig
        .contexts
        .iter()
        .find(|context| context.name == *current)?;
    let name = &context.context.as_ref()?.cluster;
    let cluster = kubeconfig
        .clusters
        .iter_mut()
        .find(|cluster| cluster.name == *name)?;
    cluster.cluster.as_mut()
}

fn environment_proxy(server: &Uri) -> Result<Option<Uri>, AccessError> {
    proxy::from_environment(server, |name| std::env::var(name).ok())
        .transpose()
        .map_err(|error| AccessError::Connection {
            server: server.to_string(),
            what: format!("the proxy that the environment names cannot be used: {error}"),
        })
}

impl Opened {
    /// Reads the token ourselves: the file may end in a line break, which is no part of the token, and it wins over a token that is
    /// written out.
    fn take_token(&mut self) -> Result<(), AccessError> {
        let user = &mut self.config.auth_info;
        let Some(path) = user.token_file.take() else {
            return Ok(());
        };
        let path = PathBuf::from(path);
        let fail = |what: String| AccessError::TokenFile {
            path: path.clone(),
            what,
        };
        let bytes = read(&path).map_err(|error| fail(error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|_| fail("it is not text".to_owned()))?;
        let token = text.trim();
        if token.is_empty() {
            return Err(fail("the file is empty".to_owned()));
        }
        user.token = Some(token.to_owned().into());
        Ok(())
    }
}

/// Files whose content makes a difference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Files(Vec<PathBuf>);

impl Files {
    /// Differs when one of them changed. Files that cannot be read count as they are: what was read of them before may still do.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for path in &self.0 {
            read(path).ok().hash(&mut hasher);
        }
        hasher.finish()
    }
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?
        .take(LARGEST_FILE)
        .read_to_end(&mut content)?;
    Ok(content)
}

fn in_cluster() -> Result<Opened, AccessError> {
    let mut config =
        Config::incluster().map_err(|error| AccessError::NotInCluster(error.to_string()))?;
    config.proxy_url = environment_proxy(&config.cluster_url)?;
    let token = config.auth_info.token_file.as_deref().map(PathBuf::from);
    let files = token.into_iter().chain(config.root_cert_file.clone());
    Ok(Opened {
        files: Files(files.collect()),
        config,
        expires: None,
    })
}

/// An address without a scheme means plain HTTP, as it does for kube-proxy.
fn server_address(address: &str) -> Result<Uri, AccessError> {
    let fail = |what: String| AccessError::Master {
        address: address.to_owned(),
        what,
    };
    let full = if address.contains("://") {
        address.to_owned()
    } else {
        format!("http://{address}")
    };
    let uri: Uri = full
        .parse()
        .map_err(|error: http::uri::InvalidUri| fail(error.to_string()))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(fail("it must begin with http:// or https://".to_owned()));
    }
    if uri.host().is_none_or(str::is_empty) {
        return Err(fail("it names no host".to_owned()));
    }
    Ok(uri)
}

/// Says which field is at fault. The library's own words for a file that does not parse would quote lines of it.
fn kubeconfig_error(path: &Path, error: &KubeconfigError) -> AccessError {
    let (field, what) = match error {
        KubeconfigError::ReadConfig(error, _) => ("the file", format!("cannot be read: {error}")),
        KubeconfigError::Parse(error) => {
            ("the file", format!("is not a kubeconfig{}", place(error)))
        }
        KubeconfigError::CurrentContextNotSet => ("current-context", "is not set".to_owned()),
        KubeconfigError::LoadContext(name) => (
            "current-context",
            format!("there is no context of the name {name:?}"),
        ),
        KubeconfigError::LoadClusterOfContext(name) => (
            "contexts[].context.cluster",
            format!("there is no cluster of the name {name:?}"),
        ),
        KubeconfigError::MissingClusterUrl => {
            ("clusters[].cluster.server", "is not set".to_owned())
        }
        KubeconfigError::ParseClusterUrl(error) => ("clusters[].cluster.server", error.to_string()),
        KubeconfigError::ParseProxyUrl(error) => {
            ("clusters[].cluster.proxy-url", error.to_string())
        }
        KubeconfigError::LoadCertificateAuthority(error) => (
            "clusters[].cluster.certificate-authority",
            error.to_string(),
        ),
        KubeconfigError::ParseCertificates(error) => (
            "clusters[].cluster.certificate-authority",
            error.to_string(),
        ),
        KubeconfigError::LoadClientCertificate(error) => {
            ("users[].user.client-certificate", error.to_string())
        }
        KubeconfigError::LoadClientKey(error) => ("users[].user.client-key", error.to_string()),
        KubeconfigError::ParseNoProxy(error) => ("the environment's NO_PROXY", error.to_string()),
        other => ("the file", other.to_string()),
    };
    AccessError::Kubeconfig {
        path: path.to_owned(),
        field,
        what,
    }
}

fn place(error: &serde_saphyr::Error) -> String {
    error.location().map_or_else(String::new, |place| {
        format!(" (line {}, column {})", place.line(), place.column())
    })
}

#[cfg(test)]
mod tests;
