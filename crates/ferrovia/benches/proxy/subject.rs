//! The measured process, from outside: gives it orders, reads its memory and CPU time.

use std::fs;
use std::io::BufReader;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use anyhow::Context;
use ferrovia_lab::{Role, World};

use crate::PROXY;
use crate::orders::{self, Cost, Order};

/// A process with the proxy's engine in the node of a world.
pub(crate) struct Subject {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// What a process has in memory, in KiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// Now.
    pub(crate) resident: u64,
    /// At most, ever.
    pub(crate) peak: u64,
}

impl Subject {
    /// Starts this binary again, in the node's namespace.
    pub(crate) fn start(world: &World) -> anyhow::Result<Self> {
        let program = std::env::current_exe()?;
        let program = program.to_str().context("the path of this program")?;
        let mut child = world
            .exec(Role::Node, program)
            .arg(PROXY)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the proxy")?;
        let orders = child.stdin.take();
        let answers = child.stdout.take().context("a pipe that was asked for")?;
        Ok(Self {
            child,
            orders,
            answers: BufReader::new(answers),
        })
    }

    /// Gives an order without waiting for the answer.
    pub(crate) fn send(&mut self, order: Order) -> anyhow::Result<()> {
        let pipe = self.orders.as_mut().context("the proxy is being ended")?;
        orders::write(pipe, &order)
    }

    /// Waits for the answer to an order.
    pub(crate) fn receive(&mut self) -> anyhow::Result<Cost> {
        orders::read(&mut self.answers)?.context("the proxy has ended; it said why above")
    }

    /// Gives an order and waits until it is carried out.
    pub(crate) fn obey(&mut self, order: Order) -> anyhow::Result<Cost> {
        self.send(order)?;
        self.receive()
    }

    /// What it has in memory.
    pub(crate) fn memory(&self) -> anyhow::Result<Memory> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
            number.with_context(|| format!("no {name} in the status of a process"))
        };
        Ok(Memory {
            resident: field("VmRSS:")?,
            peak: field("VmHWM:")?,
        })
    }

    /// The time it was on a CPU, in user mode and in the kernel. It has one thread; the file is that thread's. The kernel brings the
    /// figure up to date when the thread goes to sleep, which it does between orders.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let path = format!("/proc/{}/schedstat", self.child.id());
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let nanoseconds = text.split_whitespace().next().and_then(|n| n.parse().ok());
        nanoseconds
            .map(Duration::from_nanos)
            .with_context(|| format!("{path}: {text:?}"))
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        // It ends when there are no more orders. Should it hang, the world's end kills it.
        self.orders = None;
        let _ = self.child.wait();
    }
}
