//! What the measuring process says to the measured one, and the answer: a line of JSON each.

use std::io::{BufRead, Write};
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::Context;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::cluster::Size;

/// Something to do; the answer is its [`Cost`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Take in all objects and write them.
    Load(Size),
    /// Send a watched service's traffic to another pod.
    MoveTo { service: usize, pod: Ipv4Addr },
    /// Give a service so many made-up endpoints.
    Resize {
        size: Size,
        service: usize,
        endpoints: usize,
    },
    /// Add a service with as many made-up endpoints as the others have.
    Add { size: Size, service: usize },
    /// Remove it again.
    Remove { size: Size, service: usize },
    /// Read the kernel back and compare it with all that is wanted, as a restart does and a repair.
    Compare,
}

/// How long each stage took.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Cost {
    /// Taking in events.
    pub(crate) store: Duration,
    /// From what was touched to what is wanted, and whatever else a sync does outside the other stages.
    pub(crate) desired: Duration,
    /// Reading the kernel back.
    pub(crate) observe: Duration,
    /// Planning.
    pub(crate) plan: Duration,
    /// Encoding the plan, and the kernel's work.
    pub(crate) apply: Duration,
}

impl Cost {
    /// From the first event to the kernel's word that all is done.
    pub(crate) fn total(&self) -> Duration {
        self.store + self.desired + self.observe + self.plan + self.apply
    }
}

/// Writes a message.
pub(crate) fn write(mut to: impl Write, message: &impl Serialize) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)?;
    Ok(to.flush()?)
}

/// Reads a message; none at the end.
pub(crate) fn read<T: DeserializeOwned>(from: &mut impl BufRead) -> anyhow::Result<Option<T>> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let message =
        serde_json::from_str(&line).with_context(|| format!("strange message {line:?}"))?;
    Ok(Some(message))
}
