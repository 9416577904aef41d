//! Kernel settings that are files: read, compared, and written only if they differ.
//!
//! In a container these files are often read-only, which is for its operator to change and not for us to fail over. So the ways in which
//! one cannot be written are distinguished.

use std::fs;
use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread;

/// A setting, named by its file below the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Setting(&'static str);

impl Setting {
    /// How many flows the kernel tracks at most.
    pub const CONNTRACK_MAX: Self = Self("proc/sys/net/netfilter/nf_conntrack_max");
    /// How many lists it keeps them in.
    pub const CONNTRACK_HASH_SIZE: Self = Self("sys/module/nf_conntrack/parameters/hashsize");
    /// Seconds that an idle TCP connection is remembered.
    pub const TCP_ESTABLISHED: Self =
        Self("proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established");
    /// Seconds that a half-closed one is.
    pub const TCP_CLOSE_WAIT: Self =
        Self("proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait");
    /// Not 0: TCP packets outside the window are not invalid.
    pub const TCP_BE_LIBERAL: Self = Self("proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal");
    /// Seconds that a UDP flow without an answer is remembered.
    pub const UDP: Self = Self("proc/sys/net/netfilter/nf_conntrack_udp_timeout");
    /// Seconds that one with answers is.
    pub const UDP_STREAM: Self = Self("proc/sys/net/netfilter/nf_conntrack_udp_timeout_stream");

    /// Not 0: packets from and to 127.0.0.0/8 may be routed.
    pub const ROUTE_LOCALNET: Self = Self("proc/sys/net/ipv4/conf/all/route_localnet");

    /// Not 0: what goes through IPVS is tracked as other flows are.
    pub const IPVS_CONNTRACK: Self = Self("proc/sys/net/ipv4/vs/conntrack");
    /// What IPVS does about a client's port that is used again.
    pub const IPVS_CONN_REUSE_MODE: Self = Self("proc/sys/net/ipv4/vs/conn_reuse_mode");
    /// Not 0: connections whose destination is gone end.
    pub const IPVS_EXPIRE_NODEST_CONN: Self = Self("proc/sys/net/ipv4/vs/expire_nodest_conn");
    /// Not 0: clients do not stick to a destination of weight 0.
    pub const IPVS_EXPIRE_QUIESCENT_TEMPLATE: Self =
        Self("proc/sys/net/ipv4/vs/expire_quiescent_template");
    /// Not 0: packets are forwarded.
    pub const IP_FORWARD: Self = Self("proc/sys/net/ipv4/ip_forward");
    /// 1: a link answers only for the addresses it has itself.
    pub const ARP_IGNORE: Self = Self("proc/sys/net/ipv4/conf/all/arp_ignore");
    /// 2: a link asks only from addresses of its own.
    pub const ARP_ANNOUNCE: Self = Self("proc/sys/net/ipv4/conf/all/arp_announce");

    /// Its file on an ordinary system.
    pub fn path(self) -> PathBuf {
        Path::new("/").join(self.0)
    }

    /// The command that sets it, for a person on the host.
    pub fn command(self, value: u64) -> String {
        match self.0.strip_prefix("proc/sys/") {
            Some(name) => format!("sysctl -w {}={value}", name.replace('/', ".")),
            None => format!("echo {value} > /{}", self.0),
        }
    }
}

/// A setting cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {} {}: {cause}", if *.writing { "write" } else { "read" }, .path.display())]
pub struct Error {
    pub path: PathBuf,
    pub writing: bool,
    /// What stands in the way.
    pub obstacle: Obstacle,
    pub cause: io::Error,
}

/// What stands in the way of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The kernel, or what is loaded of it, does not have it.
    Missing,
    /// The file system is mounted read-only, as in an ordinary container.
    ReadOnly,
    /// We lack the right, or it can only be set in the host's own network namespace.
    Denied,
    /// Something else: it holds no number, or the kernel does not accept this one.
    Other,
}

