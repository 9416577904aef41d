//! A pod without a kubeconfig: the server's address is in the environment, token and certificate authority in a projected volume.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use super::TestNode;
use crate::Role;

/// Mounts the volume where the kubelet does, in a mount namespace of this process, and becomes the daemon.
const RUN_IN_POD: &str = "\
mount -t tmpfs none /run
mkdir -p /run/secrets/kubernetes.io
ln -s \"$1\" /run/secrets/kubernetes.io/serviceaccount
shift
exec \"$@\"";

/// The projected volume of a service account.
#[derive(Debug)]
pub struct ServiceAccountVolume {
    folder: PathBuf,
    /// The folder of the current version, if one was projected.
    current: Option<PathBuf>,
    projections: u32,
}

impl ServiceAccountVolume {
    /// An empty volume in the folder of a node.
    pub fn new(node: &TestNode) -> Self {
        Self {
            folder: node.folder().join("serviceaccount"),
            current: None,
            projections: 0,
        }
    }

    /// Writes new contents as the kubelet does: a new folder, to which a symbolic link is switched atomically. The previous one is removed.
    pub fn project(&mut self, token: &str, authority: &str) {
        self.projections += 1;
        let version = format!("..version-{}", self.projections);
        let folder = self.folder.join(&version);
        fs::create_dir_all(&folder).expect("the volume is writable");
        for (name, text) in [
            ("token", token),
            ("ca.crt", authority),
            ("namespace", "kube-system"),
        ] {
            fs::write(folder.join(name), text).expect("the volume is writable");
            // These links exist from the second projection on.
            let _ = symlink(format!("..data/{name}"), self.folder.join(name));
        }
        let (draft, data) = (self.folder.join("..data_tmp"), self.folder.join("..data"));
        symlink(&version, &draft).expect("the volume is writable");
        fs::rename(draft, data).expect("the link can be replaced");
        if let Some(previous) = self.current.replace(folder) {
            fs::remove_dir_all(previous).expect("the previous version can be removed");
        }
    }

    /// Starts the daemon under kube-proxy's name with this volume, for the API server at an address; waits for its initial sync.
    pub fn start_daemon(&self, node: &TestNode, server: SocketAddr) {
        node.remove_kubeconfig();
        let mut command = node.world.exec(Role::Node, "unshare");
        command
            .args([
                "--mount",
                "--propagation=private",
                "sh",
                "-ec",
                RUN_IN_POD,
                "sh",
            ])
            .arg(&self.folder)
            .arg(node.kube_proxy_path())
            .args(node.kube_proxy_arguments())
            .env("KUBERNETES_SERVICE_HOST", server.ip().to_string())
            .env("KUBERNETES_SERVICE_PORT", server.port().to_string());
        node.spawn(command);
        node.wait_until_ready();
    }
}
