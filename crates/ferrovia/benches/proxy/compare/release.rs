//! Which release a kube-proxy is of, and what cannot be asked of it.

use std::io::Read as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use super::remote;

/// A program that is no kube-proxy may do anything when asked for its version.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is looked whether it has answered.
const TURN: Duration = Duration::from_millis(10);
/// More than any version is long.
const ANSWER: u64 = 200;

/// The first release that reads `discovery.k8s.io/v1`, which is all that the lab's API server has. Before, it was `v1beta1`.
const READS_SLICES: u32 = 22;
const OLDER_SLICES: &str = "/apis/discovery.k8s.io/v1beta1";
/// The first release with an nftables mode, and the first that needs no feature gate for it.
const NFTABLES: u32 = 29;
const NFTABLES_UNGATED: u32 = 31;

/// What a kube-proxy says of itself.
pub(super) struct Release {
    /// As it says it, such as `v1.36.4`.
    pub(super) name: String,
    /// The second number; nothing if it was built without one.
    minor: Option<u32>,
}

impl Release {
    /// Asks a program.
    pub(super) fn of(program: &Path) -> anyhow::Result<Self> {
        let answer = ask(program)
            .with_context(|| format!("--kube-proxy {} is of no use", program.display()))?;
        Self::read(&answer).with_context(|| {
            let first = answer.lines().next().unwrap_or_default();
            let program = program.display();
            format!(
                "--kube-proxy {program} is no kube-proxy: asked for its version it says {first:?}"
            )
        })
    }

    fn read(answer: &str) -> Option<Self> {
        let name = answer.trim().strip_prefix("Kubernetes ")?;
        let mut numbers = name.strip_prefix('v')?.split('.');
        let is_numbered = numbers.next() == Some("1");
        let minor = numbers.next().filter(|_| is_numbered);
        Some(Self {
            name: name.to_owned(),
            minor: minor.and_then(|minor| minor.parse().ok()),
        })
    }

    /// Says so if it cannot be measured in this mode with this API server, or with the lab's.
    pub(super) fn check(&self, mode: &str, server: Option<SocketAddr>) -> anyhow::Result<()> {
        let (name, Some(number)) = (&self.name, self.minor) else {
            return Ok(());
        };
        ensure!(
            mode != "nftables" || number >= NFTABLES,
            "this kube-proxy, {name}, has no nftables mode, which came with 1.{NFTABLES}; --mode iptables compares what it has"
        );
        let has_older = match server {
            _ if number >= READS_SLICES => return Ok(()),
            Some(server) => remote::serves(server, OLDER_SLICES)?,
            None => false,
        };
        ensure!(
            has_older,
            "this kube-proxy, {name}, is too old for the API server: it reads EndpointSlices of discovery.k8s.io/v1beta1, since 1.{READS_SLICES} \
             of v1; take a newer one, or --server with a cluster that has both (1.21 to 1.24)"
        );
        Ok(())
    }

    /// Flags that this release wants for a mode.
    pub(super) fn flags(&self, mode: &str) -> Vec<&'static str> {
        let gated = NFTABLES..NFTABLES_UNGATED;
        let is_gated = self.minor.is_some_and(|minor| gated.contains(&minor));
        match mode {
            "nftables" if is_gated => vec!["--feature-gates=NFTablesProxyMode=true"],
            _ => Vec::new(),
        }
    }
}

/// What a program says when asked for its version.
fn ask(program: &Path) -> anyhow::Result<String> {
    let mut child = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start it")?;
    let begin = Instant::now();
    while child.try_wait()?.is_none() {
        if begin.elapsed() > PATIENCE {
            // It may end by itself at this very moment.
            let _ = child.kill();
            child.wait()?;
            bail!("it does not answer `--version`");
        }
        std::thread::sleep(TURN);
    }
    let mut answer = Vec::new();
    if let Some(output) = child.stdout.take() {
        output.take(ANSWER).read_to_end(&mut answer)?;
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
