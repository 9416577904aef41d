//! What the daemon itself says its first sync went to.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::Context;
use ferrovia_lab::Role;

use crate::api::daemon::Node;

/// The parts of a sync of IPv4.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phases {
    /// Reading the rules back.
    pub(super) observe: Duration,
    /// Deciding what to write.
    pub(super) plan: Duration,
    /// The restoring tool at work, on input that is cut as suits it.
    pub(super) apply: Duration,
}

impl Phases {
    /// Of all syncs so far, which was one.
    pub(super) fn of(node: &Node) -> anyhow::Result<Self> {
        let mut metrics = {
            let _inside = node.world.enter(Role::Node)?;
            TcpStream::connect((Ipv4Addr::LOCALHOST, 10249))?
        };
        // To a client of the first version the page comes in one piece, and then the connection ends.
        metrics.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
        let mut page = String::new();
        metrics.read_to_string(&mut page)?;
        let phase = |name: &str| {
            let series = format!(
                "ferrovia_sync_phase_duration_seconds_sum{{ip_family=\"IPv4\",phase=\"{name}\"}} "
            );
            let line = page.lines().find_map(|line| line.strip_prefix(&series));
            let seconds = line.and_then(|value| value.parse().ok());
            seconds
                .map(Duration::from_secs_f64)
                .with_context(|| format!("the daemon does not say how long {name} took"))
        };
        Ok(Self {
            observe: phase("observe")?,
            plan: phase("plan")?,
            apply: phase("apply")?,
        })
    }
}
