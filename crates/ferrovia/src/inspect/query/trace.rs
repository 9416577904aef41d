//! Where a packet goes, and what in the kernel sends it there.

use std::fmt::Write as _;
use std::net::SocketAddr;

use ferrovia_core::family::Family;
use ferrovia_core::trace::Trace;
use ferrovia_core::trace::in_kernel::KernelObject;
use ferrovia_host::conntrack::{FlowReader, SentTo};
use serde::Serialize;

use crate::mode::Mode;
use crate::sync::backend::SyncError;

/// At most so many connections are named.
const MOST_TRACKED: usize = 10;

/// The answer as it is serialised: a trace's fields, and what the kernel says.
#[derive(Debug, Serialize)]
pub struct Answer {
    /// What follows from the objects.
    #[serde(flatten)]
    pub trace: Trace,
    /// What was found in the kernel.
    #[serde(flatten)]
    pub live: Live,
}

/// What the kernel says of a packet.
#[derive(Debug, Default, Serialize)]
pub struct Live {
    /// The objects in the kernel that do it; none if it was not asked.
    pub kernel: Option<Vec<KernelObject>>,
    /// Connections of this client to this destination that are already tracked: their packets go on as before, whatever the rules say.
    pub connections: Vec<Tracked>,
    /// Why the kernel could not be asked.
    pub kernel_problem: Option<String>,
}

/// A connection that is already tracked.
#[derive(Debug, Serialize)]
pub struct Tracked {
    client: SocketAddr,
    answered_by: SocketAddr,
}

impl Live {
    /// Asks the kernel of this machine.
    pub fn read(mode: &dyn Mode, trace: &Trace) -> Self {
        let mut live = Self::default();
        if let Err(error) = live.fill(mode, trace) {
            live.kernel_problem = Some(error.to_string());
        }
        live
    }

    fn fill(&mut self, mode: &dyn Mode, trace: &Trace) -> Result<(), SyncError> {
        self.kernel = Some(mode.find_in_kernel(trace)?);
        let packet = &trace.packet;
        let sent_to = SocketAddr::new(packet.destination, packet.port);
        let asked = match sent_to {
            SocketAddr::V4(place) => SentTo::V4(place),
            SocketAddr::V6(place) => SentTo::Port(place.port()),
        };
        let (family, found) = (Family::of(packet.destination), &mut self.connections);
        FlowReader::open()?.each_of_protocol(packet.protocol, family, asked, |flow| {
            let client = flow.client.filter(|client| client.ip() == packet.source);
            if let Some(client) = client
                && flow.sent_to == sent_to
                && found.len() < MOST_TRACKED
            {
                found.push(Tracked {
                    client,
                    answered_by: flow.answered_by,
                });
            }
        })?;
        Ok(())
    }
}

impl Answer {
    /// The answer for people.
    pub fn text(&self) -> String {
        let Live {
            kernel,
            connections,
            kernel_problem,
        } = &self.live;
        let mut text = self.trace.to_string();
        // Writing to memory cannot fail.
        let out = &mut text;
        match kernel {
            Some(objects) if !objects.is_empty() => {
                let _ = writeln!(out, "\nin the kernel now:");
                for KernelObject { place, text } in objects {
                    let _ = writeln!(out, "  {place}: {text}");
                }
            }
            Some(_) if self.trace.service.is_some() => {
                let _ = writeln!(
                    out,
                    "\nin the kernel now: nothing about it. Does the proxy run here, in this mode? ferrovia diff tells what is missing"
                );
            }
            _ => {}
        }
        if !connections.is_empty() {
            let _ = writeln!(out, "\nalready tracked, and so decided:");
            for Tracked {
                client,
                answered_by,
            } in connections
            {
                let _ = writeln!(out, "  {client} is answered by {answered_by}");
            }
        }
        if let Some(problem) = kernel_problem {
            let _ = writeln!(out, "\nthe kernel was not asked: {problem}");
        }
        text
    }
}
