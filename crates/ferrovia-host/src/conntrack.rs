//! Connection tracking over netlink: flows are read, UDP ones also deleted.
//!
//! Which of them must go is decided in the core; when to look is the caller's business. A table may hold millions of entries, so flows are
//! looked at one by one as the kernel sends them, and none is kept but those of the batch that is deleted next.

mod clean;
mod flow;
mod plan;
mod table;

pub use clean::{FlowCleaner, FlowToDelete, RemovedFlows};
pub use flow::{Flow, FlowKey};
pub use table::{FlowDeleter, FlowReader, SentTo};

use ferrovia_netlink::uapi::nfnetlink::NFNL_SUBSYS_CTNETLINK;
use ferrovia_netlink::{self as netlink, nfnetlink};

/// Reading or deleting flows failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action}: {cause}")]
pub struct Error {
    pub action: &'static str,
    pub cause: netlink::Error,
}

/// The message type of an `IPCTNL_MSG_CT_*`.
const fn message_type(message: u8) -> u16 {
    nfnetlink::message_type(NFNL_SUBSYS_CTNETLINK, message)
}

fn failed(action: &'static str) -> impl Fn(netlink::Error) -> Error {
    move |cause| Error { action, cause }
}

/// Reads a message as a flow of every family and protocol.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_hostile(message: &netlink::Message<'_>) -> usize {
    use ferrovia_core::{family::Family, model::Protocol};
    let read = |family| Protocol::ALL.map(|protocol| Flow::read(message, family, protocol));
    let flows = Family::ALL.into_iter().flat_map(read).flatten();
    let keys: Vec<FlowKey> = flows.map(|flow| flow.key()).collect();
    keys.len()
}
