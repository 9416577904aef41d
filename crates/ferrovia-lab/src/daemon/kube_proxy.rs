//! The daemon as a drop-in replacement for kube-proxy: run under that name, with kubeadm's configuration file and arguments.

use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::TestNode;
use crate::Role;
use crate::plain_http::{HttpResponse, try_request};
use crate::waiting::wait;

/// The address of the health server, as kube-proxy has it.
pub const HEALTH: &str = "127.0.0.1:10256";
/// The address of the metrics server, as kube-proxy has it.
pub const METRICS: &str = "127.0.0.1:10249";

/// The file as kubeadm writes it, with a mode, and without the limits of connections, which are settings of the whole machine.
const CONFIG: &str = include_str!("kubeadm.yaml");

/// The daemon under kube-proxy's name.
impl TestNode {
    /// Links the program as `kube-proxy` and writes a configuration file that names this kubeconfig.
    pub fn install_as_kube_proxy(&self, kubeconfig: &Path) {
        symlink(&self.program, self.kube_proxy_path()).expect("the folder is writable");
        self.use_kubeconfig(kubeconfig);
    }

    /// Writes the configuration file with this kubeconfig.
    pub fn use_kubeconfig(&self, kubeconfig: &Path) {
        let path = kubeconfig.to_str().expect("the path is UTF-8");
        self.write("config.conf", &CONFIG.replace("KUBECONFIG", path));
    }

    /// The link to the program.
    pub fn kube_proxy_path(&self) -> PathBuf {
        self.folder().join("kube-proxy")
    }

    pub fn config_file(&self) -> PathBuf {
        self.folder().join("config.conf")
    }

    /// The text of the configuration file.
    pub fn config(&self) -> String {
        std::fs::read_to_string(self.config_file()).expect("the configuration file is readable")
    }

    /// Replaces a part of the configuration file.
    pub fn edit_config(&self, from: &str, to: &str) {
        let text = self.config();
        assert!(text.contains(from), "no {from:?} in {text}");
        self.write("config.conf", &text.replacen(from, to, 1));
    }

    /// Clears the kubeconfig field, so that the daemon uses the credentials of its pod.
    pub fn remove_kubeconfig(&self) {
        let config = self.config();
        let line = config.lines().find(|line| line.contains("kubeconfig: "));
        self.edit_config(line.expect("the file has the field"), "  kubeconfig: \"\"");
    }

    /// The program under kube-proxy's name, in the node's namespace.
    pub fn kube_proxy(&self) -> Command {
        let path = self.kube_proxy_path();
        let path = path.to_str().expect("the path is UTF-8");
        self.world.exec(Role::Node, path)
    }

    /// The arguments of kubeadm's DaemonSet, and no admin socket: daemons of parallel tests would otherwise use the same one.
    pub fn kube_proxy_arguments(&self) -> [String; 3] {
        [
            format!("--config={}", self.config_file().display()),
            "--hostname-override=node-1".to_owned(),
            "--admin-socket=".to_owned(),
        ]
    }

    /// Starts the daemon under kube-proxy's name and waits for its initial sync.
    pub fn start_as_kube_proxy(&self) {
        self.start_as_kube_proxy_without_waiting();
        self.wait_until_ready();
    }

    /// Starts the daemon under kube-proxy's name without waiting for its initial sync.
    pub fn start_as_kube_proxy_without_waiting(&self) {
        let mut command = self.kube_proxy();
        command.args(self.kube_proxy_arguments());
        self.spawn(command);
    }
}

/// Requests to the daemon's servers, from the node.
impl TestNode {
    /// Sends a GET request. The error includes the daemon's log.
    pub fn try_get(&self, address: &str, path: &str) -> Result<HttpResponse, String> {
        let address: SocketAddr = address.parse().expect("an address and port");
        let _inside = self
            .world
            .enter(Role::Node)
            .expect("the node's namespace can be entered");
        try_request(address, "GET", path, &[], "")
            .map_err(|error| format!("{address}{path}: {error}; log:\n{}", self.log()))
    }

    /// The sum of the series with this name and all of these labels, such as `code="200"`.
    pub fn try_metric(&self, name: &str, labels: &[&str]) -> Result<f64, String> {
        let text = self.try_get(METRICS, "/metrics")?.body;
        let series = text.lines().filter_map(|line| {
            let (own, value) = line.strip_prefix(name)?.rsplit_once(' ')?;
            let has_name = own.is_empty() || own.starts_with('{');
            (has_name && labels.iter().all(|label| own.contains(label)))
                .then(|| value.parse::<f64>().expect("a sample is a number"))
        });
        Ok(series.sum())
    }

    /// Waits until a metric is at least this.
    pub fn wait_for_metric(&self, name: &str, labels: &[&str], least: f64) {
        wait(|| match self.try_metric(name, labels)? {
            value if value >= least => Ok(()),
            value => Err(format!(
                "{name} {labels:?} is {value}; log:\n{}",
                self.log()
            )),
        });
    }
}
