//! A source under test: it follows a server on its own thread, and its events are recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ferrovia::source::kube::{self, Api, ApiAccess, Asked, Freshness, Observer, Times};
use ferrovia::sync::{self, Input};
use ferrovia_core::store::Event;
use ferrovia_core::wire::{Kind, Object};
use ferrovia_lab::apiserver::{ApiServer, ApiServerOptions, Request};
use ferrovia_lab::waiting::{self, SOON};
use serde_json::{Value, json};
use tokio::sync::oneshot;

pub(crate) const NODE: &str = "node-1";

/// Times that make tests quick where something has to be waited for, and long where nothing should ever be.
pub(crate) fn times() -> Times {
    Times {
        answer: Duration::from_secs(60),
        page: Duration::from_secs(300),
        list_silence: Duration::from_secs(120),
        watch_list_retry: Duration::from_secs(600),
        watch: (Duration::from_secs(300), Duration::from_secs(600)),
        overdue: Duration::from_secs(30),
        silence: Duration::from_secs(300),
        ping: (Duration::from_secs(300), Duration::from_secs(60)),
        probe: (Duration::from_millis(10), Duration::from_millis(30)),
        backoff: Duration::from_millis(10),
        backoff_limit: Duration::from_millis(50),
        backoff_reset: Duration::from_secs(120),
        absent: Duration::from_millis(50),
        credentials: Duration::from_secs(60),
        credentials_retry: Duration::from_millis(100),
    }
}

/// No limit, and no credentials: by address alone.
pub(crate) fn access_to(server: &ApiServer) -> ApiAccess {
    ApiAccess {
        master: Some(server.url()),
        qps: -1.0,
        ..ApiAccess::default()
    }
}

pub(crate) fn server(options: ApiServerOptions) -> ApiServer {
    ApiServer::start(options).unwrap()
}

/// The events received so far.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// Every event, as text: `+Service shop/web:80`, `-Service shop/web`, `listed Service`.
    pub(crate) log: Vec<String>,
    /// The objects as they are now, and the port or first address of each.
    pub(crate) objects: BTreeMap<String, String>,
    pub(crate) listed: BTreeSet<Kind>,
    pub(crate) is_complete: bool,
    pub(crate) largest_batch: usize,
}

impl Received {
    pub(crate) fn is_listed(&self) -> bool {
        self.listed.len() == Kind::ALL.len()
    }

    pub(crate) fn has(&self, object: &str) -> bool {
        self.objects.contains_key(object)
    }

    pub(crate) fn is(&self, object: &str, value: &str) -> bool {
        self.objects.get(object).is_some_and(|known| known == value)
    }

    fn take(&mut self, input: Input) {
        let Input::Events {
            events,
            has_unreadable_objects,
        } = input
        else {
            panic!("{input:?}");
        };
        self.is_complete = !has_unreadable_objects;
        self.largest_batch = self.largest_batch.max(events.len());
        for event in events {
            match event {
                Event::Applied(object) => {
                    let (name, value) = describe(&object);
                    self.log.push(format!("+{name}:{value}"));
                    self.objects.insert(name, value);
                }
                Event::Deleted {
                    kind,
                    namespace,
                    name,
                } => {
                    let name = format!("{} {namespace}/{name}", kind.name());
                    self.log.push(format!("-{name}"));
                    self.objects.remove(&name);
                }
                Event::Listed(kind) => {
                    self.log.push(format!("listed {}", kind.name()));
                    self.listed.insert(kind);
                }
            }
        }
    }
}

fn describe(object: &Object) -> (String, String) {
    let metadata = object.metadata();
    let value = match object {
        Object::Service(service) => service.spec.ports.first().map(|port| port.port.to_string()),
        Object::EndpointSlice(slice) => slice
            .endpoints
            .first()
            .and_then(|endpoint| endpoint.addresses.first().cloned()),
        _ => None,
    };
    let name = format!(
        "{} {}/{}",
        object.kind().name(),
        metadata.namespace,
        metadata.name
    );
    (name, value.unwrap_or_default())
}

/// What was observed so far.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) codes: Vec<Option<u16>>,
    pub(crate) held_back: u32,
    pub(crate) restarts: u32,
    pub(crate) relists: u32,
    pub(crate) heard_of_services: u32,
}

#[derive(Default)]
struct Shared {
    received: Mutex<Received>,
    news: Condvar,
    seen: Mutex<Seen>,
}

struct Recorder(Arc<Shared>);

impl Observer for Recorder {
    fn asked(&self, request: &Asked<'_>) {
        let mut seen = self.0.seen.lock().unwrap();
        seen.codes.push(request.code);
        seen.held_back += u32::from(!request.held_back.is_zero());
    }

