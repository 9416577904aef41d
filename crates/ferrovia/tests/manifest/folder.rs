//! What a rescan gives, one change at a time.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Instant;

use ferrovia::source::manifest::{Batch, Folder, OpenError, Severity};
use ferrovia_core::store::Event;
use ferrovia_core::wire::Kind;

use crate::support::{TempDir, events, problems, service};

fn open(dir: &TempDir) -> Folder {
    Folder::open(dir.root()).unwrap()
}

/// A rescan that must have nothing to complain about.
fn quiet(folder: &mut Folder) -> Vec<String> {
    let batch = folder.rescan();
    assert_eq!(batch.problems, []);
    events(&batch)
}

const NOTHING: [&str; 0] = [];

#[test]
fn the_first_rescan_gives_everything_and_completes_every_list() {
    let dir = TempDir::new();
    fs::create_dir(dir.path("sub")).unwrap();
    dir.write("sub/b.yml", service("b", 2));
    dir.write(
        "a.yaml",
        service("a", 1) + "---\nkind: Node\nmetadata: {name: n1}\n",
    );
    dir.write(
        "c.json",
        r#"{"kind": "Service", "metadata": {"name": "c"}}"#,
    );
    dir.write("notes.txt", "not a manifest: [");
    let mut folder = open(&dir);

    let batch = folder.rescan();
    let expected = [
        "+Service default/a:1",
        "+Service default/b:2",
        "+Service default/c",
        "+Node /n1",
    ];
    assert_eq!(events(&batch), expected);
    let tail = &batch.events[expected.len()..];
    assert_eq!(tail.len(), Kind::ALL.len());
    for (event, kind) in tail.iter().zip(Kind::ALL) {
        assert!(
            matches!(event, Event::Listed(listed) if *listed == kind),
            "{event:?}"
        );
    }
    assert!(folder.rescan().is_empty());
}

#[test]
fn an_empty_folder_is_complete_too() {
    let dir = TempDir::new();
    assert_eq!(open(&dir).rescan().events.len(), Kind::ALL.len());
}

#[test]
fn a_folder_that_is_not_there_is_an_error_at_start() {
    let dir = TempDir::new();
    let missing = Folder::open(&dir.path("nowhere")).unwrap_err();
    assert!(matches!(missing, OpenError::Unreadable { .. }));
    assert!(missing.to_string().contains("nowhere"), "{missing}");
    dir.write("file", "");
    assert!(matches!(
        Folder::open(&dir.path("file")),
        Err(OpenError::NotAFolder { .. })
    ));
}

#[test]
fn only_what_changed_is_told() {
    let dir = TempDir::new();
    dir.write("a.yaml", service("one", 1) + "---\n" + &service("two", 2));
    let mut folder = open(&dir);
    folder.rescan();

    dir.write(
        "a.yaml",
        service("one", 1) + "---\n" + &service("two", 22) + "---\n" + &service("three", 3),
    );
    assert_eq!(
        quiet(&mut folder),
        ["+Service default/three:3", "+Service default/two:22"]
    );
    dir.write("a.yaml", service("two", 22));
    assert_eq!(
        quiet(&mut folder),
        ["-Service default/one", "-Service default/three"]
    );
    // Neither a comment nor a field we do not read is a change.
    dir.write(
        "a.yaml",
        format!("# new\n{}unknown: 1\n", service("two", 22)),
    );
    assert_eq!(quiet(&mut folder), NOTHING);
    dir.remove("a.yaml");
    assert_eq!(quiet(&mut folder), ["-Service default/two"]);
}

#[test]
fn an_object_may_move_between_files_unnoticed() {
    let dir = TempDir::new();
    dir.write("a.yaml", service("web", 80));
    let mut folder = open(&dir);
    folder.rescan();
    fs::rename(dir.path("a.yaml"), dir.path("z.yaml")).unwrap();
    let batch = folder.rescan();
    assert_eq!(events(&batch), NOTHING);
    assert!(
        batch
            .problems
            .iter()
            .all(|problem| problem.severity == Severity::Info)
    );
}

