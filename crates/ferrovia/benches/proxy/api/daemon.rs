//! The measured process, and the server it follows.

use std::fs::{self, File};
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use ferrovia_lab::apiserver::{ApiServer, ApiServerOptions, Auth, sample};
use ferrovia_lab::{Role, Spec, World};
use serde_json::Value;

use super::objects;
use crate::cluster::{CLUSTER_CIDR, NODE, TARGET_PORT};
use crate::compare::remote::Remote;
use crate::process::{self, Memory};

/// A broken proxy must not hang the run.
const PATIENCE: Duration = Duration::from_secs(180);
/// How many of the daemon's last words are told when it is of no use.
const LAST_WORDS: usize = 10;
/// How much of each line: a kube-proxy writes whole objects into its log.
const LINE: usize = 300;

/// How the daemon is started.
pub(crate) struct Launch {
    /// What is started.
    pub(crate) program: Program,
    /// The mode, as people ask for it.
    pub(crate) mode: String,
    /// What is said to it by its environment.
    pub(crate) environment: Vec<(&'static str, PathBuf)>,
}

impl Launch {
    /// In the nftables mode.
    pub(crate) fn nftables() -> Self {
        Self {
            program: Program::Ferrovia,
            mode: "nftables".to_owned(),
            environment: Vec::new(),
        }
    }
}

impl Launch {
    /// What starts it as a kube-proxy is started, on the Node of this name. What belongs to the whole machine is left alone.
    pub(crate) fn command(&self, world: &World, kubeconfig: &Path, name: &str) -> Command {
        let mut command = self.program.command(world);
        command
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args([
                &format!("--hostname-override={name}"),
                &format!("--cluster-cidr={CLUSTER_CIDR}"),
                &format!("--proxy-mode={}", self.mode),
                "--healthz-bind-address=127.0.0.1:10256",
                "--metrics-bind-address=127.0.0.1:10249",
                "--conntrack-max-per-core=0",
                "--conntrack-tcp-timeout-established=0s",
                "--conntrack-tcp-timeout-close-wait=0s",
                "--oom-score-adj=0",
            ])
            .envs(self.environment.clone());
        command
    }
}

/// What is measured.
pub(crate) enum Program {
    /// The one that was just built.
    Ferrovia,
    /// A kube-proxy.
    KubeProxy {
        /// The file.
        path: PathBuf,
        /// What this one wants to be told besides.
        flags: Vec<&'static str>,
    },
}

impl Program {
    /// How it is called.
    fn command(&self, world: &World) -> Command {
        match self {
            Self::Ferrovia => {
                let mut command = world.exec(Role::Node, env!("CARGO_BIN_EXE_ferrovia"));
                command.args(["run", "--admin-socket=", "--web-bind-address="]);
                command
            }
            Self::KubeProxy { path, flags } => {
                let mut command = world.exec(Role::Node, &path.to_string_lossy());
                command.args(flags);
                command
            }
        }
    }
}

/// What is followed.
pub(crate) enum Server {
    /// The lab's.
    Lab(ApiServer),
    /// Somebody else's, which several nodes may follow one after the other.
    Remote(Arc<Remote>),
}

impl Server {
    /// Makes an object, or changes it.
    pub(crate) fn apply(&self, object: Value) -> anyhow::Result<()> {
        match self {
            Self::Lab(server) => server.apply(object).map(|_| ()).map_err(Into::into),
            Self::Remote(server) => server.apply(&object),
        }
    }

    /// Where a service is reached.
    pub(crate) fn address(&self, service: usize) -> anyhow::Result<SocketAddrV4> {
        let known = objects::address(service);
        match self {
            Self::Lab(_) => Ok(known),
            Self::Remote(server) => {
                let name = sample::service_name(service as u32);
                let address = server.address(&name);
                let address = address.with_context(|| format!("{name} has no cluster IP"))?;
                Ok(SocketAddrV4::new(address, known.port()))
            }
        }
    }
}

/// A lab whose node has an API server and, once started, a daemon.
pub(crate) struct Node {
    // Fields are dropped in order: nobody is in the world when it goes.
    daemon: Option<Mutex<Child>>,
    pub(crate) server: Server,
    /// The Node object that the daemon takes for its own.
    name: String,
    pub(crate) world: World,
    folder: PathBuf,
    /// How long the daemon may take for what is waited for.
    pub(crate) patience: Duration,
}

impl Node {
    /// A server with these objects, and nobody who follows it.
    pub(crate) fn new(objects: impl Iterator<Item = Value>) -> anyhow::Result<Self> {
        let world = new_world()?;
        let options = ApiServerOptions {
            tls: true,
            auth: Auth::Token,
            ..ApiServerOptions::default()
        };
        let server = {
            let _inside = world.enter(Role::Node)?;
            ApiServer::start(options)?
        };
        server.apply_many(objects)?;
        Self::beside(Server::Lab(server), NODE.to_owned(), world)
    }

