//! The settings that only the ipvs mode has.

use std::borrow::Cow;
use std::time::Duration;

use ferrovia_core::dialect::ipvs::Scheduler;
use ferrovia_core::trace;
use ipnet::IpNet;

use crate::config::file::Document;
use crate::config::validate::Checks;
use crate::sync::backend::SyncError;

/// What only the ipvs mode has. Time-outs that are none stay as the kernel has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpvsSettings {
    /// The kernel's name of the scheduler.
    pub scheduler: Cow<'static, str>,
    /// Virtual servers that are not ours to remove.
    pub exclude_cidrs: Vec<IpNet>,
    /// Answer ARP only on the interface that has the address.
    pub strict_arp: bool,
    /// If a policy requires local endpoints and there are none, use the others.
    pub local_fallback: bool,
    /// Time-out of idle TCP connections.
    pub tcp_timeout: Option<Duration>,
    /// Time-out of TCP connections after a FIN.
    pub tcp_fin_timeout: Option<Duration>,
    /// Time-out of UDP.
    pub udp_timeout: Option<Duration>,
}

pub(super) const DEFAULT: IpvsSettings = IpvsSettings {
    scheduler: Cow::Borrowed("rr"),
    exclude_cidrs: Vec::new(),
    strict_arp: false,
    local_fallback: false,
    tcp_timeout: None,
    tcp_fin_timeout: None,
    udp_timeout: None,
};

impl Default for IpvsSettings {
    fn default() -> Self {
        DEFAULT
    }
}

impl IpvsSettings {
    /// What the file and the flags say. In other modes it is not checked, as in kube-proxy.
    pub(in crate::mode) fn of(checks: &mut Checks, document: &Document) -> Self {
        let given = &document.ipvs;
        let mut unchecked = Checks::default();
        let checks = if document.mode == trace::IPVS.mode {
            checks
        } else {
            &mut unchecked
        };
        let exclude_cidrs = given.exclude_cidrs.as_deref().unwrap_or_default();
        let exclude_cidrs = checks.cidrs("ipvs.excludeCIDRs", exclude_cidrs);
        let mut timeout =
            |field, given| Some(checks.time(field, given)).filter(|time| !time.is_zero());
        let (tcp_timeout, tcp_fin_timeout, udp_timeout) = (
            timeout("ipvs.tcpTimeout", given.tcp_timeout),
            timeout("ipvs.tcpFinTimeout", given.tcp_fin_timeout),
            timeout("ipvs.udpTimeout", given.udp_timeout),
        );
        Self {
            scheduler: match given.scheduler.as_str() {
                "" => DEFAULT.scheduler,
                name => name.to_owned().into(),
            },
            exclude_cidrs,
            strict_arp: given.strict_arp,
            local_fallback: document.ferrovia.ipvs.local_fallback,
            tcp_timeout,
            tcp_fin_timeout,
            udp_timeout,
        }
    }

    /// The configured scheduler, whether or not the kernel has it.
    pub(super) fn scheduler(&self) -> Result<Scheduler, SyncError> {
        Scheduler::new(&self.scheduler).ok_or_else(|| {
            let names = Scheduler::NAMES.join(", ");
            format!(
                "ipvs.scheduler: {:?} cannot be the name of a scheduler; Linux has {names}",
                self.scheduler
            )
            .into()
        })
    }
}
