//! The configuration file changes, in all the ways files do.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use ferrovia::config::ConfigFile;
use ferrovia::config::watch::Watch;

use super::support::Folder;

/// How long a change may take to be heard. Generous: a loaded machine must not fail a test.
const SOON: Duration = Duration::from_secs(60);

/// Starts a watch; the receiver is notified when the file has changed.
fn watch(path: &Path) -> Receiver<()> {
    let file = ConfigFile {
        path: path.to_owned(),
        content: fs::read(path).expect("the file is there"),
    };
    let watch = Watch::new(file).expect("it can be watched");
    let (notifier, notified) = channel();
    thread::spawn(move || {
        watch.wait().expect("it can be waited for");
        let _ = notifier.send(());
    });
    notified
}

#[track_caller]
fn changed(notified: &Receiver<()>) {
    assert_eq!(notified.recv_timeout(SOON), Ok(()));
}

/// A moment is enough to notice a false alarm, and if the machine is too slow for it nothing fails.
#[track_caller]
fn unchanged(notified: &Receiver<()>) {
    let moment = Duration::from_millis(300);
    assert_eq!(
        notified.recv_timeout(moment),
        Err(RecvTimeoutError::Timeout)
    );
}

#[test]
fn writing_and_appending_are_heard() {
    let folder = Folder::new();
    let path = folder.write("c.yaml", "a");
    let notified = watch(&path);
    folder.write("c.yaml", "ab");
    changed(&notified);
}

#[test]
fn replacing_is_heard_and_the_same_content_is_no_change() {
    let folder = Folder::new();
    let path = folder.write("c.yaml", "a");
    let notified = watch(&path);
    // Not emptied first: on a busy machine that might last long enough to be believed.
    let file = fs::File::options().write(true).open(&path);
    file.and_then(|mut file| file.write_all(b"a"))
        .expect("it can be written");
    folder.write("other.yaml", "b");
    let replace = |text: &str| {
        let beside = folder.write("new", text);
        fs::rename(beside, &path).expect("it can be renamed");
    };
    replace("a");
    unchanged(&notified);
    replace("b");
    changed(&notified);
}

#[test]
fn a_file_that_goes_and_comes_back_otherwise_is_heard() {
    let folder = Folder::new();
    let path = folder.write("c.yaml", "a");
    let notified = watch(&path);
    fs::remove_file(&path).expect("it is there");
    unchanged(&notified);
    folder.write("c.yaml", "b");
    changed(&notified);
}

#[test]
fn a_folder_that_goes_and_comes_back_is_watched_again() {
    let folder = Folder::new();
    let (etc, path) = (folder.join("etc"), folder.join("etc/c.yaml"));
    // It comes as a whole: on a busy machine an empty file might last long enough to be believed.
    let make = |text: &str| {
        let beside = folder.join("new");
        fs::create_dir(&beside).expect("it can be made");
        fs::write(beside.join("c.yaml"), text).expect("it can be written");
        fs::rename(beside, &etc).expect("it can be renamed");
    };
    make("a");
    let notified = watch(&path);
    fs::remove_dir_all(&etc).expect("it is there");
    unchanged(&notified);
    make("a");
    unchanged(&notified);
    fs::rename(&etc, folder.join("old")).expect("it can be renamed");
    fs::write(&etc, "a file in its place").expect("it can be written");
    unchanged(&notified);
    fs::remove_file(&etc).expect("it is there");
    make("b");
    changed(&notified);
}

/// As the kubelet mounts a ConfigMap: `c.yaml` → `..data/c.yaml`, `..data` → `..1`, and `..data` is replaced.
#[test]
fn the_swap_of_a_config_map_is_heard() {
    let folder = Folder::new();
    let version = |number: u32, text: &str| -> PathBuf {
        let directory = folder.path().join(format!("..{number}"));
        fs::create_dir(&directory).expect("it can be made");
        fs::write(directory.join("c.yaml"), text).expect("it can be written");
        directory
    };
    let swap = |number: u32| {
        let beside = folder.path().join("..data_tmp");
        symlink(format!("..{number}"), &beside).expect("a link can be made");
        fs::rename(beside, folder.path().join("..data")).expect("it can be renamed");
    };
    let first = version(1, "a");
    swap(1);
    let path = folder.path().join("c.yaml");
    symlink("..data/c.yaml", &path).expect("a link can be made");
    let notified = watch(&path);

    // The same again in another folder, and the old folder goes.
    let second = version(2, "a");
    swap(2);
    fs::remove_dir_all(first).expect("it is there");
    unchanged(&notified);
    version(3, "b");
    swap(3);
    fs::remove_dir_all(second).expect("it is there");
    changed(&notified);
}

/// What changed between reading the file and watching it is not missed.
#[test]
fn a_change_before_the_watch_is_heard() {
    let folder = Folder::new();
    let path = folder.write("c.yaml", "b");
    let file = ConfigFile {
        path,
        content: b"a".to_vec(),
    };
    Watch::new(file)
        .expect("it can be watched")
        .wait()
        .expect("it can be waited for");
}