    /// A node that follows a server of somebody else's.
    pub(crate) fn far_from(server: Arc<Remote>) -> anyhow::Result<Self> {
        let name = server.node()?;
        Self::beside(Server::Remote(server), name, new_world()?)
    }

    fn beside(server: Server, name: String, world: World) -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(world.name(Role::Node));
        fs::create_dir_all(&folder).context("cannot make a temporary folder")?;
        Ok(Self {
            daemon: None,
            server,
            name,
            world,
            folder,
            patience: PATIENCE,
        })
    }

    /// Starts the daemon.
    pub(crate) fn start(&mut self, launch: &Launch) -> anyhow::Result<()> {
        let kubeconfig = match &self.server {
            Server::Lab(server) => server.kubeconfig(&self.folder)?,
            Server::Remote(server) => server.kubeconfig(&self.world, &self.folder)?,
        };
        let log = File::create(self.log()).context("cannot write the daemon's log")?;
        let daemon = launch
            .command(&self.world, &kubeconfig, &self.name)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("cannot start the daemon")?;
        self.daemon = Some(Mutex::new(daemon));
        Ok(())
    }

    /// Says which kind of iptables tools the node uses, as a kubelet does: by using one of them.
    pub(crate) fn use_tools(&self, launch: &Launch, tool: &str) -> anyhow::Result<()> {
        let said = self
            .world
            .exec(Role::Node, tool)
            .args(["-t", "mangle", "-N", "KUBE-IPTABLES-HINT"])
            .envs(launch.environment.clone())
            .output()
            .with_context(|| format!("cannot start {tool}"))?;
        let complaint = String::from_utf8_lossy(&said.stderr);
        ensure!(said.status.success(), "{tool}: {complaint}");
        Ok(())
    }

    /// Asks again and again until the answer is yes; answers with the time since the beginning.
    pub(crate) fn until(
        &self,
        begin: Instant,
        mut is_so: impl FnMut() -> anyhow::Result<bool>,
    ) -> anyhow::Result<Duration> {
        while !is_so()? {
            let trouble = match self.ended()? {
                Some(status) => format!("has ended ({status})"),
                None if begin.elapsed() > self.patience => {
                    format!("has not done its work after {} s", self.patience.as_secs())
                }
                None => continue,
            };
            bail!(
                "the daemon {trouble}; its log ends with\n{}",
                self.last_words()
            );
        }
        Ok(begin.elapsed())
    }

    /// How the daemon ended, if it did.
    fn ended(&self) -> anyhow::Result<Option<ExitStatus>> {
        Ok(self.grip()?.try_wait()?)
    }

    /// What the daemon has in memory.
    pub(crate) fn memory(&self) -> anyhow::Result<Memory> {
        process::memory(self.pid()?)
    }

    /// The time the daemon was on a CPU.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        process::cpu(self.pid()?)
    }

    /// The same, with the programs that it started and that have ended.
    pub(crate) fn cpu_with_children(&self) -> anyhow::Result<Duration> {
        Ok(self.cpu()? + process::cpu_of_children(self.pid()?)?)
    }

    fn pid(&self) -> anyhow::Result<u32> {
        Ok(self.grip()?.id())
    }

    fn grip(&self) -> anyhow::Result<MutexGuard<'_, Child>> {
        let daemon = self.daemon.as_ref().context("no daemon was started")?;
        // Whoever panicked while holding it changed nothing.
        Ok(daemon.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A file of this node's own.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn log(&self) -> PathBuf {
        self.file("log")
    }

    fn last_words(&self) -> String {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let lines = log
            .lines()
            .map(|line| line.chars().take(LINE).collect::<String>());
        let lines: Vec<_> = lines.collect();
        lines[lines.len().saturating_sub(LAST_WORDS)..].join("\n")
    }
}

pub(crate) fn new_world() -> anyhow::Result<World> {
    Ok(World::new(Spec {
        ports: vec![TARGET_PORT],
        ..Spec::default()
    })?)
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Ok(mut daemon) = self.grip() {
            // It may have ended already, and then it said why.
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}
