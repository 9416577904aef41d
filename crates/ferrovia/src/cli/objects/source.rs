//! Where objects and settings come from.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::config::{Config, Source, flags};
use crate::mode::ModeRef;

/// For messages: how to name a place.
pub(in crate::cli) const WHERE: &str =
    "give --manifests DIR, or --config FILE or --kubeconfig FILE for those of an API server";

/// Where objects and settings come from.
#[derive(Clone, Debug, Args)]
pub(in crate::cli) struct SourceFlags {
    /// Configuration file of the daemon, or of a kube-proxy; all settings are then taken from it, and the objects from the API server it names, unless
    /// --manifests is given
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Folder with Services, EndpointSlices (or Endpoints), and if you like a Node and ServiceCIDRs; YAML or JSON, sub-folders too
    #[arg(long, value_name = "DIR")]
    manifests: Option<PathBuf>,

    /// Credentials for the API server, to take the objects from there
    #[arg(long, value_name = "FILE", conflicts_with = "manifests")]
    kubeconfig: Option<PathBuf>,

    /// Address of the API server, to take the objects from there
    #[arg(long, value_name = "URL", conflicts_with = "manifests")]
    master: Option<String>,
}

impl SourceFlags {
    /// The flags name a place for objects, or a configuration that does.
    pub(in crate::cli) fn is_named(&self) -> bool {
        self.config.is_some()
            || self.manifests.is_some()
            || self.kubeconfig.is_some()
            || self.master.is_some()
    }

    /// Objects can be found: where the flags say, or in the cluster that this runs in.
    pub(in crate::cli) fn is_known(&self) -> bool {
        self.is_named() || std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
    }

    /// The same with this folder, whatever other source the flags name.
    pub(super) fn with_folder(&self, folder: &Path) -> Self {
        Self {
            config: self.config.clone(),
            manifests: Some(folder.to_owned()),
            kubeconfig: None,
            master: None,
        }
    }

    /// The configuration, with more flags of the daemon's, as if a mode were set in it. `settings` are those that a configuration file goes
    /// before.
    pub(in crate::cli) fn configuration(
        &self,
        node_name: Option<&str>,
        settings: Vec<String>,
        mode: Option<ModeRef>,
    ) -> anyhow::Result<Config> {
        let path = |name: &str, path: &Option<PathBuf>| {
            let path = path.as_ref()?;
            Some(format!("--{name}={}", path.display()))
        };
        // A configuration file names an API server, and the daemon would not know which of the two is meant.
        let (folder, manifests) = match &self.config {
            Some(_) => (self.manifests.clone(), None),
            None => (None, self.manifests.clone()),
        };
        let typed = [
            path("config", &self.config),
            path("manifests", &manifests),
            path("kubeconfig", &self.kubeconfig),
            self.master.as_ref().map(|url| format!("--master={url}")),
            node_name.map(|name| format!("--hostname-override={name}")),
        ];
        let settings = settings.into_iter().filter(|_| self.config.is_none());
        let typed = flags::parse(typed.into_iter().flatten().chain(settings))?;
        let mut config = Config::load_in(typed, mode)?;
        if let Some(folder) = folder {
            config.source = Source::Manifests(folder);
        }
        Ok(config)
    }
}
