//! A runtime as the daemon has it, and what servers are made of.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process::Command;
use std::sync::{Arc, Mutex, Once};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ferrovia::kube_event::{Notice, Noticeboard};
use ferrovia::mode;
use ferrovia::serve::health::{Health, Moment, NodeState, State};
use ferrovia::serve::http::Bind;
use ferrovia::serve::metrics::Metrics;
use ferrovia_core::family::Family;
pub(crate) use ferrovia_lab::waiting::wait_until;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// One single-threaded runtime on a thread of its own.
pub(crate) struct Runtime {
    pub(crate) handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Runtime {
    pub(crate) fn start() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            let _ = runtime.block_on(stopped);
        });
        Self {
            handle,
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _ = self.stop.take().map(|stop| stop.send(()));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Where notices end up.
#[derive(Clone, Default)]
pub(crate) struct Board(Arc<Mutex<Vec<Notice>>>);

impl Board {
    pub(crate) fn notices(&self) -> Vec<Notice> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn noticeboard(&self) -> Noticeboard {
        let board = Arc::clone(&self.0);
        Arc::new(move |notice| board.lock().unwrap().push(notice))
    }
}

/// Any free port of an address.
pub(crate) fn anywhere(address: &str) -> Bind {
    Bind {
        address: address.parse().unwrap(),
        hard_fail: false,
        notices: Arc::new(|_| {}),
    }
}

/// An eligible node whose changes may wait for this long.
pub(crate) fn health(timeout: Duration) -> Arc<Health> {
    let health = Health::new(State::new(timeout, true));
    health.set_node(NodeState::Eligible);
    Arc::new(health)
}

/// Health of a proxy whose rules are written.
pub(crate) fn synced(timeout: Duration) -> Arc<Health> {
    let health = health(timeout);
    health.updated(Family::V4, Moment::now());
    health
}

pub(crate) fn measured() -> Arc<Metrics> {
    Arc::new(Metrics::new(
        mode::DEFAULT.name(),
        mode::DEFAULT.failure_metrics(),
    ))
}

/// A loopback address that no other test has, nor another run of this one.
pub(crate) fn own_ip(test: u8) -> String {
    let pid = std::process::id();
    format!("127.{}.{}.{test}", 64 + pid % 128, pid / 128 % 256)
}

/// A port that was free a moment ago. Tests use addresses of their own, so that none takes another's.
pub(crate) fn free_port(ip: &str) -> u16 {
    let ip: IpAddr = ip.parse().unwrap();
    let listener = TcpListener::bind(SocketAddr::new(ip, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// Some machines give a process a thousand descriptors, and a test is both ends of its connections.
pub(crate) fn allow_many_descriptors() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let pid = std::process::id().to_string();
        let status = Command::new("prlimit")
            .args(["--pid", &pid, "--nofile=8192:"])
            .status();
        assert!(
            status.is_ok_and(|status| status.success()),
            "prlimit cannot raise the number of open files to 8192"
        );
    });
}
