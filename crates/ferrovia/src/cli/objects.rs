//! Where commands that only look get their answers from: the daemon that runs here, or objects that they read themselves.
//!
//! `source.rs` is where objects are, `read.rs` reads them; what they amount to on the node is [`Loaded`].

mod read;
mod source;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use ferrovia_core::desired::{Builder, Desired};
use ferrovia_core::family::Family;
use ferrovia_core::store::Store;
use ferrovia_core::trace::TraceContext;

pub(super) use self::read::{Read, read, read_about};
pub(super) use self::source::{SourceFlags, WHERE};
use super::flags::ShapeFlags;
use crate::config::{ADMIN_SOCKET, Config};
use crate::inspect::query::diff::Kernel;
use crate::inspect::query::{Question, Relevance};
use crate::mode::{self, Mode, ModeRef};
use crate::serve::admin::client::Client;

/// Which objects to use, for which node and mode; or which daemon to ask.
#[derive(Debug, Args)]
pub(super) struct ObjectFlags {
    #[command(flatten)]
    source: SourceFlags,

    #[command(flatten)]
    shape: ShapeFlags,

    /// Mode that programs the kernel [default: the configuration's, or nftables]
    #[arg(long, value_name = "MODE", alias = "proxy-mode")]
    mode: Option<ModeRef>,

    /// An address of the node that is asked about, instead of this machine's; may be given several times
    #[arg(long, value_name = "IP")]
    local_address: Vec<IpAddr>,

    /// Socket of the daemon to ask, if no objects are named [default: /run/ferrovia/admin.sock]
    #[arg(long, value_name = "PATH", conflicts_with_all = ["config", "manifests", "kubeconfig", "master"])]
    admin_socket: Option<PathBuf>,
}

impl ValueEnum for ModeRef {
    fn value_variants<'a>() -> &'a [Self] {
        mode::by_name()
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()))
    }
}

/// Which families to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Families {
    Ipv4,
    Ipv6,
    Both,
}

impl Families {
    pub(super) fn list(self) -> &'static [Family] {
        match self {
            Self::Ipv4 => &[Family::V4],
            Self::Ipv6 => &[Family::V6],
            Self::Both => &Family::ALL,
        }
    }

    /// The parameter of the admin API; none for both.
    pub(super) fn parameter(self) -> Option<&'static str> {
        match self {
            Self::Ipv4 => Some("family=IPv4"),
            Self::Ipv6 => Some("family=IPv6"),
            Self::Both => None,
        }
    }
}

/// Who answers.
pub(super) enum Answerer {
    /// A daemon that runs here.
    Daemon(Client),
    /// We do, from objects that we read.
    Objects,
}

/// What the objects amount to on the node.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) store: Store,
    pub(super) builder: Builder,
    pub(super) addresses: Vec<IpAddr>,
    /// How this machine is looked at.
    pub(super) kernel: Kernel,
    /// What people should know about the objects.
    warnings: Vec<String>,
    /// All objects could be read.
    pub(super) is_complete: bool,
    /// The question is about this machine, so its kernel can be asked too.
    pub(super) is_here: bool,
}

impl Loaded {
    /// Says what is wrong with the objects.
    pub(super) fn print_warnings(&self) {
        self.warnings.iter().for_each(|line| eprintln!("{line}"));
    }

    pub(super) fn mode(&self) -> &dyn Mode {
        &*self.kernel.mode
    }

    pub(super) fn desired(&self, family: Family) -> &Desired {
        self.builder.desired(family)
    }

    /// The state that packets are traced through.
    pub(super) fn trace_context(&self) -> TraceContext<'_> {
        TraceContext {
            builder: &self.builder,
            store: &self.store,
            addresses: &self.addresses,
            profile: self.mode().trace_profile(),
        }
    }
}

impl ObjectFlags {
    /// Who is to answer: whoever the flags name, else the daemon if there is one, else the API server of the cluster that this runs in.
    pub(super) fn answerer(&self) -> anyhow::Result<Answerer> {
        if self.source.is_named() {
            return Ok(Answerer::Objects);
        }
        let socket = self.admin_socket.as_deref();
        let path = socket.unwrap_or(Path::new(ADMIN_SOCKET));
        let client = Client::new(path);
        let has_daemon = socket.is_some() || client.is_there();
        match (has_daemon, self.has_settings(), self.source.is_known()) {
            (true, false, _) => Ok(Answerer::Daemon(client)),
            (false, _, true) | (true, true, true) if socket.is_none() => Ok(Answerer::Objects),
            (true, true, _) => bail!(
                "the daemon at {} answers by its own settings: leave out --mode, --local-address and the settings, or {WHERE}",
                path.display()
            ),
            (false, ..) => bail!(
                "there is no daemon at {} to ask and no objects are named: start one, give its --admin-socket, or {WHERE}",
                path.display()
            ),
        }
    }

    /// Something is set that a daemon would not heed.
    fn has_settings(&self) -> bool {
        self.mode.is_some() || !self.local_address.is_empty() || !self.shape.is_default()
    }

    /// Reads all objects.
    pub(super) fn load(&self) -> anyhow::Result<Loaded> {
        if !self.source.is_known() {
            bail!("where are the objects? {WHERE}");
        }
        self.load_from(&self.source)
    }

    /// The same from a folder, whatever other source the flags name.
    pub(super) fn load_folder(&self, folder: &Path) -> anyhow::Result<Loaded> {
        self.load_from(&self.source.with_folder(folder))
    }

    fn load_from(&self, source: &SourceFlags) -> anyhow::Result<Loaded> {
        let config = self.configuration(source)?;
        let objects = read(&config)?;
        self.apply(&config, objects)
    }

    /// Only what matters to a question, of a folder: that takes a small part of the time. None if it is another source, or if all of it has
    /// to be read to be sure.
    pub(super) fn load_about(&self, question: &Question) -> anyhow::Result<Option<Loaded>> {
        if !self.source.is_known() {
            return Ok(None);
        }
        let config = self.configuration(&self.source)?;
        let relevance = Relevance::to(question, &self.addresses()?);
        let objects = read_about(&config, relevance);
        objects.map(|read| self.apply(&config, read)).transpose()
    }

    /// What the objects amount to.
    fn apply(&self, config: &Config, objects: Read) -> anyhow::Result<Loaded> {
        let Read {
            mut store,
            mut warnings,
            is_complete,
        } = objects;
        let mut builder = Builder::new(config.settings.clone());
        let mut touched = store.take_touched();
        touched.node = true;
        let addresses = self.addresses()?;
        let update = builder.update(&store, touched, &addresses);
        let told = update.warnings.iter();
        warnings.extend(told.map(|warning| format!("warning: {warning}")));
        let mode = mode::choose(config);
        Ok(Loaded {
            store,
            builder,
            addresses,
            kernel: Kernel {
                mode,
                counters: config.counters,
                proxies: None,
            },
            warnings,
            is_complete,
            is_here: self.local_address.is_empty(),
        })
    }

    fn configuration(&self, source: &SourceFlags) -> anyhow::Result<Config> {
        let node_name = self.shape.node_name();
        let settings = self.shape.as_typed();
        let mut config = source.configuration(node_name, settings, self.mode)?;
        config.mode = config.mode.or(Some(mode::DEFAULT));
        Ok(config)
    }

    fn addresses(&self) -> anyhow::Result<Vec<IpAddr>> {
        if self.local_address.is_empty() {
            return Ok(ferrovia_host::addr::local_addresses()?);
        }
        Ok(self.local_address.clone())
    }
}
