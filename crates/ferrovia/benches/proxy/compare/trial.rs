//! A comparison of this proxy with itself, which gives no figures worth reading but shows that it works; and programs that are refused.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::ensure;

/// What a program says its version is, and which word of that a refusal has to have; without one it is compared with, in the nftables mode.
const TRIALS: [(&str, Option<&str>); 4] = [
    ("some-tool 1.36", Some("some-tool")),
    ("Kubernetes v1.21.14", Some("v1.21.14")),
    ("Kubernetes v1.28.15+rke2r1", Some("v1.28.15+rke2r1")),
    ("Kubernetes v1.36.4", None),
];

/// Does all of it.
pub(crate) fn run() -> anyhow::Result<()> {
    let folder = std::env::temp_dir().join(format!("ferrovia-compare-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let file = folder.join("kube-proxy");
    let outcome = TRIALS
        .into_iter()
        .try_for_each(|(version, refusal)| trial(&file, version, refusal))
        .and_then(|()| flows_trial(&file));
    fs::remove_dir_all(&folder)?;
    outcome
}

fn trial(file: &Path, version: &str, refusal: Option<&str>) -> anyhow::Result<()> {
    write_stand_in(file, version)?;
    let file = file.to_string_lossy();
    let arguments = ["--kube-proxy", &file, "--services", "20", "--changes", "2"];
    let outcome = super::run(&arguments.map(ToOwned::to_owned));
    let Some(refusal) = refusal else {
        return outcome;
    };
    let words = outcome.map_or_else(|error| format!("{error:#}"), |()| String::new());
    ensure!(
        words.contains(refusal),
        "{version} should be refused, and was not: {words:?}"
    );
    Ok(())
}

/// The same for removing stale flows, with the stand-in that the trials before have written.
fn flows_trial(file: &Path) -> anyhow::Result<()> {
    let file = file.to_string_lossy();
    let arguments = [
        "--kube-proxy",
        &file,
        "--flows",
        "100,500",
        "--changes",
        "3",
    ];
    super::run(&arguments.map(ToOwned::to_owned))
}

/// This proxy, as a kube-proxy of some version.
fn write_stand_in(file: &Path, version: &str) -> anyhow::Result<()> {
    let ours = env!("CARGO_BIN_EXE_ferrovia");
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = --version ]; then echo '{version}'; exit; fi\n\
         exec {ours} run --admin-socket= --web-bind-address= \"$@\"\n"
    );
    fs::write(file, script)?;
    fs::set_permissions(file, fs::Permissions::from_mode(0o755))?;
    Ok(())
}
