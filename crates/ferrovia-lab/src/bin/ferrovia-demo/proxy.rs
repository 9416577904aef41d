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

/// How long a proxy may take until all services are in the kernel. It takes milliseconds.
const START_LIMIT: Duration = Duration::from_secs(10);

/// The pod addresses of the lab: clients there are inside the cluster.
const CLUSTER_CIDR: &str = "10.244.0.0/16,fd00:10:244::/48";

/// A running proxy. Dropping it kills it, which leaves its rules in force.
#[derive(Debug)]
pub(crate) struct Proxy {
    child: Child,
    log: Log,
}

/// What the proxy logged and nobody has read yet.
type Log = Arc<Mutex<Vec<String>>>;

impl Proxy {
    /// Starts the program on a folder and waits until it says that it is ready, the way services
    /// tell systemd. `scratch` is a folder for the socket it says it on.
    pub(crate) fn start(
        world: &World,
        program: &str,
        manifests: &Path,
        scratch: &Path,
    ) -> anyhow::Result<Self> {
        let socket = scratch.join("notify");
        // Left by the proxy before this one.
        let _ = std::fs::remove_file(&socket);
        let bell = UnixDatagram::bind(&socket).context("cannot listen for the proxy")?;
        bell.set_read_timeout(Some(Duration::from_millis(50)))?;
        let mut child = world
            .exec(Role::Node, program)
            .args(["run", "--node-name", "node-1", "--admin-socket="])
            .arg("--web-bind-address=127.0.0.1:10247")
            .args(["--cluster-cidr", CLUSTER_CIDR, "--manifests"])
            .arg(manifests)
            .env("NOTIFY_SOCKET", &socket)
            // Ctrl-C is for the demo, which decides when the proxy ends.
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
                Err(error) => return Err(error).context("cannot hear the proxy"),
            }
            let ended = self.child.try_wait().context("cannot ask for the proxy")?;
            if ended.is_some() || Instant::now() >= deadline {
                bail!(
                    "ferrovia did not get ready:\n{}",
                    self.take_log().join("\n")
                );
            }
        }
    }

    /// What it logged since this was asked last.
    pub(crate) fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether it still runs.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The number of its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as `kill -9` does, without a chance to do anything.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // It fails only if the process has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.end();
    }
}

/// Reads the log for as long as the proxy lives: a full pipe would block it.
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
