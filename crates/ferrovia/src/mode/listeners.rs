//! Sockets that take a packet where there is no rule about it.

use std::net::SocketAddr;

use ferrovia_core::family::Family;
use ferrovia_core::trace::Trace;
use ferrovia_core::trace::in_kernel::KernelObject;
use ferrovia_host::survey::sockets::{self, ListeningSocket};

use crate::sync::backend::SyncError;

/// The sockets that take a packet.
pub(super) fn find(trace: &Trace) -> Result<Vec<KernelObject>, SyncError> {
    let packet = &trace.packet;
    let takes = |listener: &ListeningSocket| {
        let is_addressed = listener.address == packet.destination
            || listener.address.is_unspecified()
                && Family::of(listener.address) == Family::of(packet.destination);
        listener.protocol == packet.protocol && listener.port == packet.port && is_addressed
    };
    let found = sockets::listeners()?.into_iter().filter(takes);
    let object = |listener: ListeningSocket| KernelObject {
        place: format!("{} socket", listener.protocol),
        text: format!(
            "listens on {}",
            SocketAddr::new(listener.address, listener.port)
        ),
    };
    Ok(found.map(object).collect())
}
