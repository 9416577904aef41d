//! The node with its API server, and the daemon with its limits.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ferrovia_lab::apiserver::{ApiServer, Auth, Options as ApiOptions, sample};
use ferrovia_lab::layout::NODE_ADDRESSES;
use ferrovia_lab::{Role, Spec, World};

use crate::objects::NODE;
use crate::{Mode, Options};

/// Whatever takes longer will never happen. Generous: machines are loaded.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
const HEALTH: &str = "127.0.0.1:10256";
/// The program.
const FERROVIA: &str = env!("CARGO_BIN_EXE_ferrovia");

/// Beyond which memory and descriptors are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limits {
    None,
    /// Bytes of memory of its own.
    Memory(u64),
    Descriptors(u32),
    /// The folders for its log and for temporary files are full.
    FullDisk,
    /// The machine seems to be up for this many seconds more.
    Uptime(u64),
}

/// What a process uses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// KiB.
    pub(crate) resident: u64,
    /// KiB, at most so far.
    pub(crate) peak: u64,
    pub(crate) descriptors: usize,
}

/// All there is.
pub(crate) struct Stage {
    // Fields are dropped in order: nobody is in the world when it goes.
    daemon: Mutex<Option<Child>>,
    pub(crate) api: ApiServer,
    pub(crate) world: World,
    pub(crate) mode: Mode,
    folder: PathBuf,
}

