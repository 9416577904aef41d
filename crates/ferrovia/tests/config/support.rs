//! A folder for a test, and configurations made from flags and a file's text.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use ferrovia::config::{Config, flags};

/// What every file begins with.
pub(crate) const HEADER: &str =
    "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";

/// A folder of its own, gone with the value.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("ferrovia-config-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder can be made");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file; answers with its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("the folder is writable");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The configuration these flags mean, or what is said instead. A file's path shows as FILE.
pub(crate) fn load(flags: &[String], file: Option<&str>) -> Result<Config, String> {
    let folder = Folder::new();
    let path = file.map(|text| folder.write("config.yaml", text));
    let config_flag = path
        .iter()
        .map(|path| format!("--config={}", path.display()));
    let typed = flags::parse(flags.iter().cloned().chain(config_flag))
        .map_err(|error| error.to_string())?;
    Config::load(typed).map_err(|error| {
        let said = error.to_string();
        match path {
            Some(path) => said.replace(&path.display().to_string(), "FILE"),
            None => said,
        }
    })
}
