//! Configurations made from flags and a file's text.

use ferrovia::config::{Config, flags};
pub(crate) use ferrovia_lab::Folder;

/// What every file begins with.
pub(crate) const HEADER: &str =
    "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";

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