impl Stage {
    pub(crate) fn build(options: &Options) -> anyhow::Result<Self> {
        World::sweep()?;
        let world = World::new(Spec::default())?;
        let api = {
            let _inside = world.enter(Role::Node)?;
            ApiServer::start(ApiOptions {
                tls: true,
                auth: Auth::Token,
                ..ApiOptions::default()
            })?
        };
        let [v4, _, v6, _] = NODE_ADDRESSES;
        api.apply(sample::node(NODE, &[v4, v6]))?;
        api.apply(sample::service_cidr(
            "kubernetes",
            &["10.96.0.0/12", "fd00:10:96::/112"],
        ))?;
        let folder = std::env::temp_dir().join(world.name(Role::Node));
        fs::create_dir_all(folder.join("full")).context("cannot make a temporary folder")?;
        let stage = Self {
            daemon: Mutex::new(None),
            api,
            world,
            mode: options.mode,
            folder,
        };
        stage.write_configuration()?;
        if options.mode == Mode::Iptables {
            // Says which of the two kinds of tools this node uses, as a kubelet does.
            stage.on_node(
                "iptables-nft",
                &["-w", "60", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT"],
            )?;
        }
        Ok(stage)
    }

    /// What belongs to the whole machine is left alone.
    fn write_configuration(&self) -> anyhow::Result<()> {
        let kubeconfig = self.api.kubeconfig(&self.folder)?;
        let text = format!(
            "apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: {}
hostnameOverride: {NODE}
clientConnection: {{ kubeconfig: {}, qps: -1 }}
clusterCIDR: 10.244.0.0/16,fd00:10:244::/48
healthzBindAddress: {HEALTH}
metricsBindAddress: 127.0.0.1:10249
conntrack: {{ maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s }}
oomScoreAdj: 0
ferrovia: {{ admin: {{ socket: '' }} }}
",
            self.mode.name(),
            kubeconfig.display()
        );
        fs::write(self.configuration(), text).context("cannot write the configuration")
    }

    fn configuration(&self) -> PathBuf {
        self.folder.join("config.yaml")
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// Starts the daemon, and waits until it says that all is well.
    pub(crate) fn start(&self, limits: Limits) -> anyhow::Result<()> {
        let mut command = self.command(limits);
        command.arg(format!("--config={}", self.configuration().display()));
        let log = File::options().create(true).append(true).open(self.log());
        let child = command
            .stdout(Stdio::null())
            .stderr(log.context("cannot write the log")?)
            .spawn()
            .with_context(|| format!("cannot start the daemon with {limits:?}"))?;
        *self.daemon() = Some(child);
        self.until("the daemon is healthy", || self.is_healthy())
    }

    fn command(&self, limits: Limits) -> Command {
        let wrapped = |program: &str, arguments: &[&str]| {
            let mut command = self.world.exec(Role::Node, program);
            command.args(arguments).arg(FERROVIA);
            command
        };
        match limits {
            Limits::None => self.world.exec(Role::Node, FERROVIA),
            Limits::Memory(bytes) => wrapped("prlimit", &[&format!("--data={bytes}")]),
            Limits::Descriptors(most) => wrapped("prlimit", &[&format!("--nofile={most}")]),
            Limits::Uptime(more) => {
                let seconds = more.to_string();
                wrapped(
                    "unshare",
                    &["--time", "--monotonic", &seconds, "--boottime", &seconds],
                )
            }
            Limits::FullDisk => {
                // The mount is seen by the daemon alone, and goes with it.
                let script = "mount -t tmpfs -o size=8k none \"$0\"; head -c 1M /dev/zero >\"$0/all\" 2>/dev/null || true; \
                              export TMPDIR=\"$0\"; exec \"$@\" 2>>\"$0/log\"";
                let full = self.folder.join("full");
                wrapped(
                    "unshare",
                    &["--mount", "sh", "-ec", script, &full.display().to_string()],
                )
            }
        }
    }

    /// Ends the daemon without asking it.
    pub(crate) fn kill(&self) -> anyhow::Result<()> {
        let mut child = self.daemon().take().context("no daemon runs")?;
        child.kill().context("cannot kill the daemon")?;
        child.wait().context("cannot wait for the daemon")?;
        Ok(())
    }

    /// Ends the daemon and starts another one.
    pub(crate) fn restart(&self, limits: Limits) -> anyhow::Result<()> {
        self.kill()?;
        self.start(limits)
    }

    pub(crate) fn is_running(&self) -> bool {
        let mut daemon = self.daemon();
        daemon
            .as_mut()
            .is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    fn is_healthy(&self) -> anyhow::Result<bool> {
        if !self.is_running() {
            bail!("the daemon has ended");
        }
        let _inside = self.world.enter(Role::Node)?;
        let address: SocketAddr = HEALTH.parse()?;
        let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(5)) else {
            return Ok(false);
        };
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let request = "GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let mut answer = String::new();
        let asked = stream.write_all(request.as_bytes());
        let answered = asked.and_then(|()| stream.read_to_string(&mut answer));
        Ok(answered.is_ok() && answer.starts_with("HTTP/1.1 200"))
    }

    /// Connections to the health server that say nothing.
    pub(crate) fn idle_connections(&self, count: usize) -> anyhow::Result<Vec<TcpStream>> {
        let _inside = self.world.enter(Role::Node)?;
        let address: SocketAddr = HEALTH.parse()?;
        let connect = |_| TcpStream::connect_timeout(&address, Duration::from_secs(5));
        Ok((0..count)
            .map_while(|number| connect(number).ok())
            .collect())
    }

    /// Runs a program in the node; it must succeed.
    pub(crate) fn on_node(&self, program: &str, arguments: &[&str]) -> anyhow::Result<()> {
        let output = self
            .world
            .exec(Role::Node, program)
            .args(arguments)
            .output()?;
        if !output.status.success() {
            bail!(
                "{program} {arguments:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(())
    }

    /// What differs between the kernel and what a full sync would write, in the words of `ferrovia verify`; nothing if they agree.
    pub(crate) fn differences(&self) -> anyhow::Result<Option<String>> {
        let mut command = self.world.exec(Role::Node, FERROVIA);
        command
            .arg("verify")
            .arg("--config")
            .arg(self.configuration());
        let output = command
            .stdin(Stdio::null())
            .output()
            .context("cannot run ferrovia verify")?;
        let words = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok((!output.status.success()).then(|| words.trim().to_owned()))
    }

    /// What the daemon uses now.
    pub(crate) fn usage(&self) -> anyhow::Result<Usage> {
        let pid = self.daemon().as_ref().context("no daemon runs")?.id();
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
            number.with_context(|| format!("no {name} in the status of the daemon"))
        };
        Ok(Usage {
            resident: field("VmRSS:")?,
            peak: field("VmHWM:")?,
            descriptors: fs::read_dir(format!("/proc/{pid}/fd"))?.count(),
        })
    }

    /// Asks again and again until the answer is yes.
    pub(crate) fn until(
        &self,
        what: &str,
        mut is_so: impl FnMut() -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        const PROMPTLY: Duration = Duration::from_millis(200);
        let begin = Instant::now();
        loop {
            let waited = begin.elapsed();
            match is_so() {
                Ok(true) => return Ok(()),
                Ok(false) if waited < PROMPTLY => thread::sleep(Duration::from_millis(2)),
                // Every question may use up a port.
                Ok(false) if waited < PATIENCE => thread::sleep(PROMPTLY),
                Ok(false) => bail!("{what}: not within {PATIENCE:?}; {}", self.last_words()),
                Err(error) => {
                    return Err(error.context(self.last_words()).context(what.to_owned()));
                }
            }
        }
    }

    /// What the daemon logged last.
    pub(crate) fn last_words(&self) -> String {
        const LINES: usize = 12;
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        let last = &lines[lines.len().saturating_sub(LINES)..];
        format!("its log ends with\n{}", last.join("\n"))
    }

    /// Whether some part of the daemon panicked.
    pub(crate) fn has_panicked(&self) -> bool {
        fs::read_to_string(self.log()).is_ok_and(|log| log.contains("panicked at"))
    }

    fn daemon(&self) -> MutexGuard<'_, Option<Child>> {
        self.daemon.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(daemon) = self.daemon().as_mut() {
            // It may have ended already.
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}
