//! The node with its API server, and the daemon with its limits.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use ferrovia_lab::apiserver::{ApiServer, ApiServerOptions, Auth, sample};
use ferrovia_lab::layout::NODE_ADDRESSES;
use ferrovia_lab::{Role, Spec, World};

use crate::limits::{FERROVIA, Files, Limits};
use crate::objects::NODE;
use crate::{Mode, Options};

/// Whatever takes longer will never happen. Generous: machines are loaded.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
/// Where the daemon answers, in the node.
pub(crate) const HEALTH: &str = "127.0.0.1:10256";
pub(crate) const METRICS: &str = "127.0.0.1:10249";
/// Node ports are on all of the node's addresses in here, those it has and those it gets.
const NODE_PORT_RANGE: &str = "198.51.100.0/24";

/// What a process uses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// KiB.
    pub(crate) resident: u64,
    /// KiB, at most so far.
    pub(crate) peak: u64,
    pub(crate) descriptors: usize,
    /// Time on processors so far.
    pub(crate) cpu: Duration,
}

/// All there is.
pub(crate) struct Stage {
    // Fields are dropped in order: all processes exit before the world is removed.
    daemon: Mutex<Option<Child>>,
    pub(crate) api: ApiServer,
    pub(crate) world: World,
    pub(crate) mode: Mode,
    pub(crate) files: Files,
}

impl Stage {
    pub(crate) fn build(options: &Options) -> anyhow::Result<Self> {
        World::sweep()?;
        let world = World::new(Spec::default())?;
        let api = {
            let _inside = world.enter(Role::Node)?;
            ApiServer::start(ApiServerOptions {
                tls: true,
                auth: Auth::Token,
                ..ApiServerOptions::default()
            })?
        };
        let [v4, _, v6, _] = NODE_ADDRESSES;
        api.apply(sample::node(NODE, &[v4, v6]))?;
        api.apply(sample::service_cidr(
            "kubernetes",
            &["10.96.0.0/12", "fd00:10:96::/112"],
        ))?;
        let files = Files::make(world.name(Role::Node))?;
        let stage = Self {
            daemon: Mutex::new(None),
            api,
            world,
            mode: options.mode,
            files,
        };
        stage.write_configurations()?;
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
    fn write_configurations(&self) -> anyhow::Result<()> {
        let kubeconfig = self.api.kubeconfig(self.files.folder())?;
        let mode = self.mode.name();
        let text = format!(
            "apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: {mode}
hostnameOverride: {NODE}
clientConnection: {{ kubeconfig: {}, qps: -1 }}
clusterCIDR: 10.244.0.0/16,fd00:10:244::/48
nodePortAddresses: [{NODE_PORT_RANGE}]
healthzBindAddress: {HEALTH}
metricsBindAddress: {METRICS}
conntrack: {{ maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s }}
oomScoreAdj: 0
ferrovia: {{ admin: {{ socket: '' }} }}
",
            kubeconfig.display()
        );
        let hasty = format!("{text}{mode}: {{ syncPeriod: 1s }}\n");
        fs::write(self.files.configuration(Limits::Hasty), hasty)
            .and_then(|()| fs::write(self.files.configuration(Limits::None), text))
            .context("cannot write the configuration")
    }

    /// Starts the daemon, and waits until it says that all is well.
    pub(crate) fn start(&self, limits: Limits) -> anyhow::Result<()> {
        let mut command = self.files.command(&self.world, limits)?;
        let configuration = self.files.configuration(limits);
        command.arg(format!("--config={}", configuration.display()));
        let log = self.files.log();
        let log = File::options().create(true).append(true).open(log);
        let child = command
            .stdout(Stdio::null())
            .stderr(log.context("cannot write the log")?)
            .spawn()
            .with_context(|| format!("cannot start the daemon with {limits:?}"))?;
        *self.daemon() = Some(child);
        self.until("the daemon is healthy", || self.is_healthy())
    }

    /// The most memory that daemons with little of it had at once, with what the kernel held for them.
    ///
    /// It is an error if one was killed for want of more.
    pub(crate) fn memory_peak(&self) -> anyhow::Result<u64> {
        let kills = self.files.memory_kills()?;
        ensure!(kills == 0, "killed {kills} times for want of memory");
        self.files.memory_peak()
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

    /// Whether the daemon says that all is well; it must run, but it need not answer.
    pub(crate) fn is_healthy(&self) -> anyhow::Result<bool> {
        if !self.is_running() {
            bail!("the daemon has ended");
        }
        let answer = self.get(HEALTH, "/healthz")?;
        Ok(answer.is_some_and(|answer| answer.starts_with("HTTP/1.1 200")))
    }

    /// The daemon's whole answer to a request, if it gives one.
    pub(crate) fn get(&self, server: &str, path: &str) -> anyhow::Result<Option<String>> {
        let _inside = self.world.enter(Role::Node)?;
        let address: SocketAddr = server.parse()?;
        let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(5)) else {
            return Ok(None);
        };
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let mut answer = String::new();
        let asked = stream.write_all(request.as_bytes());
        let answered = asked.and_then(|()| stream.read_to_string(&mut answer));
        Ok(answered.is_ok().then_some(answer))
    }

    /// The sum of a metric's series.
    pub(crate) fn metric(&self, name: &str) -> anyhow::Result<f64> {
        let page = self.get(METRICS, "/metrics")?;
        let page = page.context("the daemon does not tell its metrics")?;
        let values = page.lines().filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let is_it = series.split('{').next() == Some(name);
            is_it.then(|| value.parse::<f64>().ok())?
        });
        values
            .reduce(|sum, value| sum + value)
            .with_context(|| format!("there is no metric {name}"))
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
            .arg(self.files.configuration(Limits::None));
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

    /// How many tables, chains, rules and sets there are in the node, by lines. The elements of sets are compared elsewhere.
    pub(crate) fn kernel_objects(&self) -> anyhow::Result<usize> {
        let mut command = self.world.exec(Role::Node, "nft");
        let output = command
            .args(["--terse", "--stateless", "list", "ruleset"])
            .output()
            .context("cannot run nft")?;
        if !output.status.success() {
            bail!("nft: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8_lossy(&output.stdout).lines().count())
    }

    /// The daemon's number.
    pub(crate) fn pid(&self) -> anyhow::Result<u32> {
        Ok(self.daemon().as_ref().context("no daemon runs")?.id())
    }

    /// What the daemon uses now.
    pub(crate) fn usage(&self) -> anyhow::Result<Usage> {
        let pid = self.pid()?;
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
            cpu: cpu(&fs::read_to_string(format!("/proc/{pid}/stat"))?),
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
        let log = fs::read_to_string(self.files.log()).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        let last = &lines[lines.len().saturating_sub(LINES)..];
        format!("its log ends with\n{}", last.join("\n"))
    }

    /// Whether some part of the daemon panicked.
    pub(crate) fn has_panicked(&self) -> bool {
        self.has_said("panicked at")
    }

    /// Whether these words are in the log.
    pub(crate) fn has_said(&self, words: &str) -> bool {
        fs::read_to_string(self.files.log()).is_ok_and(|log| log.contains(words))
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
    }
}

/// The time on processors in a process's `stat`, in user space and in the kernel.
fn cpu(stat: &str) -> Duration {
    const TICK: Duration = Duration::from_millis(10);
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    let ticks = fields.split(' ').skip(11).take(2);
    let ticks: u32 = ticks.filter_map(|ticks| ticks.parse::<u32>().ok()).sum();
    TICK * ticks
}
