//! Flags and file to one completed document: who goes before whom, and what fills the gaps.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::decode::{LARGEST_FILE, decode};
use super::defaults::{self, HEALTH_PORT, METRICS_PORT, add_port};
use super::duration::GoDuration;
use super::file::Document;
use super::flags::Typed;
use super::validate::FieldError;
use super::{Config, ConfigError, ConfigFile, Remark};
use crate::mode::ModeRef;

impl Config {
    /// What the flags mean, with the file they name.
    pub fn load(typed: Typed) -> Result<Self, ConfigError> {
        Self::load_in(typed, None)
    }

    /// The same, as if this mode were set.
    pub fn load_in(mut typed: Typed, mode: Option<ModeRef>) -> Result<Self, ConfigError> {
        let mut remarks = Vec::new();
        let set_mode = |document: &mut Document| {
            if let Some(mode) = mode {
                document.mode = mode.name().to_owned();
            }
        };
        set_mode(&mut typed.document);
        let config_file = match typed.config.clone() {
            Some(path) => Some(fold_file(&mut typed, &path, &mut remarks)?),
            None => {
                fold_flags(&mut typed)?;
                None
            }
        };
        set_mode(&mut typed.document);
        fold_own_flags(&mut typed)?;
        let document = &mut typed.document;
        document.clear_other_sections();
        defaults::apply_for_platform(document);
        Self::from_document(typed, config_file, remarks)
    }
}

/// A file replaces everything but the few flags that go before it.
fn fold_file(
    typed: &mut Typed,
    path: &Path,
    remarks: &mut Vec<Remark>,
) -> Result<ConfigFile, ConfigError> {
    let content = read(path).map_err(|cause| ConfigError::Read {
        path: path.to_owned(),
        cause,
    })?;
    let decoded = decode(&content).map_err(|cause| ConfigError::Decode {
        path: path.to_owned(),
        cause,
    })?;
    if let Some(oddities) = decoded.remark {
        remarks.push(Remark {
            is_warning: false,
            text: format!(
                "the configuration file was read leniently, because it would not pass strictly: {oddities}"
            ),
        });
    }
    let ignored = typed.ignored_with_file();
    if !ignored.is_empty() {
        remarks.push(Remark {
            is_warning: true,
            text: format!(
                "flags without effect because there is a configuration file: --{}",
                ignored.join(", --")
            ),
        });
    }
    typed.put_over(decoded.document);
    defaults::apply(&mut typed.document);
    Ok(ConfigFile {
        path: path.to_owned(),
        content,
    })
}

/// At most a little more than a configuration can be; the decoder says what that means.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let limit = u64::try_from(LARGEST_FILE).unwrap_or(u64::MAX);
    File::open(path)?
        .take(limit.saturating_add(1))
        .read_to_end(&mut content)?;
    Ok(content)
}

/// Without a file, flags over defaults. Most flags have set their field already.
fn fold_flags(typed: &mut Typed) -> Result<(), ConfigError> {
    let periods = (typed.document.section().period_flags)(typed);
    if let Some(period) = periods.sync {
        *typed.document.sync_period_mut() = period;
    }
    if let Some(period) = periods.min {
        *typed.document.min_sync_period_mut() = period;
    }
    if let Some(all) = typed.masquerade_all {
        *typed.document.masquerade_all_mut() = all;
    }
    // As kube-proxy has it: no flag means no ranges, but an empty flag is a range that is none.
    let by_range = matches!(
        typed.document.detect_local_mode.as_str(),
        "" | "ClusterCIDR"
    );
    if by_range && typed.is_given("cluster-cidr") && typed.document.cluster_cidr.is_empty() {
        return Err(ConfigError::Invalid(vec![FieldError {
            field: "clusterCIDR[0]".to_owned(),
            problem: "Invalid value: \"\": must be a valid CIDR (such as 10.100.0.0/16); leave --cluster-cidr out if there is none".to_owned(),
        }]));
    }
    if !typed.document.ferrovia.manifests.is_empty() {
        fold_limits(typed);
    }
    fold_addresses(typed);
    Ok(())
}

/// A machine without Kubernetes keeps the kernel's limits that no flag asks to change.
fn fold_limits(typed: &mut Typed) {
    let is_default = |flag| !typed.is_given(flag);
    let [per_core, established, close_wait] = [
        is_default("conntrack-max-per-core"),
        is_default("conntrack-tcp-timeout-established"),
        is_default("conntrack-tcp-timeout-close-wait"),
    ];
    let conntrack = &mut typed.document.conntrack;
    if per_core {
        conntrack.max_per_core = Some(0);
    }
    if established {
        conntrack.tcp_established_timeout = Some(GoDuration::default());
    }
    if close_wait {
        conntrack.tcp_close_wait_timeout = Some(GoDuration::default());
    }
}

fn fold_addresses(typed: &mut Typed) {
    let without_kubernetes = !typed.document.ferrovia.manifests.is_empty();
    if without_kubernetes && !typed.is_given("healthz-bind-address") {
        "127.0.0.1".clone_into(&mut typed.document.healthz_bind_address);
    }
    let Document {
        healthz_bind_address: health,
        metrics_bind_address: metrics,
        ..
    } = &mut typed.document;
    for (address, port, default) in [
        (health, typed.healthz_port, HEALTH_PORT),
        (metrics, typed.metrics_port, METRICS_PORT),
    ] {
        match port {
            Some(0) => "0.0.0.0:0".clone_into(address),
            // An address that has a port keeps it.
            port => add_port(address, port.unwrap_or(default.into())),
        }
    }
}

/// Flags that hold with and without a file.
fn fold_own_flags(typed: &mut Typed) -> Result<(), ConfigError> {
    if let Some(period) = typed.periods.sync {
        *typed.document.sync_period_mut() = period;
    }
    if let Some(period) = typed.periods.min {
        *typed.document.min_sync_period_mut() = period;
    }
    if !typed.hostname_override.is_empty() {
        let name = typed.hostname_override.trim().to_lowercase();
        if name.is_empty() {
            return Err(ConfigError::Invalid(vec![FieldError {
                field: "--hostname-override".to_owned(),
                problem: "the name is empty".to_owned(),
            }]));
        }
        typed.document.hostname_override = name;
    }
    Ok(())
}
