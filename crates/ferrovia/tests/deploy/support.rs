//! Files of the tree, YAML as values, and programs that must succeed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub(crate) use ferrovia_lab::Folder;
use serde_json::Value;

pub(crate) const FERROVIA: &str = env!("CARGO_BIN_EXE_ferrovia");

/// A file of the tree.
pub(crate) fn path(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().unwrap().join(name)
}

pub(crate) fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The documents of a YAML text; those without contents are left out.
pub(crate) fn documents(text: &str) -> Vec<Value> {
    let mut documents = vec![String::new()];
    for line in text.lines() {
        if line == "---" {
            documents.push(String::new());
        } else if let Some(last) = documents.last_mut() {
            last.push_str(line);
            last.push('\n');
        }
    }
    documents
        .iter()
        .map(|text| {
            serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error} in:\n{text}"))
        })
        .filter(|value: &Value| !value.is_null())
        .collect()
}

/// What stands at a place that must be there.
pub(crate) fn at<'v>(value: &'v Value, pointer: &str) -> &'v Value {
    value
        .pointer(pointer)
        .unwrap_or_else(|| panic!("nothing at {pointer} in {value:#}"))
}

/// The same, as text.
pub(crate) fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    at(value, pointer).as_str().unwrap()
}

/// `Kind/name` of an object.
pub(crate) fn title(object: &Value) -> String {
    let name = text(object, "/metadata/name");
    format!("{}/{name}", text(object, "/kind"))
}

/// The object with this title.
pub(crate) fn find<'v>(objects: &'v [Value], wanted: &str) -> &'v Value {
    objects
        .iter()
        .find(|object| title(object) == wanted)
        .unwrap_or_else(|| panic!("there is no {wanted}"))
}

/// Runs a program that must succeed; answers with what it printed.
pub(crate) fn succeed(command: &mut Command) -> String {
    let output = run(command);
    assert!(
        output.status.success(),
        "{command:?} ended with {}:\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| {
        panic!("{command:?} cannot be started ({error}); `make test` installs what tests need")
    })
}
