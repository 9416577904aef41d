//! The measured process, from outside: gives it orders, reads its memory and CPU time.

use std::io::BufReader;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use anyhow::Context;
use ferrovia_lab::{Role, World};

use crate::PROXY;
use crate::orders::{self, Cost, Order};
use crate::process::{self, Memory};

/// A process with the proxy's engine in the node of a world.
pub(crate) struct Subject {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
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
        process::memory(self.child.id())
    }

    /// The time it was on a CPU. It sleeps between orders, so the figure is exact then.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        process::cpu(self.child.id())
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        // It ends when there are no more orders. Should it hang, the world's end kills it.
        self.orders = None;
        let _ = self.child.wait();
    }
}
