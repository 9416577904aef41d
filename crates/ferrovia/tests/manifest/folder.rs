//! What a rescan gives, one change of a file at a time.

use std::fs;
use std::os::unix::fs::symlink;

use ferrovia::source::manifest::{Folder, OpenError, Severity};
use ferrovia_core::store::Event;
use ferrovia_core::wire::Kind;

use crate::support::{NOTHING, TempDir, events, open, problems, quiet, service};

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
fn reports_only_changes() {
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
    let reported = problems(&batch, Severity::Info, &dir);
    assert_eq!(
        reported,
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