impl Obstacle {
    fn of(cause: &io::Error) -> Self {
        match cause.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => Self::Missing,
            Some(libc::EROFS) => Self::ReadOnly,
            Some(libc::EACCES | libc::EPERM | libc::EOPNOTSUPP) => Self::Denied,
            _ => Self::Other,
        }
    }
}

/// Where settings are read and written.
pub trait Settings {
    /// What a setting is.
    ///
    /// # Errors
    /// If its file cannot be read or holds no number.
    fn read(&self, setting: Setting) -> Result<u64, Error>;

    /// Makes it something else.
    ///
    /// # Errors
    /// If its file cannot be written or the kernel does not accept the value.
    fn write(&self, setting: Setting, value: u64) -> Result<(), Error>;

    /// Makes a setting this value; it is not written if it is that already. Returns what it was.
    ///
    /// # Errors
    /// If it cannot be read or written.
    fn set(&self, setting: Setting, value: u64) -> Result<u64, Error> {
        let before = self.read(setting)?;
        if before != value {
            self.write(setting, value)?;
        }
        Ok(before)
    }
}

/// Settings as files below a folder: `/`, but for tests.
#[derive(Clone, Debug)]
pub struct Files {
    root: PathBuf,
}

impl Files {
    pub fn of_this_machine() -> Self {
        Self::below("/")
    }

    /// Those below a folder.
    pub fn below(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// How many processors the machine has running, whatever share of them this process may use; at least one.
    pub fn online_cpus(&self) -> usize {
        let list = fs::read_to_string(self.root.join("sys/devices/system/cpu/online")).ok();
        list.and_then(|list| count(&list))
            .or_else(|| thread::available_parallelism().ok())
            .map_or(1, NonZero::get)
    }

    fn failed(&self, setting: Setting, writing: bool) -> impl Fn(io::Error) -> Error {
        let path = self.root.join(setting.0);
        move |cause| Error {
            path: path.clone(),
            writing,
            obstacle: Obstacle::of(&cause),
            cause,
        }
    }
}

impl Settings for Files {
    fn read(&self, setting: Setting) -> Result<u64, Error> {
        let failed = self.failed(setting, false);
        let text = fs::read_to_string(self.root.join(setting.0)).map_err(&failed)?;
        let number = text.trim().parse();
        number.map_err(|_| failed(io::Error::other("its value is not a number")))
    }

    fn write(&self, setting: Setting, value: u64) -> Result<(), Error> {
        // Never created: a setting that is not there would look as if it were.
        let file = fs::OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(self.root.join(setting.0));
        file.and_then(|mut file| io::Write::write_all(&mut file, value.to_string().as_bytes()))
            .map_err(self.failed(setting, true))
    }
}

/// How many numbers a list such as `0-3,8` has.
fn count(list: &str) -> Option<NonZero<usize>> {
    let mut total = 0_usize;
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        total = total.checked_add(last.checked_sub(first)? as usize + 1)?;
    }
    NonZero::new(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted() {
        let counted = |list| count(list).map(NonZero::get);
        assert_eq!(counted("0\n"), Some(1));
        assert_eq!(counted("0-3\n"), Some(4));
        assert_eq!(counted("0-1,4,8-9"), Some(5));
        for nonsense in ["", "\n", "3-1", "a", "0-", "0,,1"] {
            assert_eq!(counted(nonsense), None, "{nonsense:?}");
        }
        assert!(Files::below("/nowhere").online_cpus() >= 1);
    }

    #[test]
    fn error_names_the_sysctl_command() {
        assert_eq!(
            Setting::CONNTRACK_MAX.command(9),
            "sysctl -w net.netfilter.nf_conntrack_max=9"
        );
        assert_eq!(
            Setting::CONNTRACK_HASH_SIZE.command(9),
            "echo 9 > /sys/module/nf_conntrack/parameters/hashsize"
        );
    }
}
