//! The cluster, the proxy in its node, and the folder of manifests it follows.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use ferrovia_lab::interrupt::Interrupt;
use ferrovia_lab::{Spec, World};

use crate::manifests::Scratch;
use crate::proxy::Proxy;

/// The port on which the pods answer HTTP requests, as the manifests have it.
const HTTP_PORT: u16 = 8080;

/// The port on which the pods answer datagrams.
const DATAGRAM_PORT: u16 = 53;

/// Everything a scene works with.
#[derive(Debug)]
pub(crate) struct Stage {
    // Fields are dropped in order: the proxy ends before its namespace and its folder go.
    proxy: Option<Proxy>,
    /// Shared with the threads that call while a scene changes something.
    pub(crate) world: Arc<World>,
    pub(crate) scratch: Scratch,
    pub(crate) interrupt: Interrupt,
    ferrovia: PathBuf,
    folder: PathBuf,
}

impl Stage {
    /// Builds the cluster and starts the proxy on a copy of the manifests.
    pub(crate) fn build(
        ferrovia: &Path,
        folder: &Path,
        interrupt: Interrupt,
    ) -> anyhow::Result<Self> {
        let ferrovia = ferrovia
            .canonicalize()
            .with_context(|| format!("cannot find the program {}", ferrovia.display()))?;
        let scratch = Scratch::copy_of(folder)?;
        // A demo that was killed could not tidy up after itself.
        World::sweep().context("cannot remove what an earlier demo left")?;
        let world = World::new(Spec {
            ports: vec![DATAGRAM_PORT],
            http_ports: vec![HTTP_PORT],
            ..Spec::default()
        })
        .context("cannot build the cluster of network namespaces")?;
        let mut stage = Self {
            proxy: None,
            world: Arc::new(world),
            scratch,
            interrupt,
            ferrovia,
            folder: folder.to_owned(),
        };
        stage.start_proxy()?;
        Ok(stage)
    }

    /// Starts the proxy on the copy of the manifests; one that ran before ends.
    pub(crate) fn start_proxy(&mut self) -> anyhow::Result<()> {
        self.start_proxy_on(&self.scratch.manifests())
    }

    /// Starts the proxy on the folder people edit.
    pub(crate) fn start_proxy_on_folder(&mut self) -> anyhow::Result<()> {
        self.start_proxy_on(&self.folder.clone())
    }

    fn start_proxy_on(&mut self, manifests: &Path) -> anyhow::Result<()> {
        self.kill_proxy();
        let program = self.ferrovia.to_string_lossy();
        let proxy = Proxy::start(&self.world, &program, manifests, self.scratch.root())?;
        self.proxy = Some(proxy);
        Ok(())
    }

    /// Ends the proxy as `kill -9` does.
    pub(crate) fn kill_proxy(&mut self) {
        if let Some(proxy) = self.proxy.take() {
            proxy.kill();
        }
    }

    /// The proxy, while there is one.
    pub(crate) fn proxy(&mut self) -> Option<&mut Proxy> {
        self.proxy.as_mut()
    }

    /// The proxy's program.
    pub(crate) fn ferrovia(&self) -> &Path {
        &self.ferrovia
    }

    /// The folder the manifests come from.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}
