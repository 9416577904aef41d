//! What the daemon itself says its first sync went to.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::Context;
use ferrovia_lab::Role;

use super::daemon::Node;

/// The parts of a sync of IPv4.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phases {
    /// Reading back what is there.
    pub(crate) observe: Duration,
    /// Deciding what to write.
    pub(crate) plan: Duration,
    /// Writing it: the tools at work, and the kernel.
    pub(crate) apply: Duration,
}

impl Phases {
    /// All of it.
    pub(crate) fn total(&self) -> Duration {
        self.observe + self.plan + self.apply
    }

    /// Of the first sync, which may still be about to end when the last service answers.
    pub(crate) fn of_first_sync(node: &Node) -> anyhow::Result<Self> {
        let mut phases = None;
        node.until(Instant::now(), || {
            phases = Self::read(&page(node)?);
            Ok(phases.is_some())
        })?;
        phases.context("the daemon does not say what its first sync took")
    }

    fn read(page: &str) -> Option<Self> {
        let phase = |name: &str| {
            let series = format!(
                "ferrovia_sync_phase_duration_seconds_sum{{ip_family=\"IPv4\",phase=\"{name}\"}} "
            );
            let value = page.lines().find_map(|line| line.strip_prefix(&series))?;
            value.parse().ok().map(Duration::from_secs_f64)
        };
        Some(Self {
            observe: phase("observe")?,
            plan: phase("plan")?,
            apply: phase("apply")?,
        })
    }
}

/// The daemon's metrics. To a client of HTTP's first version the page comes in one piece, and then the connection ends.
fn page(node: &Node) -> anyhow::Result<String> {
    let mut metrics = {
        let _inside = node.world.enter(Role::Node)?;
        TcpStream::connect((Ipv4Addr::LOCALHOST, 10249))?
    };
    metrics.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut page = String::new();
    metrics.read_to_string(&mut page)?;
    Ok(page)
}