    fn watch_restarted(&self, _kind: Kind) {
        self.0.seen.lock().unwrap().restarts += 1;
    }

    fn relisted(&self, _kind: Kind) {
        self.0.seen.lock().unwrap().relists += 1;
    }

    fn heard_of(&self, kind: Kind) {
        if kind == Kind::Service {
            self.0.seen.lock().unwrap().heard_of_services += 1;
        }
    }
}

/// A source that runs.
pub(crate) struct Source {
    shared: Arc<Shared>,
    pub(crate) freshness: Freshness,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Source {
    /// Follows a server without credentials.
    pub(crate) fn of(server: &ApiServer) -> Self {
        Self::start(access_to(server), times())
    }

    /// The same, and waits for the first lists.
    pub(crate) fn listed(server: &ApiServer) -> Self {
        let source = Self::of(server);
        source.wait(Received::is_listed);
        source
    }

    pub(crate) fn start(access: ApiAccess, times: Times) -> Self {
        let shared = Arc::new(Shared::default());
        let freshness = Freshness::new(Instant::now());
        let (stop, stopped) = oneshot::channel();
        let (received, clock) = (shared.clone(), freshness.clone());
        let work = async move {
            let observer = Arc::new(Recorder(received.clone()));
            let api = Api::open(access, times, observer).await.unwrap();
            let (inputs, queue) = sync::queue();
            let receive = async {
                while let Ok(input) = queue.recv_async().await {
                    received.received.lock().unwrap().take(input);
                    received.news.notify_all();
                }
            };
            tokio::select! {
                () = kube::run(api, NODE, clock, inputs) => {}
                () = receive => {}
                _ = stopped => {}
            }
        };
        let thread = std::thread::spawn(move || runtime().block_on(work));
        Self {
            shared,
            freshness,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Waits until a condition on the received events holds.
    #[track_caller]
    pub(crate) fn wait(&self, mut is_so: impl FnMut(&Received) -> bool) {
        let received = self.shared.received.lock().unwrap();
        let (received, late) = self
            .shared
            .news
            .wait_timeout_while(received, SOON, |received| !is_so(received))
            .unwrap();
        if late.timed_out() {
            let seen = self.shared.seen.lock().unwrap();
            let tail = &received.log[received.log.len().saturating_sub(20)..];
            panic!("condition not met in time; last events: {tail:#?}, {seen:#?}");
        }
    }

    /// The events since a mark, which is advanced.
    pub(crate) fn since(&self, mark: &mut usize) -> Vec<String> {
        let received = self.shared.received.lock().unwrap();
        let news = received.log[*mark..].to_vec();
        *mark = received.log.len();
        news
    }

    pub(crate) fn read<T>(&self, read: impl FnOnce(&Received) -> T) -> T {
        read(&self.shared.received.lock().unwrap())
    }

    pub(crate) fn seen<T>(&self, read: impl FnOnce(&Seen) -> T) -> T {
        read(&self.shared.seen.lock().unwrap())
    }

    pub(crate) fn wait_seen(&self, mut is_so: impl FnMut(&Seen) -> bool) {
        wait_until(|| self.seen(&mut is_so));
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// For conditions that are polled.
#[track_caller]
pub(crate) fn wait_until(is_so: impl FnMut() -> bool) {
    waiting::wait_until("what was awaited", is_so);
}

/// Lets connections in again, however long the system takes to give the port back.
#[track_caller]
pub(crate) fn let_in(server: &ApiServer) {
    waiting::wait(|| {
        let answer = server.refuse_connections(false);
        answer.map_err(|error| error.to_string())
    });
}

/// A Service whose port identifies its version.
pub(crate) fn service(name: &str, port: u16) -> Value {
    json!({
        "kind": "Service",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": port, "protocol": "TCP"}]},
    })
}

pub(crate) fn web(name: &str) -> String {
    format!("Service shop/{name}")
}

/// The requests for a resource, lists and watches.
pub(crate) fn requests(server: &ApiServer, resource: &str) -> Vec<Request> {
    let ends = format!("/{resource}");
    let mut all = server.requests();
    all.retain(|request| request.path.ends_with(&ends));
    all
}

/// How often everything was asked for, in either way.
pub(crate) fn lists(server: &ApiServer, resource: &str) -> usize {
    let begins_list = |request: &&Request| {
        request.parameter("sendInitialEvents").is_some()
            || (!request.is_watch() && request.parameter("continue").is_none())
    };
    requests(server, resource)
        .iter()
        .filter(begins_list)
        .count()
}
