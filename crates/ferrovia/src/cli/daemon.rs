//! Asking the daemon that runs here.

use serde::de::DeserializeOwned;

use crate::serve::admin::client::{Client, ClientError};

/// Asks a question that takes work, and says on standard error whom.
pub(super) fn ask<T: DeserializeOwned>(client: &Client, path: &str) -> Result<T, ClientError> {
    let answer = ask_quietly(client, path)?;
    eprintln!("asked the daemon at {}", client.path().display());
    Ok(answer)
}

/// The same for commands whose own words say so.
pub(super) fn ask_quietly<T: DeserializeOwned>(
    client: &Client,
    path: &str,
) -> Result<T, ClientError> {
    let client = client.clone().for_much_work();
    let answer = client.get(path)?;
    serde_json::from_value(answer).map_err(|error| client.strange(&error))
}
