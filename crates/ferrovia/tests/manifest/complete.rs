//! When a folder counts as read in full, so that what it does not define may be taken back.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::{TempDir, events, open, service};

#[test]
fn a_folder_read_in_full_is_complete_and_stays_so() {
    let dir = TempDir::new();
    dir.write("a.yaml", service("a", 1));
    let mut folder = open(&dir);
    assert!(folder.rescan().is_complete);
    dir.write("a.yaml", "{");
    dir.write("b.yaml", "{");
    symlink("loop", dir.path("loop")).unwrap();
    assert!(folder.rescan().is_complete);
    dir.remove("a.yaml");
    assert!(folder.rescan().is_complete);
}

#[test]
fn a_folder_with_a_file_that_was_never_good_is_not_complete() {
    let dir = TempDir::new();
    dir.write("a.yaml", "{");
    dir.write("b.yaml", "{");
    symlink("/proc/self/mem", dir.path("c.yaml")).unwrap();
    let mut folder = open(&dir);
    assert!(!folder.rescan().is_complete);

    dir.write("a.yaml", service("a", 1));
    assert!(!folder.rescan().is_complete, "b and c are left");
    dir.write("a.yaml", "{");
    dir.write("b.yaml", service("b", 1));
    assert!(!folder.rescan().is_complete, "c is left");
    dir.remove("c.yaml");
    assert!(folder.rescan().is_complete, "a was good once");
}

#[test]
fn a_folder_with_a_path_out_of_reach_since_the_start_is_not_complete() {
    let dir = TempDir::new();
    symlink("sub", dir.path("sub")).unwrap();
    let mut folder = open(&dir);
    assert!(!folder.rescan().is_complete);
    dir.remove("sub");
    fs::create_dir(dir.path("sub")).unwrap();
    dir.write("sub/a.yaml", service("a", 1));
    let batch = folder.rescan();
    assert_eq!(events(&batch), ["+Service default/a:1"]);
    assert!(batch.is_complete);
}

#[test]
fn a_broken_file_that_goes_completes_the_folder() {
    let dir = TempDir::new();
    dir.write("a.yaml", "{");
    let mut folder = open(&dir);
    folder.rescan();
    assert!(folder.rescan().is_empty(), "still not complete");
    dir.remove("a.yaml");
    let batch = folder.rescan();
    assert!(batch.events.is_empty() && batch.problems.is_empty());
    assert!(batch.is_complete && !batch.is_empty(), "it is news");
    let next = folder.rescan();
    assert!(next.is_complete && next.is_empty(), "it is news once");
}
