//! The configuration, in the order data flows: [`flags`] as typed and [`file`](mod@file) as read ([`decode`]) meet in one [`file::Document`],
//! which is completed (`complete.rs`, `defaults.rs`, `sections.rs`), checked ([`validate`]) and becomes a [`Config`], the configuration as used
//! (`used.rs`). [`watch`] hears when the file changes.

mod complete;
pub mod decode;
mod defaults;
pub mod duration;
pub mod file;
pub mod flags;
pub mod gates;
mod keys;
mod logs;
mod sections;
mod used;
pub mod validate;
pub mod watch;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ferrovia_core::desired::NodeSettings;

use crate::conntrack::limits::ConntrackSettings;
use crate::logging::LogSettings;
use crate::mode::{ModeRef, ModeSettings};
use crate::source::kube::ApiAccess;
use crate::sync::Pace;
use decode::DecodeError;
pub use defaults::ADMIN_SOCKET;
use gates::FeatureGates;
use validate::FieldError;

/// Everything a running proxy needs to know: typed, checked, complete.
#[derive(Clone, Debug)]
pub struct Config {
    /// What is to be done.
    pub action: Action,
    /// Where objects come from.
    pub source: Source,
    /// The configured mode; none to choose one.
    pub mode: Option<ModeRef>,
    /// What shapes traffic.
    pub settings: NodeSettings,
    /// This node's address as set by hand. Its family is then the node's first one.
    pub bind_address: Option<IpAddr>,
    /// How often things happen.
    pub pace: Pace,
    /// How often kube-proxy tells itself of all objects again. Nobody asks for it here: what is in the kernel is compared every sync period.
    pub config_sync_period: Duration,
    /// Elements in the kernel count connections.
    pub counters: bool,
    /// End after the first sync, whether it succeeded or not.
    pub once: bool,
    /// What to do while another proxy writes in this network namespace.
    pub when_owned: WhenOwned,
    /// Where health is served, if anywhere.
    pub health: Option<SocketAddr>,
    /// Where metrics are served, if anywhere.
    pub metrics: Option<SocketAddr>,
    /// Where the page for people is served, if anywhere.
    pub web: Option<SocketAddr>,
    /// The socket on which commands ask the daemon, if there is one.
    pub admin_socket: Option<PathBuf>,
    /// End if health or metrics cannot be bound.
    pub bind_hard_fail: bool,
    /// Serve profiles where metrics are served.
    pub profiling: bool,
    /// Serve the metrics that this version hides, of which there are none.
    pub show_hidden_metrics: bool,
    /// For `/proc/self/oom_score_adj`, -1000 to 1000.
    pub oom_score_adj: i32,
    /// Limits and time-outs of connection tracking.
    pub conntrack: ConntrackSettings,
    /// What is logged, and how.
    pub log: LogSettings,
    /// Node ports answer on 127.0.0.1, in the iptables mode.
    pub localhost_node_ports: bool,
    /// The settings that only one mode has.
    pub modes: ModeSettings,
    /// Kubernetes' feature gates.
    pub gates: FeatureGates,
    /// The completed configuration, for `/configz` and `--write-config-to`. `nodePortAddresses: primary` is in it as it is written.
    pub document: serde_json::Value,
    /// Every flag with its value, by name, for `/flagz`.
    pub flags: BTreeMap<String, String>,
    /// The file this came from, to be watched.
    pub config_file: Option<ConfigFile>,
    /// What people should know, once there is a log.
    pub remarks: Vec<Remark>,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Run the proxy.
    Run,
    /// Do what needs full privileges, then end.
    InitOnly,
    /// Remove all rules, then end.
    Cleanup {
        /// Even while a proxy runs.
        force: bool,
    },
    /// Write the configuration into a file, then end.
    WriteConfig(PathBuf),
}

/// What to do while another proxy writes in this network namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenOwned {
    /// Wait until it exits, ready to go on where it stopped.
    #[default]
    Wait,
    /// Exit with an error.
    Exit,
}

/// Where objects come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A folder of manifests.
    Manifests(PathBuf),
    /// An API server.
    Kube(ApiAccess),
}

/// A configuration file as it was read.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigFile {
    /// Where it is.
    pub path: PathBuf,
    /// What was in it.
    pub content: Vec<u8>,
}

impl std::fmt::Debug for ConfigFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConfigFile")
            .field("path", &self.path)
            .field("bytes", &self.content.len())
            .finish()
    }
}

/// Something to tell, once there is a log to tell it to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// It is likely not what was meant.
    pub is_warning: bool,
    /// What there is to tell.
    pub text: String,
}

impl Remark {
    /// Logs it.
    pub fn log(&self) {
        if self.is_warning {
            tracing::warn!("{}", self.text);
        } else {
            tracing::info!("{}", self.text);
        }
    }
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The file cannot be understood.
    #[error("cannot decode the configuration file {}: {cause}", path.display())]
    Decode {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: DecodeError,
    },
    /// The host name cannot be read.
    #[error("cannot read the host name ({0}); give --hostname-override")]
    HostName(io::Error),
    /// Values that cannot be used, all of them.
    #[error("the configuration is not valid: {}", list(.0))]
    Invalid(Vec<FieldError>),
}

/// As Kubernetes joins errors: one as it is, several in brackets.
fn list(errors: &[FieldError]) -> String {
    let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
    match texts.as_slice() {
        [one] => one.clone(),
        _ => format!("[{}]", texts.join(", ")),
    }
}