#[test]
fn a_rename_onto_a_file_is_a_change() {
    let dir = TempDir::new();
    dir.write("a.yaml", service("web", 80));
    let mut folder = open(&dir);
    folder.rescan();
    dir.write("a.yaml~", service("backup", 1));
    dir.write(".#a.yaml", service("lock", 1));
    dir.write("4913", service("probe", 1));
    dir.replace("a.yaml", &service("web", 81));
    assert_eq!(quiet(&mut folder), ["+Service default/web:81"]);
}

#[test]
fn writes_of_the_same_size_in_the_same_tick_are_seen() {
    let dir = TempDir::new();
    let mut folder = open(&dir);
    folder.rescan();
    for port in 100..400 {
        dir.write("a.yaml", service("web", port));
        assert_eq!(quiet(&mut folder), [format!("+Service default/web:{port}")]);
    }
}

#[test]
fn a_broken_file_keeps_its_last_good_state_until_mended() {
    let dir = TempDir::new();
    dir.write("a.yaml", service("a", 1));
    dir.write("b.yaml", service("b", 1));
    let mut folder = open(&dir);
    folder.rescan();

    // One good document, changed, and a bad one: the file counts as a whole. The other file is unaffected.
    dir.write(
        "a.yaml",
        service("a", 2) + "---\nkind: Service\nmetadata: {name: x}\nspec:\n  ports: nine\n",
    );
    dir.write("b.yaml", service("b", 2));
    let batch = folder.rescan();
    assert_eq!(events(&batch), ["+Service default/b:2"]);
    let errors = problems(&batch, Severity::Error, &dir);
    assert_eq!(errors.len(), 1);
    assert!(
        errors[0].starts_with("a.yaml:9:10: spec.ports: "),
        "{}",
        errors[0]
    );
    assert!(
        errors[0].ends_with("the whole file keeps its last good state"),
        "{}",
        errors[0]
    );
    assert!(folder.rescan().is_empty(), "a problem is told once");

    dir.write("a.yaml", service("a", 3));
    let batch = folder.rescan();
    assert_eq!(events(&batch), ["+Service default/a:3"]);
    assert_eq!(
        problems(&batch, Severity::Info, &dir),
        ["a.yaml: is right again"]
    );
}

#[test]
fn a_broken_file_that_goes_takes_its_objects_along() {
    let dir = TempDir::new();
    dir.write("a.yaml", service("a", 1));
    let mut folder = open(&dir);
    folder.rescan();
    dir.write("a.yaml", "{");
    folder.rescan();
    dir.remove("a.yaml");
    assert_eq!(quiet(&mut folder), ["-Service default/a"]);
}

#[test]
fn a_broken_file_at_start_holds_up_nothing() {
    let dir = TempDir::new();
    dir.write("a.yaml", [0xff, 0xfe, b'k']);
    dir.write("b.yaml", service("b", 1));
    let batch = open(&dir).rescan();
    assert_eq!(events(&batch), ["+Service default/b:1"]);
    assert_eq!(batch.events.len(), 1 + Kind::ALL.len());
    let errors = problems(&batch, Severity::Error, &dir);
    assert!(
        errors[0].starts_with("a.yaml:1: the file is not UTF-8 text"),
        "{errors:?}"
    );
}

#[test]
fn an_unreadable_file_keeps_its_last_good_state() {
    let dir = TempDir::new();
    dir.write("a.yaml", service("a", 1));
    let mut folder = open(&dir);
    folder.rescan();
    // Permissions do not stop root, but nobody can read the start of this one: address 0 is not mapped.
    dir.remove("a.yaml");
    symlink("/proc/self/mem", dir.path("a.yaml")).unwrap();
    let batch = folder.rescan();
    assert_eq!(events(&batch), NOTHING);
    let errors = problems(&batch, Severity::Error, &dir);
    assert!(
        errors[0].starts_with("a.yaml: cannot be read: "),
        "{errors:?}"
    );
    assert!(folder.rescan().is_empty(), "a problem is told once");

    dir.remove("a.yaml");
    dir.write("a.yaml", service("a", 1));
    let batch = folder.rescan();
    assert_eq!(events(&batch), NOTHING, "it is what it was");
    assert_eq!(
        problems(&batch, Severity::Info, &dir),
        ["a.yaml: is right again"]
    );
}

