//! The engine as a whole: its threads, from start to end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle, available_parallelism};
use std::time::{Duration, Instant};

use super::service::Service;
use super::shared::{EngineState, Mailbox, ServiceState, WorkerMessage};
use super::sys::Epoll;
use super::worker::Worker;
use super::{Error, Protocol};
use crate::privileges;

/// More threads than this do not help a node: the kernel does most of the work.
const MOST_THREADS: usize = 4;
/// As long as kube-proxy's flag says by default.
const IDLE: Duration = Duration::from_millis(250);
/// Descriptors that are not for connections: listeners, pipes, and the rest of the process. At most a quarter of what there is.
const RESERVE: u64 = 1024;

/// How an engine is to be.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Threads; without a number as many as there are processors, up to four.
    pub threads: Option<usize>,
    /// Connections at once; without a number as many as descriptors allow. More wait to be accepted until some have ended.
    pub most_connections: Option<usize>,
    /// Flows of datagrams at once; without a number as many as descriptors allow, up to 65,536. When there are more the one that was
    /// silent longest goes.
    pub most_flows: Option<usize>,
}

/// The running engine. Dropped, it ends, and every connection with it.
#[derive(Debug)]
pub struct Engine {
    shared: Arc<EngineState>,
    threads: Vec<JoinHandle<()>>,
}

impl Engine {
    /// Starts the threads, in the network namespace of the caller, and raises the process's limit of descriptors as far as it may.
    ///
    /// # Errors
    /// If the system refuses threads or descriptors.
    pub fn start(options: &Options) -> Result<Self, Error> {
        let failed = |action| move |source| Error::Start { action, source };
        let descriptors = privileges::allow_many_open_files()
            .and_then(|()| privileges::most_open_files())
            .map_err(failed("raise the limit of open descriptors"))?;
        let cores = || {
            available_parallelism()
                .map_or(1, usize::from)
                .min(MOST_THREADS)
        };
        let count = options.threads.unwrap_or_else(cores).max(1);
        let limit =
            usize::try_from(descriptors - RESERVE.min(descriptors / 4)).unwrap_or(usize::MAX);
        let most_flows = options.most_flows.unwrap_or(limit / 2).min(1 << 16);
        let mailboxes = std::iter::repeat_with(Mailbox::new).take(count);
        let mailboxes: Result<_, _> = mailboxes.collect();
        let shared = Arc::new(EngineState {
            threads: mailboxes.map_err(failed("open an event counter"))?,
            open: AtomicUsize::new(0),
            most_connections: options.most_connections.unwrap_or(limit / 2).max(1),
            most_flows_each: (most_flows / count).max(1),
            start: Instant::now(),
            next_id: AtomicU64::new(0),
        });
        let mut engine = Self {
            shared,
            threads: Vec::new(),
        };
        for index in 0..count {
            let epoll = Epoll::new().map_err(failed("open an event queue"))?;
            let shared = engine.shared.clone();
            let thread = Builder::new()
                .name(format!("userspace-{index}"))
                .spawn(move || Worker::new(shared, epoll, index).run())
                .map_err(failed("start a thread"))?;
            engine.threads.push(thread);
        }
        tracing::debug!(
            threads = count,
            descriptors,
            maxConnections = engine.shared.most_connections,
            maxFlows = most_flows,
            "Started userspace proxy"
        );
        Ok(engine)
    }

    /// A new service port, without endpoints or listeners. The name is for messages.
    pub fn service(&self, name: impl Into<String>, protocol: Protocol) -> Service {
        Service::new(
            self.shared.clone(),
            Arc::new(ServiceState::new(name.into(), protocol, IDLE)),
        )
    }

    /// How many connections are open, those of removed service ports included.
    pub fn open_connections(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// A service port that carries one address to one endpoint: for the simplest use.
    ///
    /// # Errors
    /// If the address cannot be listened on.
    pub fn forward(
        &self,
        protocol: Protocol,
        from: SocketAddr,
        to: SocketAddr,
    ) -> Result<(Service, SocketAddr), Error> {
        let service = self.service(format!("{from}"), protocol);
        service.set_endpoints(&[to.into()], None);
        let address = service.listen(from.into())?;
        Ok((service, address))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.tell_all(|| WorkerMessage::Stop);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("Thread of the userspace proxy panicked");
            }
        }
    }
}
