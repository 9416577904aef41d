//! The daemon under test and its folder.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ferrovia_host::nft::Nft;
use ferrovia_lab::client::{Caller, PATIENCE};
pub(crate) use ferrovia_lab::waiting::{wait, wait_at_most};
use ferrovia_lab::{Case, Folder, Outcome, Patience, Protocol, Role, Session, Spec, World};

/// How long anything may take that should happen soon.
pub(crate) const SOON: Duration = ferrovia_lab::waiting::SOON;

/// What `nft list tables` prints of a daemon that has written nothing yet: it only says that it owns the node.
pub(crate) const OWNER_TABLE: &str = "table ip ferrovia-owner\n";

/// A lab with the daemon's folder, and the daemon if it runs.
pub(crate) struct Node {
    pub(crate) world: World,
    folder: Folder,
    daemon: Mutex<Option<Daemon>>,
}

struct Daemon {
    child: Child,
    log: Arc<Mutex<String>>,
}

impl Node {
    /// A lab with an empty folder.
    pub(crate) fn new() -> Self {
        Self {
            world: World::new(Spec::default()).expect("the lab can be built"),
            folder: Folder::new(),
            daemon: Mutex::new(None),
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file into the folder the way editors do it: beside, then renamed.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let beside = self.folder.write(format!(".{name}.new"), text);
        std::fs::rename(beside, self.folder.join(name)).expect("the folder is writable");
    }

    pub(crate) fn remove(&self, name: &str) {
        std::fs::remove_file(self.folder.join(name)).expect("the file is there");
    }

    /// A `ferrovia` command inside the node's namespace.
    pub(crate) fn ferrovia(&self) -> Command {
        self.world.exec(Role::Node, env!("CARGO_BIN_EXE_ferrovia"))
    }

    /// `ferrovia run --once` on the folder.
    pub(crate) fn once(&self) -> Output {
        self.once_with(&[])
    }

    /// The same with more flags.
    pub(crate) fn once_with(&self, flags: &[&str]) -> Output {
        self.run_command()
            .arg("--once")
            .args(flags)
            .output()
            .expect("ferrovia can be started")
    }

    /// The daemon's command line, to be completed.
    pub(crate) fn run_command(&self) -> Command {
        let mut command = self.ferrovia();
        command
            .arg("run")
            .arg("--manifests")
            .arg(self.folder())
            .args([
                "--node-name=node-1",
                "--cluster-cidr=10.244.0.0/16,fd00:10:244::/48",
                "--nodeport-addresses=all",
                // All of these daemons would want the same file.
                "--admin-socket=",
            ]);
        command
    }

    /// Starts the daemon and waits until all services are in the kernel.
    pub(crate) fn start(&self) {
        self.start_without_waiting();
        self.wait_until_ready();
    }

    pub(crate) fn start_without_waiting(&self) {
        self.spawn(self.run_command());
    }

    /// Starts a daemon, in the place of the one before, if any. It must have ended.
    pub(crate) fn spawn(&self, mut command: Command) {
        let mut child = command
            .stderr(Stdio::piped())
            .spawn()
            .expect("ferrovia can be started");
        let log = Arc::new(Mutex::new(String::new()));
        let (stderr, lines) = (child.stderr.take().expect("it is piped"), Arc::clone(&log));
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let _ = writeln!(lines.lock().expect("nobody panics with it"), "{line}");
            }
        });
        *self.running() = Some(Daemon { child, log });
    }

    fn running(&self) -> MutexGuard<'_, Option<Daemon>> {
        self.daemon.lock().expect("nobody panics with it")
    }

    pub(crate) fn log(&self) -> String {
        let log = |daemon: &Daemon| daemon.log.lock().expect("nobody panics with it").clone();
        self.running().as_ref().map(log).unwrap_or_default()
    }

    pub(crate) fn wait_for_log(&self, words: &str) {
        wait(|| {
            if self.log().contains(words) {
                Ok(())
            } else {
                Err(format!("no {words:?} in the log:\n{}", self.log()))
            }
        });
    }

    /// Waits until all services are in the kernel.
    pub(crate) fn wait_until_ready(&self) {
        self.wait_for_log("ready: all services");
    }

    /// Something of the daemon, which must have been started.
    fn daemon<T>(&self, look: impl FnOnce(&mut Daemon) -> T) -> T {
        look(self.running().as_mut().expect("the daemon was started"))
    }

    /// The daemon's process.
    pub(crate) fn process(&self) -> u32 {
        self.daemon(|daemon| daemon.child.id())
    }

    /// Whether the daemon has not ended yet.
    pub(crate) fn is_running(&self) -> bool {
        self.daemon(|daemon| daemon.child.try_wait())
            .expect("the daemon is our child")
            .is_none()
    }

    /// Waits for the daemon to end by itself; answers with its exit code.
    pub(crate) fn wait_for_exit(&self) -> Option<i32> {
        wait(|| {
            if self.is_running() {
                Err(format!("it goes on running; log:\n{}", self.log()))
            } else {
                Ok(())
            }
        });
        self.daemon(|daemon| daemon.child.wait())
            .expect("the daemon is our child")
            .code()
    }

    /// Counts the transactions of anybody on the node.
    pub(crate) fn generation(&self) -> u32 {
        let _inside = self
            .world
            .enter(Role::Node)
            .expect("the node can be entered");
        Nft::open()
            .and_then(|mut nft| nft.generation())
            .expect("nf_tables answers")
    }

    /// Ends the daemon with a signal; answers with its exit code, if it ended by itself.
    pub(crate) fn stop(&self, signal: libc::c_int) -> Option<i32> {
        let mut daemon = self.running().take().expect("the daemon runs");
        let kill = Command::new("kill")
            .arg(format!("-{signal}"))
            .arg(daemon.child.id().to_string())
            .status();
        assert!(kill.expect("kill can be run").success());
        daemon.child.wait().expect("the daemon is our child").code()
    }

    /// Runs a program in the node's namespace; it must succeed.
    pub(crate) fn on_node(&self, program: &str, arguments: &[&str]) -> String {
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

    /// Feeds text to a program in the node's namespace; it must succeed.
    pub(crate) fn feed(&self, program: &str, arguments: &[&str], input: &str) {
        let mut command = self.world.exec(Role::Node, program);
        let mut child = command
            .args(arguments)
            .stdin(Stdio::piped())
            .spawn()
            .expect("the program can be run");
        std::io::Write::write_all(
            &mut child.stdin.take().expect("it is piped"),
            input.as_bytes(),
        )
        .expect("it reads");
        assert!(
            child.wait().expect("it is our child").success(),
            "{program} {arguments:?}"
        );
    }

    fn problems(&self, flows: &str, patience: Patience) -> Vec<String> {
        let mut session = Session::with(&self.world, patience);
        session.run(parse(flows).steps[0].flows(&["nft"]))
    }

    /// These flows hold now.
    pub(crate) fn expect(&self, flows: &str) {
        assert_eq!(
            self.problems(flows, Patience::Long),
            Vec::<String>::new(),
            "log:\n{}",
            self.log()
        );
    }

    /// These flows hold soon.
    pub(crate) fn expect_soon(&self, flows: &str) {
        self.expect_within(SOON, flows);
    }

    /// The same with another limit.
    pub(crate) fn expect_within(&self, limit: Duration, flows: &str) {
        let begin = Instant::now();
        wait_at_most(limit, || {
            // On a machine too busy to answer promptly, promptness cannot be waited for.
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

impl Drop for Node {
    fn drop(&mut self) {
        // A test that failed may have poisoned the lock; the daemon must go all the same.
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

/// Calls without pause while something happens; every call must be answered.
pub(crate) fn answered_throughout(node: &Node, happens: impl FnOnce()) {
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
        happens();
        stop.store(true, Ordering::Relaxed);
        caller.join().expect("the caller does not panic")
    });
    assert!(
        failures.is_empty(),
        "{failures:?} of {calls:?} calls; log:\n{}",
        node.log()
    );
}

/// Flow lines as a case.
pub(crate) fn parse(flows: &str) -> Case {
    let text = format!("# inline\n-- step1.yaml --\n-- flows --\n{flows}\n");
    Case::parse(Path::new("inline"), &text).expect("the flows are well-formed")
}

/// A Service `web` at 10.96.0.10:80 and node port 30080 with these pods behind it, of both families.
pub(crate) fn web(pods: &[&str]) -> String {
    service("web", 10, 30080, pods)
}

/// A Service with its slices.
pub(crate) fn service(name: &str, number: u32, node_port: u32, pods: &[&str]) -> String {
    let (high, low) = (number / 256, number % 256);
    let endpoints = |prefix: &str| {
        pods.iter().fold(String::new(), |mut text, pod| {
            let (node, host) = pod.split_once('.').expect("a pod is `node.host`");
            let separator = if prefix.contains(':') { "::" } else { "." };
            let _ = writeln!(
                text,
                "- {{ addresses: ['{prefix}{node}{separator}{host}'], nodeName: node-{node} }}"
            );
            text
        })
    };
    let slice = |kind: &str, prefix: &str| {
        format!(
            "---\nkind: EndpointSlice\napiVersion: discovery.k8s.io/v1\nmetadata:\n  name: {name}-{}\n  labels: {{ kubernetes.io/service-name: {name} }}\naddressType: {kind}\nports: [{{ port: 8080 }}]\nendpoints:\n{}",
            kind.to_lowercase(),
            endpoints(prefix)
        )
    };
    format!(
        "kind: Service\napiVersion: v1\nmetadata: {{ name: {name} }}\nspec:\n  type: NodePort\n  clusterIP: 10.96.{high}.{low}\n  clusterIPs: [10.96.{high}.{low}, 'fd00:10:96::{number:x}']\n  ipFamilyPolicy: RequireDualStack\n  ipFamilies: [IPv4, IPv6]\n  ports: [{{ port: 80, nodePort: {node_port} }}]\n{}{}",
        slice("IPv4", "10.244."),
        slice("IPv6", "fd00:10:244:")
    )
}
