//! What this process is allowed to do, and giving up what it does not need.
//!
//! Linux keeps capabilities for each thread; a new thread and a new program start with those of the thread that starts them. So a daemon
//! calls [`drop_capabilities`] before it starts threads. A thread of which less is needed gives up more with [`drop_in_this_thread`].
#![allow(
    unsafe_code,
    reason = "some attributes of a process are only to be had by system calls"
)]

use std::collections::HashSet;
use std::time::{Duration, Instant};
use std::{fmt, fs, io, thread};

pub use caps::Capability;
use caps::{CapSet, CapsHashSet, errors::CapsError};

/// A capability, and what it is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// What the kernel asks for.
    pub capability: Capability,
    /// What it is for, to go on after "needed to".
    pub purpose: &'static str,
}

/// Every mode needs this for as long as it runs. It is also enough for every sysctl under `net`, where `/proc/sys` can be written.
pub const RULES: Need = Need {
    capability: Capability::CAP_NET_ADMIN,
    purpose: "read and write the kernel's rules and connections",
};

/// Only while the legacy iptables tools run; those of nft do without.
pub const LEGACY_IPTABLES: Need = Need {
    capability: Capability::CAP_NET_RAW,
    purpose: "run the legacy iptables tools, which open a raw socket",
};

/// Root without this reads only files that it owns or that are world-readable.
pub const FILES_OF_OTHERS: Need = Need {
    capability: Capability::CAP_DAC_READ_SEARCH,
    purpose: "read manifests that belong to other users",
};

/// Only if some server is to listen on such a port; kube-proxy's usual ones are higher.
pub const LOW_PORTS: Need = Need {
    capability: Capability::CAP_NET_BIND_SERVICE,
    purpose: "listen on ports below 1024",
};

/// Only at start; see [`raise_or_lower_oom_score`].
pub const OOM_SCORE: Need = Need {
    capability: Capability::CAP_SYS_RESOURCE,
    purpose: "lower this process's oom_score_adj",
};

/// Some capabilities are not there.
#[derive(Debug, PartialEq, Eq)]
pub struct Missing(
    /// Which; not empty.
    pub Vec<Need>,
);

impl std::error::Error for Missing {}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Need {
            capability,
            purpose,
        } in &self.0
        {
            write!(f, "{capability} is missing, needed to {purpose}; ")?;
        }
        f.write_str(
            "run as root (in a container, add them to securityContext.capabilities) or as a systemd service with them in AmbientCapabilities",
        )
    }
}

/// Whether this thread may do all of this now.
///
/// # Errors
/// If not, or if this is unknown, which counts as not.
pub fn require(needs: &[Need]) -> Result<(), Missing> {
    let has = |need: &&Need| caps::has_cap(None, CapSet::Effective, need.capability);
    let missing: Vec<Need> = needs
        .iter()
        .filter(|need| !has(need).unwrap_or(false))
        .copied()
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(Missing(missing))
    }
}