#[test]
fn a_file_beyond_the_size_limit_is_refused() {
    let dir = TempDir::new();
    dir.write("a.yaml", service("a", 1));
    let mut folder = open(&dir).with_size_limit(200);
    folder.rescan();
    dir.write("a.yaml", format!("{}#{}", service("a", 2), "x".repeat(200)));
    let batch = folder.rescan();
    assert_eq!(events(&batch), NOTHING);
    let errors = problems(&batch, Severity::Error, &dir);
    assert!(
        errors[0].starts_with("a.yaml: is bigger than the limit of 200 bytes"),
        "{errors:?}"
    );
}

#[test]
fn the_first_definition_wins_and_hands_over_when_it_goes() {
    let dir = TempDir::new();
    dir.write("a.yaml", service("web", 1));
    dir.write("b.yaml", "# b\n".to_owned() + &service("web", 2));
    let mut folder = open(&dir);
    let batch = folder.rescan();
    assert_eq!(events(&batch), ["+Service default/web:1"]);
    let place = dir.path("a.yaml").display().to_string();
    let warnings: Vec<String> = batch.problems.iter().map(ToString::to_string).collect();
    let expected = format!(
        "{}:2: Service default/web is already defined in {place}:1; this one waits until that goes",
        dir.path("b.yaml").display()
    );
    assert_eq!(warnings, [expected]);

    // A later file does not push out an earlier one, whatever its name.
    dir.write("0.yaml", service("web", 3));
    let batch = folder.rescan();
    assert_eq!(events(&batch), NOTHING);
    assert_eq!(problems(&batch, Severity::Warning, &dir).len(), 1);

    dir.remove("a.yaml");
    let batch = folder.rescan();
    assert_eq!(events(&batch), ["+Service default/web:2"]);
    let told = problems(&batch, Severity::Info, &dir);
    assert_eq!(
        told,
        ["b.yaml:2: Service default/web is now taken from here"]
    );

    dir.write("b.yaml", "");
    assert_eq!(events(&folder.rescan()), ["+Service default/web:3"]);
    dir.remove("0.yaml");
    assert_eq!(quiet(&mut folder), ["-Service default/web"]);
}

#[test]
fn an_heir_that_is_broken_takes_over_when_mended() {
    let dir = TempDir::new();
    dir.write("a.yaml", service("web", 1));
    dir.write("b.yaml", service("web", 2));
    let mut folder = open(&dir);
    folder.rescan();
    dir.write("b.yaml", "kind: [");
    folder.rescan();
    dir.remove("a.yaml");
    assert_eq!(
        events(&folder.rescan()),
        NOTHING,
        "rather the old one than none"
    );
    dir.write("b.yaml", service("web", 2));
    assert_eq!(events(&folder.rescan()), ["+Service default/web:2"]);
}

#[test]
fn twice_in_one_file_the_first_wins() {
    let dir = TempDir::new();
    dir.write("a.yaml", service("web", 1) + "---\n" + &service("web", 2));
    let mut folder = open(&dir);
    let batch = folder.rescan();
    assert_eq!(events(&batch), ["+Service default/web:1"]);
    let warnings = problems(&batch, Severity::Warning, &dir);
    assert_eq!(
        warnings,
        ["a.yaml:6: Service default/web is already defined in line 1; this one is ignored"]
    );
    dir.write("a.yaml", service("web", 2));
    assert_eq!(quiet(&mut folder), ["+Service default/web:2"]);
}

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

#[test]
fn a_batch_is_empty_only_without_news() {
    assert!(Batch::default().is_empty());
}
