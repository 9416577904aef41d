//! The daemon under test: a lab whose node runs `ferrovia` as a process, and assertions about it.
//!
//! - [`manifests`]: Services with endpoints that the lab's pods answer for
//! - [`kube_proxy`]: the daemon as a drop-in replacement, with kubeadm's configuration file
//! - [`service_account`]: the credentials that the kubelet mounts into a pod
//! - [`outage`]: a cluster that changes while the API server is unreachable
#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "assertions of tests: they panic with what failed"
)]

pub mod kube_proxy;
pub mod manifests;
pub mod outage;
pub mod service_account;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ferrovia_host::nft::Nft;

use crate::client::{Caller, PATIENCE};
use crate::waiting::{SOON, wait, wait_at_most};
use crate::{Case, Folder, Outcome, Patience, Protocol, Role, Session, Spec, World};

/// The output of `nft list tables` while the daemon owns the node but has written no rules yet.
pub const OWNER_TABLE: &str = "table ip ferrovia-owner\n";

/// A lab, a manifest folder, and the daemon if it is running.
#[derive(Debug)]
pub struct TestNode {
    /// The lab. The daemon runs in the namespace of [`Role::Node`].
    pub world: World,
    program: PathBuf,
    folder: Folder,
    daemon: Mutex<Option<Daemon>>,
}

#[derive(Debug)]
struct Daemon {
    child: Child,
    log: Arc<Mutex<String>>,
}

