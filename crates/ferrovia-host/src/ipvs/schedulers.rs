//! Which schedulers this kernel has.
//!
//! The kernel has no list of them. A virtual server is made with each in turn, which loads the scheduler's module, and deleted again at
//! once. It is one that only packets with a certain mark would reach, so no address or port is taken from anybody.

use ferrovia_core::dialect::ipvs::Scheduler;
use ferrovia_netlink as netlink;

use super::encode::IpvsAction;
use super::{Error, Ipvs, failed};

/// Marks that are unlikely to be in use. If one is, its server stays and the next mark is tried.
const MARKS: std::ops::RangeInclusive<u32> = 0x7e44_0a01..=0x7e44_0a08;

impl Ipvs {
    /// The schedulers of [`Scheduler::NAMES`] that this kernel has.
    ///
    /// # Errors
    /// If the netlink socket fails or servers cannot be made at all.
    pub fn schedulers(&mut self) -> Result<Vec<Scheduler>, Error> {
        let mut there = Vec::new();
        for scheduler in Scheduler::NAMES.into_iter().filter_map(Scheduler::known) {
            if self.has_scheduler(scheduler)? {
                there.push(scheduler);
            }
        }
        Ok(there)
    }

    /// Fails unless the kernel has a scheduler, in words that say which it has.
    ///
    /// # Errors
    /// [`Error::NoScheduler`], or if that cannot be found out.
    pub fn require_scheduler(&mut self, scheduler: Scheduler) -> Result<(), Error> {
        if self.has_scheduler(scheduler)? {
            return Ok(());
        }
        let there = self.schedulers()?;
        let there: Vec<&str> = there.iter().map(Scheduler::as_str).collect();
        Err(Error::NoScheduler {
            scheduler,
            there: there.join(", "),
        })
    }

    fn has_scheduler(&mut self, scheduler: Scheduler) -> Result<bool, Error> {
        let mut refusal = None;
        for mark in MARKS {
            let new = self.command(IpvsAction::NewMark(mark, scheduler));
            match self.request(&[new])?.pop() {
                None => {
                    let delete = self.command(IpvsAction::DeleteMark(mark));
                    self.request(&[delete])?;
                    return Ok(true);
                }
                Some((_, refused)) if refused.errno == libc::ENOENT => return Ok(false),
                Some((_, refused)) => refusal = Some(refused),
            }
        }
        let cause = refusal.map_or(netlink::Error::UnexpectedReply, netlink::Error::Refused);
        Err(failed("probe a scheduler")(cause))
    }
}
