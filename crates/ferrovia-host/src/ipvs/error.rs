//! Why the load balancer could not be read or changed.

use std::net::SocketAddr;

use ferrovia_core::dialect::ipvs::{IpvsOp, Scheduler, VirtualServerKey};
use ferrovia_netlink::{self as netlink, Refusal, and_more};

/// Why the load balancer could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel does not have IPVS.
    #[error(
        "cannot use IPVS, which this kernel lacks: {modprobe} (load or enable the module ip_vs)"
    )]
    NoIpvs {
        /// What became of the attempt to load it.
        modprobe: String,
    },
    /// A scheduler is not there.
    #[error(
        "this kernel has no scheduler {scheduler} (load or enable the module ip_vs_{scheduler}); it has {there}"
    )]
    NoScheduler {
        scheduler: Scheduler,
        /// Those that are there.
        there: String,
    },
    #[error("cannot {action}: {cause}")]
    Netlink {
        action: &'static str,
        cause: netlink::Error,
    },
    #[error("cannot apply `ipvs {op}`: {}{}", words(.refusal), and_more(*.others))]
    Refused {
        /// The first change that was refused.
        op: IpvsOp,
        refusal: Refusal,
        others: usize,
    },
    /// The kernel refused to remove a destination whose connections are done.
    #[error("cannot remove drained destination {destination} of virtual server {server}: {}", words(.refusal))]
    Drained {
        server: VirtualServerKey,
        destination: SocketAddr,
        refusal: Refusal,
    },
}

/// What a refusal means: the kernel has few numbers for many reasons.
fn words(refusal: &Refusal) -> String {
    let known = match refusal.errno {
        libc::ESRCH => "there is no such virtual server",
        libc::ENOENT => "there is no such destination or scheduler",
        libc::EEXIST => "it is there already",
        _ => return refusal.to_string(),
    };
    known.to_owned()
}
