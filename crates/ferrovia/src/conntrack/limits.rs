//! Sets the limits of connection tracking at start.
//!
//! kube-proxy ends if one of them cannot be set. In a container they often cannot, and a proxy with the host's own limits is better than
//! none: we do what can be done, and say what is left to do on the host, and how.

use std::cmp::Ordering;
use std::fmt;
use std::time::Duration;

use ferrovia_host::sysctl::{Error, Obstacle, Setting, Settings};

use crate::kube_event::{Notice, Regarding, Severity};

/// The number of flows that is reached by counting processors is no larger than this.
const LARGEST_SCALED_MAX: u64 = 1 << 20;
/// So many flows on average share one list of the kernel's table.
const FLOWS_PER_LIST: u64 = 4;

/// What connection tracking shall be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConntrackSettings {
    /// How many flows at most, whatever the next two say; 0 leaves the limit alone.
    pub max: Option<u32>,
    /// How many for each processor; 0 leaves the limit alone.
    pub max_per_core: u32,
    /// How many at least, with `max_per_core`.
    pub min: u32,
    /// How long an idle TCP connection is remembered; none or zero leaves it alone, here and below.
    pub tcp_established: Option<Duration>,
    /// How long a half-closed TCP connection is remembered.
    pub tcp_close_wait: Option<Duration>,
    /// TCP packets outside the window are not invalid.
    pub be_liberal: bool,
    /// How long a UDP flow without an answer is remembered.
    pub udp: Duration,
    /// How long a UDP flow with answers is remembered.
    pub udp_stream: Duration,
}

impl ConntrackSettings {
    /// How many flows the kernel shall track at most; none if that is not ours to say.
    pub fn limit(&self, cpus: usize) -> Option<u64> {
        if let Some(max) = self.max {
            return Some(u64::from(max)).filter(|max| *max > 0);
        }
        let per_core = Some(u64::from(self.max_per_core)).filter(|per_core| *per_core > 0)?;
        let scaled = per_core.saturating_mul(cpus as u64);
        // As kube-proxy does it: where the cap is reached, the minimum does not count, even if it is larger.
        Some(if scaled > LARGEST_SCALED_MAX {
            LARGEST_SCALED_MAX
        } else {
            scaled.max(u64::from(self.min))
        })
    }

    /// The settings besides the limit, in the order in which they are made.
    fn others(&self) -> Vec<(Setting, u64)> {
        // The kernel counts in seconds, and forgets at once what it is to remember for none.
        let seconds = |time: Duration| (!time.is_zero()).then(|| time.as_secs().max(1));
        let values = [
            (
                Setting::TCP_ESTABLISHED,
                self.tcp_established.and_then(seconds),
            ),
            (
                Setting::TCP_CLOSE_WAIT,
                self.tcp_close_wait.and_then(seconds),
            ),
            // Never made 0: somebody else may need it.
            (Setting::TCP_BE_LIBERAL, self.be_liberal.then_some(1)),
            (Setting::UDP, seconds(self.udp)),
            (Setting::UDP_STREAM, seconds(self.udp_stream)),
        ];
        values
            .into_iter()
            .filter_map(|(setting, value)| Some((setting, value?)))
            .collect()
    }
}

/// Something about the limits that people should know.
#[derive(Debug)]
pub enum Finding {
    /// A setting was made smaller than it was, as kube-proxy does too.
    Lowered {
        /// Which one.
        setting: Setting,
        /// What it was.
        from: u64,
        /// What it is.
        to: u64,
    },
    /// A setting is not as it should be.
    NotSet {
        /// Which one.
        setting: Setting,
        /// What it should be.
        wanted: u64,
        /// Why it is not.
        error: Error,
    },
}

/// Makes the settings. Nothing that goes wrong keeps the others from being made.
pub fn apply(wanted: &ConntrackSettings, cpus: usize, kernel: &impl Settings) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(limit) = wanted.limit(cpus) {
        findings.extend(set_limit(kernel, limit));
        // Even if the limit itself is out of reach: the table then fits it once somebody sets it on the host.
        findings.extend(grow_table(kernel, limit / FLOWS_PER_LIST));
    }
    for (setting, value) in wanted.others() {
        findings.extend(not_set(setting, value, kernel.set(setting, value)));
    }
    findings
}

fn set_limit(kernel: &impl Settings, limit: u64) -> Option<Finding> {
    let setting = Setting::CONNTRACK_MAX;
    match kernel.set(setting, limit) {
        Ok(from) => (from > limit).then_some(Finding::Lowered {
            setting,
            from,
            to: limit,
        }),
        failed => not_set(setting, limit, failed),
    }
}

/// A table with too few lists for its flows is slow. One with more is left as it is.
fn grow_table(kernel: &impl Settings, lists: u64) -> Option<Finding> {
    let setting = Setting::CONNTRACK_HASH_SIZE;
    let grown = kernel.read(setting).and_then(|now| match now.cmp(&lists) {
        Ordering::Less => kernel.write(setting, lists).map(|()| now),
        Ordering::Equal | Ordering::Greater => Ok(now),
    });
    not_set(setting, lists, grown)
}

fn not_set(setting: Setting, wanted: u64, result: Result<u64, Error>) -> Option<Finding> {
    let error = result.err()?;
    Some(Finding::NotSet {
        setting,
        wanted,
        error,
    })
}

impl Finding {
    /// Writes it to the log.
    pub fn log(&self) {
        match self {
            Self::Lowered { .. } => tracing::info!("{self}"),
            Self::NotSet { .. } => tracing::warn!("{self}"),
        }
    }

    /// What the people who run the cluster should hear; none if all is as they asked.
    pub fn notice(&self) -> Option<Notice> {
        let Self::NotSet { error, .. } = self else {
            return None;
        };
        Some(Notice {
            regarding: Regarding::Node,
            severity: Severity::Warning,
            reason: match error.obstacle {
                // As kube-proxy called it while it still looked for this.
                Obstacle::ReadOnly => "readOnlySysFS",
                _ => "ConntrackLimitsNotSet",
            },
            action: "StartKubeProxy",
            note: self.to_string(),
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lowered { setting, from, to } => {
                let path = setting.path();
                write!(
                    f,
                    "lowered {} from {from} to {to}, as the configuration asks",
                    path.display()
                )
            }
            Self::NotSet {
                setting,
                wanted,
                error,
            } => {
                let command = setting.command(*wanted);
                write!(f, "{error}; the proxy works, with the host's value. ")?;
                match error.obstacle {
                    Obstacle::Missing => write!(
                        f,
                        "On the host, load the module with `modprobe nf_conntrack` and set it with `{command}`"
                    ),
                    Obstacle::ReadOnly | Obstacle::Denied => write!(
                        f,
                        "Set it on the host with `{command}`, or give this container the right to (privileged, in the host's network), \
                         or set conntrack.maxPerCore and the timeouts to 0 to leave them alone"
                    ),
                    Obstacle::Other => {
                        write!(
                            f,
                            "On the host, `{command}` shows whether the kernel accepts it"
                        )
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
