//! Many nodes in one process: as many clients as asked for, each with credentials, connections and reflectors of its own, exactly as the
//! daemon has them. What they receive is decoded and dropped.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use ferrovia::source::kube::{self, Api, ApiAccess, Freshness, Times, Unobserved};
use ferrovia::sync::{self, Input};
use ferrovia_core::store::Event;
use ferrovia_core::wire::Kind;
use ferrovia_lab::World;
use ferrovia_lab::interrupt::Interrupt;
use tokio::task::LocalSet;

use super::{NODE, PATIENCE, go_on};

/// The argument that makes this binary that process; the kubeconfig and the number of nodes follow.
pub(crate) const NODES: &str = "--nodes";

/// How often it reports.
const REPORT: Duration = Duration::from_millis(50);

/// The process, seen from outside.
pub(super) struct Nodes {
    process: Child,
    reports: BufReader<ChildStdout>,
    count: usize,
}

impl Nodes {
    pub(super) fn start(
        world: &World,
        kubeconfig: &Path,
        count: usize,
        http2: bool,
    ) -> anyhow::Result<Self> {
        let program = std::env::current_exe()?;
        let mut command = world.exec(NODE, &program.to_string_lossy());
        command.arg(NODES).arg(kubeconfig).arg(count.to_string());
        if !http2 {
            command.env("DISABLE_HTTP2", "1");
        }
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take().context("it has an output")?;
        Ok(Self {
            process,
            reports: BufReader::new(output),
            count,
        })
    }

    /// Waits until every node has every list.
    pub(super) fn wait_until_listed(&mut self, interrupt: &Interrupt) -> anyhow::Result<()> {
        let lists = self.count * Kind::ALL.len();
        self.wait(interrupt, |listed, _| listed >= lists)
    }

    /// Waits until every node has seen so many changes since it has all lists.
    pub(super) fn wait_until_changed(
        &mut self,
        changes: usize,
        interrupt: &Interrupt,
    ) -> anyhow::Result<()> {
        let all = self.count * changes;
        self.wait(interrupt, |_, changed| changed >= all)
    }

    fn wait(
        &mut self,
        interrupt: &Interrupt,
        is_enough: impl Fn(usize, usize) -> bool,
    ) -> anyhow::Result<()> {
        let begin = Instant::now();
        loop {
            go_on(interrupt)?;
            let mut line = String::new();
            let length = self.reports.read_line(&mut line)?;
            ensure!(length > 0, "the simulated nodes have exited");
            let mut numbers = line.split_whitespace().map(str::parse);
            let mut number = || {
                numbers
                    .next()
                    .context("a report without a number")?
                    .context(line.clone())
            };
            if is_enough(number()?, number()?) {
                return Ok(());
            }
            ensure!(
                begin.elapsed() < PATIENCE,
                "the simulated nodes are not done: {line}"
            );
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What all nodes have seen.
#[derive(Default)]
struct Seen {
    listed: AtomicUsize,
    changed: AtomicUsize,
    /// Slices of the lists; those that come later are changes.
    slices: AtomicUsize,
}

/// Is the process, until its output is closed.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let position = arguments.iter().position(|argument| argument == NODES);
    let mut rest = arguments.iter().skip(position.unwrap_or_default() + 1);
    let kubeconfig = PathBuf::from(rest.next().context("a kubeconfig")?);
    let count: usize = rest.next().context("a number of nodes")?.parse()?;
    let seen = Arc::new(Seen::default());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let nodes = LocalSet::new();
    nodes.block_on(&runtime, async {
        for number in 0..count {
            let access = ApiAccess {
                kubeconfig: Some(kubeconfig.clone()),
                ..ApiAccess::default()
            };
            let api = Api::open(access, Times::default(), Arc::new(Unobserved)).await?;
            let seen = Arc::clone(&seen);
            tokio::task::spawn_local(async move {
                let (inputs, received) = sync::queue();
                let receive = async {
                    let mut is_listed = false;
                    while let Ok(Input::Events { events, .. }) = received.recv_async().await {
                        count_events(&seen, &events, &mut is_listed);
                    }
                };
                let name = format!("simulated-{number}");
                let follow = kube::run(api, &name, Freshness::new(Instant::now()), inputs);
                tokio::join!(follow, receive);
            });
        }
        report(&seen).await
    })
}

fn count_events(seen: &Seen, events: &[Event], is_listed: &mut bool) {
    for event in events {
        match event {
            Event::Listed(kind) => {
                *is_listed |= *kind == Kind::EndpointSlice;
                seen.listed.fetch_add(1, Ordering::Relaxed);
            }
            Event::Applied(object) if object.kind() == Kind::EndpointSlice => {
                let counter = if *is_listed {
                    &seen.changed
                } else {
                    &seen.slices
                };
                counter.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

async fn report(seen: &Seen) -> anyhow::Result<()> {
    loop {
        let number = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        let (listed, changed) = (number(&seen.listed), number(&seen.changed));
        writeln!(std::io::stdout(), "{listed} {changed}")?;
        tokio::time::sleep(REPORT).await;
    }
}
