//! etcd on loopback, and operations of an administrator.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::process::{Process, Stop};
use super::{Error, READY};
use crate::plain_http::try_request;
use crate::waiting::try_at_most;

/// The client address; every control plane has its own network namespace.
const CLIENTS: &str = "127.0.0.1:2379";
const PEERS: &str = "http://127.0.0.1:2380";

/// The value of kube-apiserver's `--etcd-servers`.
pub(super) const URL: &str = "http://127.0.0.1:2379";

/// A single-member cluster.
#[derive(Debug)]
pub(super) struct Etcd {
    program: PathBuf,
    folder: PathBuf,
    process: Option<Process>,
}

impl Etcd {
    /// Starts it with an empty data folder.
    pub(super) fn start(program: PathBuf, folder: &Path) -> Result<Self, Error> {
        let mut etcd = Self {
            program,
            folder: folder.to_owned(),
            process: None,
        };
        etcd.start_again()?;
        Ok(etcd)
    }

    /// Starts it with its existing data.
    pub(super) fn start_again(&mut self) -> Result<(), Error> {
        let mut command = Command::new(&self.program);
        // Options of all versions since 3.4. The data need not survive a crash of the machine.
        command
            .arg(format!("--data-dir={}", self.data().display()))
            .args([
                "--name=default",
                "--listen-client-urls=http://127.0.0.1:2379",
                "--advertise-client-urls=http://127.0.0.1:2379",
                "--unsafe-no-fsync",
                "--log-level=warn",
            ])
            .arg(format!("--listen-peer-urls={PEERS}"))
            .arg(format!("--initial-advertise-peer-urls={PEERS}"))
            .arg(format!("--initial-cluster=default={PEERS}"));
        let process = Process::start("etcd", command, &self.folder)?;
        let process = self.process.insert(process);
        try_at_most(READY, || {
            if !process.is_running() {
                return Err("the process exited".to_owned());
            }
            let reply = ask("GET", "/health", "").map_err(|error| error.to_string())?;
            match reply["health"] == "true" {
                true => Ok(()),
                false => Err(reply.to_string()),
            }
        })
        .map_err(|reason| Error::NotReady {
            program: "etcd",
            reason,
            log: process.tail(),
        })
    }

    /// Stops it and keeps the data.
    pub(super) fn stop(&mut self, how: Stop) -> Result<(), Error> {
        self.process
            .take()
            .map_or(Ok(()), |process| process.stop(how))
    }

    /// Compacts to the current revision.
    pub(super) fn compact(&self) -> Result<(), Error> {
        let failed = |source| Error::io("compact etcd".to_owned(), source);
        let range = json!({"key": "AA==", "count_only": true}).to_string();
        let now = ask("POST", "/v3/kv/range", &range).map_err(failed)?;
        let revision = now["header"]["revision"].clone();
        let request = json!({"revision": revision, "physical": true}).to_string();
        let reply = ask("POST", "/v3/kv/compaction", &request).map_err(failed)?;
        match reply["header"].is_object() {
            true => Ok(()),
            false => Err(failed(io::Error::other(reply.to_string()))),
        }
    }

    /// Copies the data of the stopped member.
    pub(super) fn back_up(&self) -> Result<(), Error> {
        replace(&self.data(), &self.backup())
    }

    /// Replaces the data of the stopped member by the copy.
    pub(super) fn restore(&self) -> Result<(), Error> {
        replace(&self.backup(), &self.data())
    }

    fn data(&self) -> PathBuf {
        self.folder.join("etcd")
    }

    fn backup(&self) -> PathBuf {
        self.folder.join("etcd-backup")
    }
}

/// Replaces a folder by a copy of another one.
fn replace(from: &Path, to: &Path) -> Result<(), Error> {
    let copy = || {
        if to.exists() {
            fs::remove_dir_all(to)?;
        }
        let status = Command::new("cp").arg("-a").arg(from).arg(to).status()?;
        match status.success() {
            true => Ok(()),
            false => Err(io::Error::other(format!("cp: {status}"))),
        }
    };
    copy().map_err(|source| Error::io(format!("copy {}", from.display()), source))
}

/// Sends a request to its JSON gateway.
fn ask(method: &str, path: &str, body: &str) -> io::Result<Value> {
    let address: SocketAddr = CLIENTS.parse().map_err(io::Error::other)?;
    let reply = try_request(address, method, path, &[], body)?;
    serde_json::from_str(&reply.body).map_err(io::Error::other)
}
