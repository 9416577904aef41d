//! `ferrovia`, `ferrovia run`, `kube-proxy`: the daemon, and what its flags ask for in its place.

use std::path::Path;

use anyhow::Context;
use serde_json::Value;

use super::output::print;
use super::{Program, cleanup, help};
use crate::app;
use crate::config::flags::{self, Version};
use crate::config::{Action, Config};
use crate::logging;
use crate::version::KUBERNETES;

/// Does what the daemon's arguments ask for.
pub(super) fn run(program: Program, arguments: Vec<String>) -> anyhow::Result<()> {
    let typed = flags::parse(arguments).map_err(|error| super::UsageError::new(program, &error))?;
    for line in typed.deprecations() {
        eprintln!("{line}");
    }
    if typed.wants_help() {
        return Ok(print(help::daemon(program))?);
    }
    match typed.version() {
        Version::No => {}
        Version::Plain => return Ok(print(version(program))?),
        Version::Raw => return Ok(print(raw_version())?),
    }
    let config = Config::load(typed)?;
    let log = logging::init(&config.log);
    config.remarks.iter().for_each(crate::config::Remark::log);
    match &config.action {
        Action::WriteConfig(path) => write(path, &config.document),
        Action::Cleanup { force } => cleanup::cleanup(&cleanup::CleanupArgs {
            kube_proxy: true,
            force: *force,
        }),
        Action::InitOnly | Action::Run => {
            ferrovia_host::memory::keep_small();
            let done = app::run(config, log.clone());
            log.flush();
            done
        }
    }
}

/// Writes the configuration as it would be used.
fn write(path: &Path, document: &Value) -> anyhow::Result<()> {
    let text =
        serde_saphyr::to_string(document).context("cannot write the configuration as YAML")?;
    std::fs::write(path, text)
        .with_context(|| format!("cannot write the configuration to {}", path.display()))?;
    tracing::info!(file = %path.display(), "wrote the configuration");
    Ok(())
}

/// Scripts look for the second word, so a kube-proxy says what a kube-proxy says.
fn version(program: Program) -> String {
    match program {
        Program::KubeProxy => format!("Kubernetes {KUBERNETES}\n"),
        Program::Ferrovia => format!(
            "ferrovia {} (kube-proxy {KUBERNETES})\n",
            env!("CARGO_PKG_VERSION")
        ),
    }
}

fn raw_version() -> String {
    format!(
        "ferrovia {}, kube-proxy {KUBERNETES}, {}/{}\n",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        std::env::consts::ARCH
    )
}