/// Why capabilities were not given up, or not by all threads.
#[derive(Debug, thiserror::Error)]
pub enum DropError {
    /// Programs we start could get more than we have.
    #[error("cannot set no_new_privs: {0}")]
    NoNewPrivileges(io::Error),
    /// The limit for programs we start could not be lowered.
    #[error("cannot drop capability {index} from the bounding set: {cause}")]
    Bounding {
        index: libc::c_ulong,
        cause: io::Error,
    },
    /// One of the thread's other sets could not be changed.
    #[error("cannot change the {set} capabilities: {cause}")]
    Set { set: &'static str, cause: CapsError },
    /// The capabilities of other threads cannot be read.
    #[error("cannot read the capabilities of other threads in /proc/self/task: {0}")]
    Threads(io::Error),
    /// Threads that were started before kept theirs. This thread has given up its own.
    #[error("cannot drop the capabilities of threads that already ran: {}", names.join(", "))]
    Kept { names: Vec<String> },
}

/// Gives up, for good, every capability but these, for the whole process: this thread and those it will start, programs included.
/// Of those to keep, the ones that are not there stay missing; [`require`] reports them.
///
/// # Errors
/// If the kernel refuses, or if another thread is running that may do more.
pub fn drop_capabilities(keep: &[Capability]) -> Result<(), DropError> {
    drop_in_this_thread(keep)?;
    let start = Instant::now();
    loop {
        let names = threads_with_more(keep).map_err(DropError::Threads)?;
        if names.is_empty() {
            return Ok(());
        }
        if start.elapsed() >= ENDING_LIMIT {
            return Err(DropError::Kept { names });
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// How long threads that are about to end are waited for. The threads that read a program's output are not joined, so they may still be
/// there for a moment after it.
const ENDING_LIMIT: Duration = Duration::from_secs(1);

/// Gives up, for good, every capability but these, for this thread and what it will start.
///
/// Programs it starts get what is kept: as root because root gets what the bounding set and `no_new_privs` leave, as another user because
/// it is in the ambient set.
///
/// # Errors
/// If the kernel refuses.
pub fn drop_in_this_thread(keep: &[Capability]) -> Result<(), DropError> {
    let keep: CapsHashSet = keep.iter().copied().collect();
    forbid_new_privileges().map_err(DropError::NoNewPrivileges)?;
    let failed = |set| move |cause| DropError::Set { set, cause };
    // Goes first, because it takes a capability itself. Who lacks that one cannot lower the limit, but with no_new_privs no program gets
    // more than what started it, so the limit is only a second lock.
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP)
        .map_err(failed("effective"))?
    {
        lower_bounding_set(&keep)?;
    }
    let permitted = caps::read(None, CapSet::Permitted).map_err(failed("permitted"))?;
    let keep: CapsHashSet = keep.intersection(&permitted).copied().collect();
    // The kernel insists that each of these holds no more than the one before.
    caps::set(None, CapSet::Effective, &keep).map_err(failed("effective"))?;
    caps::set(None, CapSet::Permitted, &keep).map_err(failed("permitted"))?;
    caps::set(None, CapSet::Inheritable, &keep).map_err(failed("inheritable"))?;
    caps::set(None, CapSet::Ambient, &keep).map_err(failed("ambient"))
}

/// From now on no program started by this thread gets rights from being setuid, or from capabilities of its file.
fn forbid_new_privileges() -> io::Result<()> {
    let [yes, unused]: [libc::c_ulong; 2] = [1, 0];
    // SAFETY: no pointers; sets a flag of this thread.
    let result = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, yes, unused, unused, unused) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// By number instead of by name: a kernel may know capabilities that we do not.
fn lower_bounding_set(keep: &CapsHashSet) -> Result<(), DropError> {
    let keep: HashSet<_> = keep
        .iter()
        .map(|capability| libc::c_ulong::from(capability.index()))
        .collect();
    for index in (0..64).filter(|index| !keep.contains(index)) {
        // SAFETY: no pointers; returns whether the number is in the set, and fails for one that the kernel does not know.
        let is_in = unsafe { libc::prctl(libc::PR_CAPBSET_READ, index) } == 1;
        // SAFETY: no pointers; takes the number out of this thread's set.
        if is_in && unsafe { libc::prctl(libc::PR_CAPBSET_DROP, index) } != 0 {
            let cause = io::Error::last_os_error();
            return Err(DropError::Bounding { index, cause });
        }
    }
    Ok(())
}

/// The names of threads that have, or could take, other capabilities than these.
fn threads_with_more(keep: &[Capability]) -> io::Result<Vec<String>> {
    let kept = keep
        .iter()
        .fold(0, |mask, capability| mask | capability.bitmask());
    let mut names = Vec::new();
    for task in fs::read_dir("/proc/self/task")? {
        // A thread that has ended in the meantime may do nothing.
        let Ok(status) = fs::read_to_string(task?.path().join("status")) else {
            continue;
        };
        if permitted_in(&status).is_none_or(|permitted| permitted & !kept != 0) {
            let name = field(&status, "Name:").unwrap_or("?");
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// The permitted set in the text of a `status` file.
fn permitted_in(status: &str) -> Option<u64> {
    u64::from_str_radix(field(status, "CapPrm:")?, 16).ok()
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let value = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(value.trim())
}

/// How often setting the score is tried, and how long to wait in between. As kube-proxy does.
const ATTEMPTS: usize = 2;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(100);

/// Why the score was not set.
#[derive(Debug, thiserror::Error)]
pub enum OomScoreError {
    /// There is no such score.
    #[error("cannot set oom_score_adj to {0}: not between -1000 and 1000")]
    Range(i32),
    #[error("cannot set oom_score_adj to {adj}: {cause}; lowering it requires {}", OOM_SCORE.capability)]
    Write { adj: i32, cause: io::Error },
}

/// Makes this process more likely to be killed when memory runs out, or less. It takes CAP_SYS_RESOURCE to make it less likely than another process
/// who had that capability decided, so this comes before [`drop_capabilities`]. A proxy works without: the failure is worth a line, no more.
///
/// # Errors
/// If the kernel refuses, twice.
pub fn raise_or_lower_oom_score(adj: i32) -> Result<(), OomScoreError> {
    if !(-1000..=1000).contains(&adj) {
        return Err(OomScoreError::Range(adj));
    }
    let mut attempt = 1;
    loop {
        match fs::write("/proc/self/oom_score_adj", adj.to_string()) {
            Ok(()) => return Ok(()),
            Err(cause) if attempt == ATTEMPTS => return Err(OomScoreError::Write { adj, cause }),
            Err(_) => thread::sleep(BETWEEN_ATTEMPTS),
        }
        attempt += 1;
    }
}

/// Raises the number of files this process may have open to the most it may ask for. Every health check of a Service takes one, and some
/// machines start with 1,024.
///
/// # Errors
/// If the kernel refuses.
pub fn allow_many_open_files() -> io::Result<()> {
    let mut limit = open_files()?;
    if limit.rlim_cur == limit.rlim_max {
        return Ok(());
    }
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the kernel reads one `rlimit`, which we own.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// How many files this process may have open.
///
/// # Errors
/// If the kernel does not say.
pub fn most_open_files() -> io::Result<u64> {
    Ok(open_files()?.rlim_cur)
}

fn open_files() -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes one `rlimit`, which we own.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } {
        0 => Ok(limit),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_permitted_set_is_read_from_a_status() {
        let status =
            "Name:\tferrovia\nUmask:\t0022\nCapInh:\t0000000000000000\nCapPrm:\t000001fffeffffff\n";
        assert_eq!(permitted_in(status), Some(0x1ff_feff_ffff));
        assert_eq!(field(status, "Name:"), Some("ferrovia"));
        assert_eq!(permitted_in("Name:\tx\n"), None);
        assert_eq!(permitted_in("CapPrm:\tno number\n"), None);
    }

    #[test]
    fn what_is_missing_is_named_with_its_purpose() {
        let text = Missing(vec![RULES, LEGACY_IPTABLES]).to_string();
        assert!(
            text.contains("CAP_NET_ADMIN is missing, needed to read and write"),
            "{text}"
        );
        assert!(text.contains("CAP_NET_RAW"), "{text}");
    }

    #[test]
    fn scores_out_of_range_are_refused_before_the_kernel_sees_them() {
        for adj in [-1001, 1001, i32::MIN, i32::MAX] {
            assert!(matches!(
                raise_or_lower_oom_score(adj),
                Err(OomScoreError::Range(_))
            ));
        }
    }
}
