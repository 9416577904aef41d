//! Which scheduler a service port gets.

use super::context::IpvsOptions;
use crate::desired::{Endpoint, ServicePort};
use crate::dialect::ipvs::{FLAG_FALLBACK, FLAG_PORT};
use crate::model::{Algorithm, Scheduler};

/// A scheduler and its flags.
///
/// The Service's own choice goes before its algorithm, and that before the setting for all. Clients are spread by `mh`: of the two that go
/// by the client's address it is the one that respects weights and moves few clients when endpoints change; `sh` is for kernels without.
pub(super) fn schedule(
    port: &ServicePort,
    endpoints: &[Endpoint],
    options: &IpvsOptions,
) -> (Scheduler, u32) {
    let has = |scheduler: &Scheduler| options.available.contains(scheduler);
    if let Some(own) = port.scheduler.filter(has) {
        return with_flags(weighted(own, endpoints, options));
    }
    if port.algorithm == Algorithm::SourceHash {
        // Without the flag that counts ports: one client is one address.
        let by_address = [Scheduler::MH, Scheduler::SH].into_iter().find(has);
        if let Some(scheduler) = by_address {
            return (scheduler, FLAG_FALLBACK);
        }
    }
    with_flags(weighted(options.scheduler, endpoints, options))
}

/// Two of the kernel's schedulers pass weights over and have a sibling that does not; it is taken where weights differ.
fn weighted(scheduler: Scheduler, endpoints: &[Endpoint], options: &IpvsOptions) -> Scheduler {
    let differ = endpoints
        .windows(2)
        .any(|pair| pair[0].weight != pair[1].weight);
    let sibling = match scheduler {
        Scheduler::RR => Scheduler::WRR,
        Scheduler::LC => Scheduler::WLC,
        other => other,
    };
    if differ && options.available.contains(&sibling) {
        sibling
    } else {
        scheduler
    }
}

/// kube-proxy has `mh` count the client's port. That endpoints of weight 0 are passed over is ours: without it, connections whose turn it
/// would be are refused while one drains.
fn with_flags(scheduler: Scheduler) -> (Scheduler, u32) {
    let flags = match scheduler {
        Scheduler::MH => FLAG_FALLBACK | FLAG_PORT,
        Scheduler::SH => FLAG_FALLBACK,
        _ => 0,
    };
    (scheduler, flags)
}

/// What of a service port's wishes this kernel cannot do.
pub(super) fn note(port: &ServicePort, options: &IpvsOptions) -> Option<String> {
    let has = |scheduler: &Scheduler| options.available.contains(scheduler);
    let used = options.scheduler;
    match port.scheduler {
        Some(own) if !has(&own) => Some(format!(
            "{}: this kernel has no scheduler {own}; {used} is used",
            port.key
        )),
        None if port.algorithm == Algorithm::SourceHash
            && !has(&Scheduler::MH)
            && !has(&Scheduler::SH) =>
        {
            Some(format!(
                "{}: this kernel has neither of the schedulers mh and sh, which choose by the client's address; {used} is used",
                port.key
            ))
        }
        _ => None,
    }
}
