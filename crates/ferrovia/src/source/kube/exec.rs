//! Runs the exec plugin of a kubeconfig, which gives us credentials.
//!
//! The `kube` library would do so itself, at start and whenever a token expires; but it waits for the plugin without a limit, in a thread that
//! nothing ends, and the plugin inherits our signal mask. So the library gets the outcome only.

use std::process::Command;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ferrovia_host::exec::{self, Limits};
use jiff::Timestamp;
use kube::config::{AuthInfo, ExecConfig, ExecInteractiveMode};
use serde::Deserialize;
use serde_json::json;

use super::access::AccessError;

/// More than a plugin may print.
const LARGEST_OUTPUT: usize = 1 << 20;

/// What a plugin prints.
#[derive(Deserialize)]
struct ExecCredential {
    status: Option<ExecStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecStatus {
    expiration_timestamp: Option<String>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// Runs the plugin, if there is one, and puts what it gives in its place. When that expires, if it says.
pub(super) fn resolve(
    user: &mut AuthInfo,
    limit: Duration,
) -> Result<Option<Timestamp>, AccessError> {
    // As in client-go, what is written out takes precedence.
    let is_given = user.token.is_some() || user.token_file.is_some() || user.username.is_some();
    let Some(plugin) = user.exec.take().filter(|_| !is_given) else {
        return Ok(None);
    };
    let command = plugin.command.clone().unwrap_or_default();
    let fail = |what: String| AccessError::ExecPlugin {
        command: command.clone(),
        what,
    };
    let status = run(&plugin, limit).map_err(fail)?;
    let expires = status.expiration_timestamp.map(|time| time.parse());
    let expires = expires
        .transpose()
        .map_err(|_| fail("its expirationTimestamp is not a time".to_owned()))?;
    match (status.client_certificate_data, status.client_key_data) {
        (Some(certificate), Some(key)) => {
            user.client_certificate_data = Some(STANDARD.encode(certificate));
            user.client_key_data = Some(STANDARD.encode(key).into());
        }
        (None, None) if status.token.is_none() => {
            return Err(fail(
                "it gives neither a token nor a certificate".to_owned(),
            ));
        }
        (None, None) => {}
        _ => {
            return Err(fail(
                "it gives a certificate or a key without the other".to_owned(),
            ));
        }
    }
    user.token = status.token.map(Into::into);
    Ok(expires)
}

/// What the plugin says. Errors do not repeat what it printed, which may be a secret.
fn run(plugin: &ExecConfig, limit: Duration) -> Result<ExecStatus, String> {
    if plugin.interactive_mode == Some(ExecInteractiveMode::Always) {
        return Err("interactiveMode Always cannot be satisfied by a daemon".to_owned());
    }
    let limits = Limits {
        time: limit,
        bytes: LARGEST_OUTPUT,
    };
    let output = exec::output_of(command(plugin)?, String::new(), limits);
    let output = output.map_err(|error| match error {
        exec::Error::Run { cause, .. } => format!("cannot be run: {cause}"),
        exec::Error::TimedOut { limit, .. } => {
            format!("was killed, as it had not finished after {limit:?}")
        }
        error @ exec::Error::Failed { .. } => error.to_string(),
    })?;
    if !output.status.success() {
        return Err(format!("ended with {}", output.status));
    }
    // Plugins print JSON, but client-go reads YAML too, and JSON is YAML.
    let credential: ExecCredential = serde_saphyr::from_slice(&output.stdout)
        .map_err(|_| "what it wrote is not an ExecCredential".to_owned())?;
    let status = credential.status;
    status.ok_or_else(|| "its ExecCredential has no status".to_owned())
}

fn command(plugin: &ExecConfig) -> Result<Command, String> {
    let program = plugin.command.as_ref().ok_or("no command is given")?;
    let mut command = Command::new(program);
    command.args(plugin.args.iter().flatten());
    for variable in plugin.env.iter().flatten() {
        if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) {
            command.env(name, value);
        }
    }
    let mut spec = json!({"interactive": false});
    if plugin.provide_cluster_info {
        let cluster = plugin
            .cluster
            .as_ref()
            .ok_or("there is no cluster to tell it of")?;
        spec["cluster"] = serde_json::to_value(cluster).map_err(|error| error.to_string())?;
    }
    let request = json!({
        "apiVersion": plugin.api_version,
        "kind": "ExecCredential",
        "spec": spec,
    });
    command.env("KUBERNETES_EXEC_INFO", request.to_string());
    Ok(command)
}
