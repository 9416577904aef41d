//! The configuration file changes while the daemon runs: it exits, and its supervisor restarts it.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;

use ferrovia_lab::daemon::manifests::{service, web};

use super::Cluster;

const MESSAGE: &str = "was updated";

#[test]
fn exits_when_the_file_content_changes_but_not_when_touched() {
    let cluster = Cluster::new();
    cluster.apply(&web(&["2.10"]));
    cluster.start();
    let same = cluster.node.config();
    // Not emptied first: on a busy machine that might last long enough to be believed.
    let file = fs::File::options()
        .write(true)
        .open(cluster.node.config_file());
    file.and_then(|mut file| file.write_all(same.as_bytes()))
        .expect("it is ours");
    cluster.node.write("config.conf", &same);
    cluster.apply(&service("other", 11, 30081, &["2.11"]));
    cluster
        .node
        .expect_soon("pod-c > 10.96.0.11:80 => 10.244.2.11:8080");
    assert!(cluster.node.is_running(), "{}", cluster.node.log());

    fs::write(
        cluster.node.config_file(),
        same.replace("verbosity: 0", "verbosity: 2"),
    )
    .expect("it is ours");
    assert_eq!(cluster.node.wait_for_exit(), Some(1));
    cluster.node.wait_for_log(MESSAGE);
    // What is in the kernel stays.
    cluster
        .node
        .expect("pod-c > 10.96.0.10:80 => 10.244.2.10:8080");
}

#[test]
fn exits_when_a_config_map_changes_but_not_with_the_same_content() {
    let cluster = Cluster::new();
    cluster.apply(&web(&["2.10"]));
    let folder = cluster.node.folder();
    // As the kubelet lays it out: the file is a link into `..data`, which is a link to a folder that is swapped.
    let swap = |version: &str, text: &str| {
        fs::create_dir(folder.join(version)).expect("it is ours");
        fs::write(folder.join(version).join("config.conf"), text).expect("it is ours");
        symlink(version, folder.join("..data_tmp")).expect("it is ours");
        fs::rename(folder.join("..data_tmp"), folder.join("..data")).expect("it is ours");
    };
    let text = cluster.node.config();
    swap("..2026_1", &text);
    fs::remove_file(cluster.node.config_file()).expect("it is ours");
    symlink("..data/config.conf", cluster.node.config_file()).expect("it is ours");
    cluster.start();

    swap("..2026_2", &text);
    fs::remove_dir_all(folder.join("..2026_1")).expect("it is ours");
    cluster.apply(&service("other", 11, 30081, &["2.11"]));
    cluster
        .node
        .expect_soon("pod-c > 10.96.0.11:80 => 10.244.2.11:8080");
    assert!(cluster.node.is_running(), "{}", cluster.node.log());

    swap("..2026_3", &text.replace("verbosity: 0", "verbosity: 2"));
    fs::remove_dir_all(folder.join("..2026_2")).expect("it is ours");
    assert_eq!(cluster.node.wait_for_exit(), Some(1));
    cluster.node.wait_for_log(MESSAGE);
}
