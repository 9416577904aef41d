//! The real `ferrovia` program, running in the node's namespace.

use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ferrovia_lab::{Role, World};

/// The limit of the initial sync. It takes milliseconds.
const START_LIMIT: Duration = Duration::from_secs(10);

/// The pod addresses of the lab: clients there are inside the cluster.
const CLUSTER_CIDR: &str = "10.244.0.0/16,fd00:10:244::/48";

/// A running proxy. Dropping it kills it, which leaves its rules active.
#[derive(Debug)]
pub(crate) struct ProxyProcess {
    child: Child,
    log: Log,
}

/// Log lines that were not read yet.
type Log = Arc<Mutex<Vec<String>>>;

impl ProxyProcess {
    /// Starts the program on a folder and waits until it notifies `NOTIFY_SOCKET` that it is ready.
    /// `scratch` is the folder of that socket.
    pub(crate) fn start(
        world: &World,
        program: &str,
        manifests: &Path,
        scratch: &Path,
    ) -> anyhow::Result<Self> {
        let socket = scratch.join("notify");
        // The previous proxy's socket.
        let _ = std::fs::remove_file(&socket);
        let bell = UnixDatagram::bind(&socket).context("cannot create the notification socket")?;
        bell.set_read_timeout(Some(Duration::from_millis(50)))?;
        let mut child = world
            .exec(Role::Node, program)
            .args(["run", "--node-name", "node-1", "--admin-socket="])
            .arg("--web-bind-address=127.0.0.1:10247")
            .args(["--cluster-cidr", CLUSTER_CIDR, "--manifests"])
            .arg(manifests)
            .env("NOTIFY_SOCKET", &socket)
            // Ctrl-C is for the demo, which stops the proxy itself.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        let log = collect_log(&mut child);
        let mut proxy = Self { child, log };
        proxy.await_ready(&bell)?;
        Ok(proxy)
    }

    fn await_ready(&mut self, bell: &UnixDatagram) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            match bell.recv(&mut [0; 64]) {
                Ok(_) => return Ok(()),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(error).context("cannot read the notification socket"),
            }
            let ended = self
                .child
                .try_wait()
                .context("cannot get the state of ferrovia")?;
            if ended.is_some() || Instant::now() >= deadline {
                bail!(
                    "ferrovia did not become ready:\n{}",
                    self.take_log().join("\n")
                );
            }
        }
    }

    /// The log lines since the last call.
    pub(crate) fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether it still runs.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it with SIGKILL.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // It fails only if the process has exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for ProxyProcess {
    fn drop(&mut self) {
        self.end();
    }
}

/// Reads the log as long as the proxy runs: a full pipe would block it.
fn collect_log(child: &mut Child) -> Log {
    let log = Log::default();
    if let Some(stderr) = child.stderr.take() {
        let collected = Arc::clone(&log);
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                collected
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(line);
            }
        });
    }
    log
}