impl TestNode {
    /// A lab with an empty manifest folder. Tests pass `env!("CARGO_BIN_EXE_ferrovia")`, which only they know.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            world: World::new(Spec::default()).expect("the lab can be built"),
            program: program.into(),
            folder: Folder::new(),
            daemon: Mutex::new(None),
        }
    }

    /// The folder of manifests and other files of the daemon.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file into the folder as editors do: under another name, then renamed.
    pub fn write(&self, name: &str, text: &str) {
        let beside = self.folder.write(format!(".{name}.new"), text);
        std::fs::rename(beside, self.folder.join(name)).expect("the folder is writable");
    }

    /// Removes a file from the folder.
    pub fn remove(&self, name: &str) {
        std::fs::remove_file(self.folder.join(name)).expect("the file exists");
    }

    /// A `ferrovia` command inside the node's namespace.
    pub fn ferrovia(&self) -> Command {
        let program = self.program.to_str().expect("the path is UTF-8");
        self.world.exec(Role::Node, program)
    }

    /// Runs `ferrovia run --once` on the folder.
    pub fn once(&self) -> Output {
        self.once_with(&[])
    }

    /// Like [`Self::once`], with additional flags.
    pub fn once_with(&self, flags: &[&str]) -> Output {
        self.run_command()
            .arg("--once")
            .args(flags)
            .output()
            .expect("ferrovia can be started")
    }

    /// The daemon's command line, to which callers add flags.
    pub fn run_command(&self) -> Command {
        let mut command = self.ferrovia();
        command
            .arg("run")
            .arg("--manifests")
            .arg(self.folder())
            .args([
                "--node-name=node-1",
                "--cluster-cidr=10.244.0.0/16,fd00:10:244::/48",
                "--nodeport-addresses=all",
                // Daemons of parallel tests would otherwise use the same socket.
                "--admin-socket=",
            ]);
        command
    }

    /// Starts the daemon and waits for its initial sync.
    pub fn start(&self) {
        self.start_without_waiting();
        self.wait_until_ready();
    }

    /// Starts the daemon without waiting for its initial sync.
    pub fn start_without_waiting(&self) {
        self.spawn(self.run_command());
    }

    /// Starts a daemon. A previous one must have exited.
    pub fn spawn(&self, mut command: Command) {
        let mut child = command
            .stderr(Stdio::piped())
            .spawn()
            .expect("ferrovia can be started");
        let log = Arc::new(Mutex::new(String::new()));
        let (stderr, lines) = (
            child.stderr.take().expect("the stream is piped"),
            Arc::clone(&log),
        );
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let _ = writeln!(lines.lock().expect("the lock is not poisoned"), "{line}");
            }
        });
        *self.running() = Some(Daemon { child, log });
    }

    fn running(&self) -> MutexGuard<'_, Option<Daemon>> {
        self.daemon.lock().expect("the lock is not poisoned")
    }

    /// What the daemon has logged so far.
    pub fn log(&self) -> String {
        let log = |daemon: &Daemon| daemon.log.lock().expect("the lock is not poisoned").clone();
        self.running().as_ref().map(log).unwrap_or_default()
    }

    /// Waits until the log contains a text.
    pub fn wait_for_log(&self, text: &str) {
        wait(|| {
            if self.log().contains(text) {
                Ok(())
            } else {
                Err(format!("no {text:?} in the log:\n{}", self.log()))
            }
        });
    }

    /// Waits until the rules of all Services are in the kernel.
    pub fn wait_until_ready(&self) {
        self.wait_for_log("ready: all services");
    }

    fn with_daemon<T>(&self, operation: impl FnOnce(&mut Daemon) -> T) -> T {
        operation(self.running().as_mut().expect("the daemon was started"))
    }

    /// The daemon's process ID.
    pub fn pid(&self) -> u32 {
        self.with_daemon(|daemon| daemon.child.id())
    }

    /// Whether the daemon has not exited yet.
    pub fn is_running(&self) -> bool {
        self.with_daemon(|daemon| daemon.child.try_wait())
            .expect("the daemon is our child")
            .is_none()
    }

    /// Waits for the daemon to exit by itself; returns its exit code.
    pub fn wait_for_exit(&self) -> Option<i32> {
        wait(|| {
            if self.is_running() {
                Err(format!("the daemon is still running; log:\n{}", self.log()))
            } else {
                Ok(())
            }
        });
        self.with_daemon(|daemon| daemon.child.wait())
            .expect("the daemon is our child")
            .code()
    }

    /// The generation of the node's nf_tables ruleset, which every transaction increments.
    pub fn generation(&self) -> u32 {
        let _inside = self
            .world
            .enter(Role::Node)
            .expect("the node can be entered");
        Nft::open()
            .and_then(|mut nft| nft.generation())
            .expect("nf_tables answers")
    }

    /// Stops the daemon with a signal; returns its exit code, or nothing if the signal killed it.
    pub fn stop(&self, signal: libc::c_int) -> Option<i32> {
        let mut daemon = self.running().take().expect("the daemon runs");
        let kill = Command::new("kill")
            .arg(format!("-{signal}"))
            .arg(daemon.child.id().to_string())
            .status();
        assert!(kill.expect("kill can be run").success());
        daemon.child.wait().expect("the daemon is our child").code()
    }

    /// Runs a program in the node's namespace; it must succeed.
    pub fn on_node(&self, program: &str, arguments: &[&str]) -> String {
        let output = self
            .world
            .exec(Role::Node, program)
            .args(arguments)
            .output()
            .expect("the program can be run");
        assert!(
            output.status.success(),
            "{program} {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Writes text to the standard input of a program in the node's namespace; it must succeed.
    pub fn feed(&self, program: &str, arguments: &[&str], input: &str) {
        let mut command = self.world.exec(Role::Node, program);
        let mut child = command
            .args(arguments)
            .stdin(Stdio::piped())
            .spawn()
            .expect("the program can be run");
        std::io::Write::write_all(
            &mut child.stdin.take().expect("the stream is piped"),
            input.as_bytes(),
        )
        .expect("the program reads its input");
        assert!(
            child.wait().expect("the program is our child").success(),
            "{program} {arguments:?}"
        );
    }

    fn problems(&self, flows: &str, patience: Patience) -> Vec<String> {
        let mut session = Session::with(&self.world, patience);
        session.run(parse_flows(flows).steps[0].flows(&["nft"]))
    }

    /// Asserts that these flows hold now.
    pub fn expect(&self, flows: &str) {
        assert_eq!(
            self.problems(flows, Patience::Long),
            Vec::<String>::new(),
            "log:\n{}",
            self.log()
        );
    }

    /// Waits until these flows hold.
    pub fn expect_soon(&self, flows: &str) {
        self.expect_within(SOON, flows);
    }

    /// Like [`Self::expect_soon`], with another limit.
    pub fn expect_within(&self, limit: Duration, flows: &str) {
        let begin = Instant::now();
        wait_at_most(limit, || {
            // On a very busy machine no call is answered within the short limit.
            let patience = match begin.elapsed() < limit / 3 {
                true => Patience::Short,
                false => Patience::Long,
            };
            match self.problems(flows, patience) {
                problems if problems.is_empty() => Ok(()),
                problems => Err(format!("{problems:?}\nlog:\n{}", self.log())),
            }
        });
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        // A failed test may have poisoned the lock; the daemon must still be stopped.
        let running = self
            .daemon
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(daemon) = running {
            let _ = daemon.child.kill();
            let _ = daemon.child.wait();
        }
    }
}

/// Calls 10.96.0.10:80 without pause during an operation; every call must be answered.
pub fn answered_throughout(node: &TestNode, operation: impl FnOnce()) {
    const AT_LEAST: usize = 50;
    let (stop, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
    let call = || {
        let caller = Caller::enter(&node.world, Role::PodC).expect("the pod can be entered");
        let to = "10.96.0.10:80".parse().expect("an address");
        let (mut failures, begin) = (Vec::new(), Instant::now());
        while !stop.load(Ordering::Relaxed) || calls.load(Ordering::Relaxed) < AT_LEAST {
            let at = begin.elapsed();
            let outcome = caller.connect(Protocol::Tcp, None, to, PATIENCE);
            calls.fetch_add(1, Ordering::Relaxed);
            if !matches!(outcome, Outcome::Answer(_)) {
                failures.push(format!("{outcome} at {at:?}"));
            }
        }
        failures
    };
    let failures = std::thread::scope(|scope| {
        let caller = scope.spawn(call);
        operation();
        stop.store(true, Ordering::Relaxed);
        caller.join().expect("the caller does not panic")
    });
    assert!(
        failures.is_empty(),
        "{failures:?} of {calls:?} calls; log:\n{}",
        node.log()
    );
}

/// Parses flow lines as a case with one step.
pub fn parse_flows(flows: &str) -> Case {
    let text = format!("# inline\n-- step1.yaml --\n-- flows --\n{flows}\n");
    Case::parse(Path::new("inline"), &text).expect("the flows are well-formed")
}
