//! Temporary folders, small manifests, rescans, and events as text.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use ferrovia::source::manifest::{self, Batch, Severity};
use ferrovia_core::store::Event;
use ferrovia_core::wire::Object;
use ferrovia_lab::Folder;

/// A folder that is written to as editors, people and the kubelet do.
pub(crate) struct TempDir(Folder);

impl TempDir {
    pub(crate) fn new() -> Self {
        Self(Folder::new())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn root(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        self.0.write(name, &text);
    }

    /// As an editor saves: the new text beside the file, then over it.
    pub(crate) fn replace(&self, name: &str, text: &str) {
        self.write(".saving", text);
        fs::rename(self.path(".saving"), self.path(name)).unwrap();
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).unwrap();
    }

    /// As the kubelet writes a ConfigMap: a new hidden folder, and the link `..data` swapped onto it at once.
    pub(crate) fn swap_data(&self, stamp: &str, name: &str, text: &str) {
        let folder = format!("..{stamp}");
        fs::create_dir(self.path(&folder)).unwrap();
        self.write(&format!("{folder}/{name}"), text);
        symlink(&folder, self.path("..data_tmp")).unwrap();
        fs::rename(self.path("..data_tmp"), self.path("..data")).unwrap();
        if !self.path(name).is_symlink() {
            symlink(format!("..data/{name}"), self.path(name)).unwrap();
        }
    }
}

pub(crate) const NOTHING: [&str; 0] = [];

pub(crate) fn open(dir: &TempDir) -> manifest::Folder {
    manifest::Folder::open(dir.root()).unwrap()
}

/// A rescan that must have nothing to complain about.
pub(crate) fn quiet(folder: &mut manifest::Folder) -> Vec<String> {
    let batch = folder.rescan();
    assert_eq!(batch.problems, []);
    events(&batch)
}

/// A Service whose port identifies its version.
pub(crate) fn service(name: &str, port: u16) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\n\
         spec: {{clusterIP: 10.96.0.1, ports: [{{port: {port}}}]}}\n"
    )
}

/// `+Service default/web:80` for what was applied, `-Service default/web` for what went.
pub(crate) fn events(batch: &Batch) -> Vec<String> {
    batch.events.iter().filter_map(event).collect()
}

fn event(event: &Event) -> Option<String> {
    match event {
        Event::Applied(object) => Some(format!("+{}", describe(object))),
        Event::Deleted {
            kind,
            namespace,
            name,
        } => Some(format!("-{} {namespace}/{name}", kind.name())),
        Event::Listed(_) => None,
    }
}

pub(crate) fn describe(object: &Object) -> String {
    let metadata = object.metadata();
    let port = match object {
        Object::Service(service) => service.spec.ports.first().map(|port| port.port),
        _ => None,
    };
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    format!(
        "{} {}/{}{port}",
        object.kind().name(),
        metadata.namespace,
        metadata.name
    )
}

/// The problems of this severity, as they are logged but without the folder.
pub(crate) fn problems(batch: &Batch, severity: Severity, folder: &TempDir) -> Vec<String> {
    let prefix = format!("{}/", folder.root().display());
    let of_severity = batch
        .problems
        .iter()
        .filter(|problem| problem.severity == severity);
    of_severity
        .map(|problem| problem.to_string().replace(&prefix, ""))
        .collect()
}
