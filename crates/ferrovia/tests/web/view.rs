//! A daemon whose socket and page are looked at.

use std::net::SocketAddr;
use std::path::PathBuf;

use ferrovia::serve::admin::client::{Client, ClientError};
use ferrovia_lab::Role;
use ferrovia_lab::daemon::TestNode;
use serde_json::Value;

use super::client as http;
use crate::FERROVIA;

/// Where the page is.
pub(crate) const PAGE: &str = "127.0.0.1:10247";

/// A node whose daemon can be asked.
pub(crate) struct Viewed {
    pub(crate) node: TestNode,
    socket: PathBuf,
}

impl Viewed {
    /// A daemon on these files, with more flags.
    pub(crate) fn with(files: &[(&str, &str)], flags: &[&str]) -> Self {
        let node = TestNode::new(FERROVIA);
        for (name, text) in files {
            node.write(name, text);
        }
        // Beside the folder of manifests, not in it.
        let socket = node.folder().with_extension("sock");
        let viewed = Self { node, socket };
        viewed.start(flags);
        viewed
    }

    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        Self::with(files, &[])
    }

    pub(crate) fn start(&self, flags: &[&str]) {
        let mut command = self.node.run_command();
        command
            .arg(format!("--admin-socket={}", self.socket.display()))
            .arg(format!("--web-bind-address={PAGE}"))
            .args(flags);
        self.node.spawn(command);
        self.node.wait_until_ready();
    }

    pub(crate) fn socket(&self) -> &PathBuf {
        &self.socket
    }

    /// Asks over the socket.
    pub(crate) fn try_ask(&self, path: &str) -> Result<Value, ClientError> {
        Client::new(&self.socket).get(path)
    }

    pub(crate) fn ask(&self, path: &str) -> Value {
        self.try_ask(path)
            .unwrap_or_else(|error| panic!("{path}: {error}; log:\n{}", self.node.log()))
    }

    /// Asks over TCP, from the node.
    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> http::HttpResponse {
        let address: SocketAddr = PAGE.parse().expect("an address");
        let _inside = self
            .node
            .world
            .enter(Role::Node)
            .expect("the node is there");
        http::try_request(address, method, path, headers, "")
            .unwrap_or_else(|error| panic!("{path}: {error}; log:\n{}", self.node.log()))
    }
}

impl Drop for Viewed {
    fn drop(&mut self) {
        // A daemon that is killed leaves it.
        let _ = std::fs::remove_file(&self.socket);
    }
}
