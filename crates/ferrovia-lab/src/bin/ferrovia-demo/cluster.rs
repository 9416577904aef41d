//! The cluster, the proxy on its node, and the folder of manifests it watches.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use ferrovia_lab::interrupt::Interrupt;
use ferrovia_lab::{Spec, World};

use crate::manifests::ManifestCopy;
use crate::proxy::ProxyProcess;

/// The HTTP port of the pods in the manifests.
const HTTP_PORT: u16 = 8080;

/// The UDP port of the pods in the manifests.
const DATAGRAM_PORT: u16 = 53;

/// The cluster that scenes use.
#[derive(Debug)]
pub(crate) struct DemoCluster {
    // Fields are dropped in order: the proxy is stopped before its namespace and folder are removed.
    proxy: Option<ProxyProcess>,
    /// Shared with the threads of clients.
    pub(crate) world: Arc<World>,
    pub(crate) scratch: ManifestCopy,
    pub(crate) interrupt: Interrupt,
    ferrovia: PathBuf,
    folder: PathBuf,
}

impl DemoCluster {
    /// Creates the cluster and starts the proxy on a copy of the manifests.
    pub(crate) fn build(
        ferrovia: &Path,
        folder: &Path,
        interrupt: Interrupt,
    ) -> anyhow::Result<Self> {
        let ferrovia = ferrovia
            .canonicalize()
            .with_context(|| format!("cannot find the program {}", ferrovia.display()))?;
        let scratch = ManifestCopy::copy_of(folder)?;
        // A killed demo could not clean up.
        World::sweep().context("cannot remove leftover namespaces of an earlier demo")?;
        let world = World::new(Spec {
            ports: vec![DATAGRAM_PORT],
            http_ports: vec![HTTP_PORT],
            ..Spec::default()
        })
        .context("cannot create the cluster of network namespaces")?;
        let mut cluster = Self {
            proxy: None,
            world: Arc::new(world),
            scratch,
            interrupt,
            ferrovia,
            folder: folder.to_owned(),
        };
        cluster.start_proxy()?;
        Ok(cluster)
    }

    /// Starts the proxy on the copy of the manifests; a running one is killed first.
    pub(crate) fn start_proxy(&mut self) -> anyhow::Result<()> {
        self.start_proxy_on(&self.scratch.manifests())
    }

    /// Starts the proxy on the original folder.
    pub(crate) fn start_proxy_on_folder(&mut self) -> anyhow::Result<()> {
        self.start_proxy_on(&self.folder.clone())
    }

    fn start_proxy_on(&mut self, manifests: &Path) -> anyhow::Result<()> {
        self.kill_proxy();
        let program = self.ferrovia.to_string_lossy();
        let proxy = ProxyProcess::start(&self.world, &program, manifests, self.scratch.root())?;
        self.proxy = Some(proxy);
        Ok(())
    }

    /// Kills the proxy with SIGKILL.
    pub(crate) fn kill_proxy(&mut self) {
        if let Some(proxy) = self.proxy.take() {
            proxy.kill();
        }
    }

    /// The proxy, if it was started.
    pub(crate) fn proxy(&mut self) -> Option<&mut ProxyProcess> {
        self.proxy.as_mut()
    }

    /// The path of the ferrovia program.
    pub(crate) fn ferrovia(&self) -> &Path {
        &self.ferrovia
    }

    /// The original folder of manifests.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}
