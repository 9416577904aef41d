//! Folders, links and what else lies about: which files count, and what becomes of those below a path that goes.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Instant;

use ferrovia::source::manifest::{Folder, Severity};

use crate::support::{NOTHING, TempDir, events, open, problems, quiet, service};

#[test]
fn a_config_map_is_swapped_in_one_step() {
    let dir = TempDir::new();
    dir.swap_data("2026_1", "web.yaml", &service("web", 1));
    let mut folder = open(&dir);
    assert_eq!(
        quiet(&mut folder),
        ["+Service default/web:1"],
        "the hidden folder is not read itself"
    );
    dir.swap_data("2026_2", "web.yaml", &service("web", 2));
    fs::remove_dir_all(dir.path("..2026_1")).unwrap();
    assert_eq!(quiet(&mut folder), ["+Service default/web:2"]);
}

#[test]
fn links_are_followed_and_loops_are_not() {
    let elsewhere = TempDir::new();
    elsewhere.write("far.yaml", service("far", 1));
    let dir = TempDir::new();
    dir.write("near.yaml", service("near", 1));
    symlink(elsewhere.root(), dir.path("away")).unwrap();
    symlink(dir.root(), dir.path("loop")).unwrap();
    symlink("near.yaml", dir.path("same.yaml")).unwrap();
    symlink("self.yaml", dir.path("self.yaml")).unwrap();
    symlink("missing.yaml", dir.path("dangling.yaml")).unwrap();
    let mut folder = open(&dir);
    let batch = folder.rescan();
    assert_eq!(
        events(&batch),
        ["+Service default/far:1", "+Service default/near:1"]
    );
    assert_eq!(
        problems(&batch, Severity::Warning, &dir),
        ["dangling.yaml: is a link that leads nowhere"]
    );
    assert_eq!(
        problems(&batch, Severity::Error, &dir).len(),
        1,
        "self.yaml cannot be read"
    );
    assert!(folder.rescan().is_empty());
}

#[test]
fn hidden_and_odd_files_are_left_out() {
    let dir = TempDir::new();
    dir.write(".hidden.yaml", service("hidden", 1));
    fs::create_dir(dir.path(".git")).unwrap();
    dir.write(".git/a.yaml", service("git", 1));
    let _socket = std::os::unix::net::UnixListener::bind(dir.path("socket.yaml")).unwrap();
    let batch = open(&dir).rescan();
    assert_eq!(events(&batch), NOTHING);
    let warnings = problems(&batch, Severity::Warning, &dir);
    assert_eq!(
        warnings,
        ["socket.yaml: is not a regular file; it is left out"]
    );
}

#[test]
fn a_folder_that_vanishes_keeps_its_objects_in_force() {
    let outer = TempDir::new();
    let (path, away) = (outer.path("manifests"), outer.path("away"));
    fs::create_dir(&path).unwrap();
    outer.write("manifests/a.yaml", service("a", 1));
    let mut folder = Folder::open(&path).unwrap();
    folder.rescan();

    fs::rename(&path, &away).unwrap();
    let batch = folder.rescan();
    assert_eq!(events(&batch), NOTHING);
    let errors = problems(&batch, Severity::Error, &outer);
    assert!(
        errors[0].ends_with("what it held stays in force"),
        "{errors:?}"
    );
    assert!(folder.rescan().is_empty(), "a problem is told once");

    outer.write("away/a.yaml", service("a", 2));
    fs::rename(&away, &path).unwrap();
    let batch = folder.rescan();
    assert_eq!(events(&batch), ["+Service default/a:2"]);
    assert_eq!(problems(&batch, Severity::Info, &outer).len(), 1);
}

#[test]
fn a_sub_folder_that_goes_takes_its_objects_along() {
    let dir = TempDir::new();
    fs::create_dir(dir.path("sub")).unwrap();
    dir.write("sub/a.yaml", service("a", 1));
    let mut folder = open(&dir);
    folder.rescan();
    fs::remove_dir_all(dir.path("sub")).unwrap();
    assert_eq!(quiet(&mut folder), ["-Service default/a"]);
}

#[test]
fn a_sub_folder_that_cannot_be_looked_at_keeps_its_objects_in_force() {
    let dir = TempDir::new();
    fs::create_dir(dir.path("sub")).unwrap();
    dir.write("sub/a.yaml", service("a", 1));
    let mut folder = open(&dir);
    folder.rescan();

    fs::rename(dir.path("sub"), dir.path(".away")).unwrap();
    symlink("sub", dir.path("sub")).unwrap();
    let batch = folder.rescan();
    assert_eq!(events(&batch), NOTHING);
    let errors = problems(&batch, Severity::Error, &dir);
    assert!(errors[0].starts_with("sub: cannot be read: "), "{errors:?}");
    assert!(folder.rescan().is_empty(), "a problem is told once");

    dir.remove("sub");
    assert_eq!(events(&folder.rescan()), ["-Service default/a"]);
}

#[test]
fn thousands_of_problems_cost_no_more_than_thousands_of_files() {
    let dir = TempDir::new();
    for number in 0..12_000 {
        symlink("nowhere", dir.path(&format!("{number}.yaml"))).unwrap();
    }
    let mut folder = open(&dir);
    let begin = Instant::now();
    assert_eq!(folder.rescan().problems.len(), 12_000);
    let first = begin.elapsed();
    // Later rescans compare with the problems of the first. Each with each took fifty times as long. The best of a few: other tests load
    // the machine.
    let again = (0..5).map(|_| {
        let begin = Instant::now();
        assert!(folder.rescan().is_empty());
        begin.elapsed()
    });
    let again = again.min().unwrap();
    assert!(again < first * 10, "{first:?}, then {again:?}");
}
