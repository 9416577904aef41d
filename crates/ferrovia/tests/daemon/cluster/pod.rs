//! In a pod without a kubeconfig: the server's address comes by the environment, token and authority by a mounted folder.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use ferrovia_lab::Role;
use ferrovia_lab::apiserver::{ApiServer, Auth, Options};

use super::Cluster;
use crate::support::{wait, web};

/// Makes, for this process only, the folder that the kubelet mounts into a pod, and becomes the daemon. It follows the files, as they are
/// replaced when a token is renewed.
const AS_IN_A_POD: &str = "\
mount -t tmpfs none /run
mkdir -p /run/secrets/kubernetes.io
ln -s \"$1\" /run/secrets/kubernetes.io/serviceaccount
shift
exec \"$@\"";

/// Writes a version of a projected volume as the kubelet does: a new folder, to which one link is turned in a single step.
fn project(cluster: &Cluster, volume: &Path, version: &str) {
    let folder = volume.join(version);
    fs::create_dir_all(&folder).expect("it is ours");
    let written = cluster.api.kubeconfig(cluster.node.folder());
    written.expect("the authority's certificate is written with it");
    let authority = cluster.node.folder().join("ca.crt");
    fs::copy(authority, folder.join("ca.crt")).expect("it is there");
    fs::write(folder.join("namespace"), "kube-system").expect("it is ours");
    fs::write(folder.join("token"), cluster.api.token()).expect("it is ours");
    let (draft, data) = (volume.join("..data_tmp"), volume.join("..data"));
    symlink(version, &draft).expect("a link can be made");
    fs::rename(draft, data).expect("a link can be replaced");
    for name in ["ca.crt", "namespace", "token"] {
        // There from the second version on.
        let _ = symlink(Path::new("..data").join(name), volume.join(name));
    }
}

/// Starts the daemon as in a pod. Answers with the folder of its projected volume.
fn start_in_a_pod(cluster: &Cluster) -> PathBuf {
    let folder = cluster.node.folder();
    let volume = folder.join("serviceaccount");
    project(cluster, &volume, "..first");
    let config = cluster.config();
    let line = config.lines().find(|line| line.contains("kubeconfig: "));
    cluster.configure(line.expect("the file has one"), "  kubeconfig: \"\"");

    let server = cluster.api.address();
    let mut command = cluster.node.world.exec(Role::Node, "unshare");
    command
        .args([
            "--mount",
            "--propagation=private",
            "sh",
            "-ec",
            AS_IN_A_POD,
            "sh",
        ])
        .arg(&volume)
        .arg(folder.join("kube-proxy"))
        .args(cluster.arguments())
        .env("KUBERNETES_SERVICE_HOST", server.ip().to_string())
        .env("KUBERNETES_SERVICE_PORT", server.port().to_string());
    cluster.node.spawn(command);
    cluster.node.wait_until_ready();
    volume
}

#[test]
fn a_service_account_is_enough() {
    let cluster = Cluster::new();
    cluster.apply(&web(&["2.10"]));
    let volume = start_in_a_pod(&cluster);
    cluster
        .node
        .expect("pod-c > 10.96.0.10:80 => 10.244.2.10:8080");

    // The kubelet renews the token, and the old one is not accepted any more.
    cluster.api.rotate_token();
    project(&cluster, &volume, "..second");
    fs::remove_dir_all(volume.join("..first")).expect("it is ours");
    cluster.api.reset_connections();
    cluster.apply(&web(&["1.10"]));
    cluster
        .node
        .expect_soon("pod-c > 10.96.0.10:80 => 10.244.1.10:8080");
}

/// The cluster's authority is replaced: the server has a certificate of another one, and the kubelet projects its certificate.
#[test]
fn another_authority_is_trusted_once_it_is_projected() {
    let mut cluster = Cluster::new();
    cluster.apply(&web(&["2.10"]));
    let volume = start_in_a_pod(&cluster);
    let listen = cluster.api.address();
    let closed = cluster.api.refuse_connections(true);
    closed.expect("the port is free for the other one");
    let after = wait(|| {
        let _inside = cluster.node.world.enter(Role::Node).expect("it is there");
        let options = Options {
            listen,
            tls: true,
            auth: Auth::TokenFile,
            ..Options::default()
        };
        ApiServer::start(options).map_err(|error| error.to_string())
    });
    // It has the same objects, as after a restart.
    after.restore(&cluster.api.back_up());
    let before = std::mem::replace(&mut cluster.api, after);
    cluster.apply(&web(&["1.10"]));
    before.reset_connections();
    cluster
        .node
        .wait_for_log("Lost connection to the API server");
    project(&cluster, &volume, "..second");
    cluster
        .node
        .expect_soon("pod-c > 10.96.0.10:80 => 10.244.1.10:8080");
}
