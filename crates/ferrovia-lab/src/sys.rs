//! The system calls the standard library does not offer, behind safe functions.
//!
//! All unsafe code of the lab is in this file.
#![allow(
    unsafe_code,
    reason = "setns, unshare, poll, epoll, raw sockets and what a first process does have no safe form in std"
)]

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::mem::{size_of, zeroed};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::time::Instant;

use libc::{c_int, c_short, c_void, socklen_t};

use crate::rootless;

/// Moves the calling thread, and no other, into a network namespace.
pub(crate) fn enter(namespace: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: setns takes two integers; the descriptor is open while it is borrowed.
    checked(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
}

/// Moves the calling thread, and no other, into a network namespace that is new.
pub(crate) fn enter_new_network() -> io::Result<()> {
    // SAFETY: unshare takes an integer, and of this thread's things only the network is its own then.
    checked(unsafe { libc::unshare(libc::CLONE_NEWNET) }).map(drop)
}

/// The C library calls every function in this section before `main`, while the process has one thread.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = before_main;

extern "C" fn before_main() {
    rootless::enter();
}

/// The user and group that the process acts as.
pub(crate) fn effective_ids() -> (libc::uid_t, libc::gid_t) {
    // SAFETY: both calls take nothing and cannot fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

/// Sets a variable of the environment. Only for `before_main`.
pub(crate) fn set_environment_before_main(name: &str, value: &str) {
    // SAFETY: before `main` there is no other thread that could read the environment at the same time.
    unsafe { std::env::set_var(name, value) };
}

/// Moves the process into new user, mount and network namespaces. The kernel refuses it to a process with more than one thread.
pub(crate) fn enter_new_user_namespace() -> io::Result<()> {
    let flags = libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWNET;
    // SAFETY: unshare takes an integer.
    checked(unsafe { libc::unshare(flags) }).map(drop)
}

/// Takes the rights of root from the calling thread. The system calls themselves, because the library's functions change all threads.
///
/// A user namespace in which only root is mapped has no other user to become, so there the thread stays root without capabilities.
pub(crate) fn become_nobody() -> io::Result<()> {
    const NOBODY: libc::uid_t = 65534;
    // SAFETY: takes integers and affects this thread only.
    let changed = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
    if changed == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::EINVAL) => drop_all_capabilities(),
        error => Err(error),
    }
}

/// Empties the capability sets of the calling thread.
fn drop_all_capabilities() -> io::Result<()> {
    // _LINUX_CAPABILITY_VERSION_3 of linux/capability.h; pid 0 is the calling thread.
    let header: [u32; 2] = [0x2008_0522, 0];
    // Two of `struct __user_cap_data_struct`: effective, permitted and inheritable, 32 capabilities each.
    let data = [0_u32; 6];
    // SAFETY: both pointers are to live arrays of the sizes that this version of the call reads.
    let set = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) };
    if set == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Makes a command start inside a network namespace.
///
/// Preferred to `ip netns exec`, which also remounts `/sys` and costs a process.
pub(crate) fn start_inside(command: &mut Command, namespace: Arc<File>) {
    let enter_after_fork = move || {
        // SAFETY: as in `enter`. The closure keeps the file open, and setns may be called
        // between fork and exec because it neither allocates nor takes locks.
        checked(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
    };
    // SAFETY: the closure does what is allowed between fork and exec, see above.
    unsafe { command.pre_exec(enter_after_fork) };
}

/// Ends a process without asking it. That it is already gone is no error to the caller.
pub(crate) fn kill(pid: libc::pid_t) {
    // SAFETY: kill takes two integers.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// Ends all processes of a group that a child leads. That they are already gone is no error to the caller.
pub(crate) fn kill_group(leader: u32) {
    if let Ok(leader) = libc::pid_t::try_from(leader) {
        // SAFETY: kill takes two integers.
        unsafe { libc::kill(-leader, libc::SIGKILL) };
    }
}

/// Makes a command the first of a new process group, and ends it when the thread that started it ends.
pub(crate) fn lead_a_group_and_die_with_us(command: &mut Command) {
    command.process_group(0);
    let before_exec = || {
        // SAFETY: prctl with this option takes integers; it may be called between fork and exec.
        checked(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) }).map(drop)
    };
    // SAFETY: the closure does what is allowed between fork and exec, see above.
    unsafe { command.pre_exec(before_exec) };
}

/// Mounts a file system that the kernel makes up.
pub(crate) fn mount(kind: &str, target: &str) -> io::Result<()> {
    let (kind, target) = (CString::new(kind)?, CString::new(target)?);
    // SAFETY: all strings are alive and end with a zero; these kinds take no data.
    let mounted = unsafe { libc::mount(kind.as_ptr(), target.as_ptr(), kind.as_ptr(), 0, null()) };
    checked(mounted).map(drop)
}

/// Shows a file or a folder, with all that is mounted in it, at another place too.
pub(crate) fn bind(source: &Path, target: &Path) -> io::Result<()> {
    mount_as(source, target, libc::MS_BIND | libc::MS_REC)
}

/// Has whatever is mounted or unmounted below a mount be so in all mount namespaces.
pub(crate) fn share_mounts(target: &Path) -> io::Result<()> {
    mount_as(Path::new(""), target, libc::MS_SHARED | libc::MS_REC)
}

fn mount_as(source: &Path, target: &Path, flags: libc::c_ulong) -> io::Result<()> {
    let (source, target) = (c_path(source)?, c_path(target)?);
    let kind = c"none".as_ptr();
    // SAFETY: all strings are alive and end with a zero; these flags take no data.
    checked(unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind, flags, null()) }).map(drop)
}

/// Takes a mount away, whoever still uses it.
pub(crate) fn unmount(target: &Path) -> io::Result<()> {
    let target = c_path(target)?;
    // SAFETY: the string is alive and ends with a zero.
    checked(unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) }).map(drop)
}

fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// Loads a kernel module from its file.
pub(crate) fn load_module(file: &File, parameters: &CStr) -> io::Result<()> {
    // SAFETY: an open descriptor, a string that ends with a zero, and no flags.
    let loaded = unsafe {
        libc::syscall(
            libc::SYS_finit_module,
            file.as_raw_fd(),
            parameters.as_ptr(),
            0,
        )
    };
    match loaded {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes a terminal pass bytes on as they are.
pub(crate) fn make_raw(terminal: &File) -> io::Result<()> {
    let fd = terminal.as_raw_fd();
    // SAFETY: all zeroes is a valid termios, and the calls get a live pointer to it.
    unsafe {
        let mut settings: libc::termios = zeroed();
        checked(libc::tcgetattr(fd, &raw mut settings))?;
        libc::cfmakeraw(&raw mut settings);
        checked(libc::tcsetattr(fd, libc::TCSANOW, &raw const settings)).map(drop)
    }
}

/// Lets this process and those it starts open many files: a lab holds the sockets of a whole cluster.
pub(crate) fn allow_many_open_files() -> io::Result<()> {
    let many = libc::rlimit {
        rlim_cur: 65_536,
        rlim_max: 65_536,
    };
    // SAFETY: the call reads a structure that outlives it.
    checked(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const many) }).map(drop)
}

/// Waits until a terminal has passed everything on.
pub(crate) fn drain(terminal: &File) -> io::Result<()> {
    // SAFETY: tcdrain takes an integer.
    checked(unsafe { libc::tcdrain(terminal.as_raw_fd()) }).map(drop)
}

/// Switches the machine off, which only the first process of a guest may want.
pub(crate) fn power_off() -> ! {
    // SAFETY: sync takes nothing and reboot an integer.
    unsafe {
        libc::sync();
        libc::reboot(libc::RB_POWER_OFF);
    }
    // It failed; the end of a first process ends the guest as well, if less politely.
    std::process::exit(1)
}

/// The signals that ask a program to end: Ctrl-C, `kill`, and a terminal that was closed.
pub(crate) struct EndSignals(libc::sigset_t);

impl EndSignals {
    /// Holds the signals back in this thread, and in all threads and children it starts.
    pub(crate) fn block() -> io::Result<Self> {
        // SAFETY: all zeroes is a valid sigset_t, and the calls get a live pointer to it.
        let set = unsafe {
            let mut set: libc::sigset_t = zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::sigaddset(&raw mut set, signal);
            }
            set
        };
        // SAFETY: the set is whole, and the old mask is not asked for.
        match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, null_mut()) } {
            0 => Ok(Self(set)),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Waits until one of them comes.
    pub(crate) fn wait(&self) {
        let mut signal = 0;
        // SAFETY: both pointers are to live values. It fails only for an invalid set.
        unsafe { libc::sigwait(&raw const self.0, &raw mut signal) };
    }
}

/// The kinds of socket the lab opens by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketKind {
    /// A TCP stream.
    Tcp,
    /// Whole SCTP packets without an SCTP stack.
    RawSctp,
}

/// Opens a non-blocking socket of the address's family and binds it there.
pub(crate) fn bound_socket(kind: SocketKind, local: SocketAddr) -> io::Result<OwnedFd> {
    let family = if local.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let (class, protocol) = match kind {
        SocketKind::Tcp => (libc::SOCK_STREAM, 0),
        SocketKind::RawSctp => (libc::SOCK_RAW, libc::IPPROTO_SCTP),
    };
    let class = class | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: socket takes three integers.
    let fd = checked(unsafe { libc::socket(family, class, protocol) })?;
    // SAFETY: the call above returned this descriptor, and nobody else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let (address, length) = raw_address(local);
    // SAFETY: the pointer and the length describe a live sockaddr_storage.
    checked(unsafe { libc::bind(fd, (&raw const address).cast(), length) })?;
    Ok(socket)
}

/// Opens a socket for IPv4 packets whose header the sender writes.
pub(crate) fn raw_sender() -> io::Result<OwnedFd> {
    let class = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: socket takes three integers.
    let fd = checked(unsafe { libc::socket(libc::AF_INET, class, libc::IPPROTO_RAW) })?;
    // SAFETY: the call above returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Starts to connect a socket; a stream that is still on its way is a success.
pub(crate) fn connect(socket: &OwnedFd, remote: SocketAddr) -> io::Result<()> {
    let (address, length) = raw_address(remote);
    let fd = socket.as_raw_fd();
    // SAFETY: the pointer and the length describe a live sockaddr_storage.
    match checked(unsafe { libc::connect(fd, (&raw const address).cast(), length) }) {
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(()),
        other => other.map(drop),
    }
}

/// Whether any packet of a stream had to be sent again.
pub(crate) fn is_resent(stream: &TcpStream) -> io::Result<bool> {
    // SAFETY: all zeroes is a valid tcp_info.
    let mut info: libc::tcp_info = unsafe { zeroed() };
    let mut length = size_of::<libc::tcp_info>() as socklen_t;
    let fd = stream.as_raw_fd();
    let target: *mut c_void = (&raw mut info).cast();
    // SAFETY: the pointer and the length describe a live tcp_info, of which the kernel fills in no more than that.
    checked(unsafe {
        libc::getsockopt(
            fd,
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            target,
            &raw mut length,
        )
    })?;
    Ok(info.tcpi_total_retrans > 0)
}

/// What to wait for on a descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Readiness {
    /// Something to read, or an error, or the end.
    Readable,
    /// Room to write, or a connection that was made or failed.
    Writable,
}

/// Waits until a descriptor is ready; false means the deadline passed first.
pub(crate) fn wait(fd: RawFd, readiness: Readiness, deadline: Instant) -> io::Result<bool> {
    let events: c_short = match readiness {
        Readiness::Readable => libc::POLLIN,
        Readiness::Writable => libc::POLLOUT,
    };
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // Rounded up: a rest below a millisecond must not become a busy loop of zero waits.
        let millis = c_int::try_from(left.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX);
        let mut poll = libc::pollfd {
            fd,
            events,
            revents: 0,
        };
        // SAFETY: the pointer is to one live pollfd, as the count says.
        match checked(unsafe { libc::poll(&raw mut poll, 1, millis) }) {
            Ok(0) if left.is_zero() => return Ok(false),
            Ok(0) => {}
            Ok(_) => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Watches many descriptors for something to read. A closed descriptor leaves by itself.
#[derive(Debug)]
pub(crate) struct Poller(OwnedFd);

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: epoll_create1 takes an integer.
        let fd = checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the call above returned this descriptor, and nobody else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Starts watching a descriptor, which also is the name it is reported under.
    pub(crate) fn add(&self, fd: RawFd) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: u64::from(fd.unsigned_abs()),
        };
        let poller = self.0.as_raw_fd();
        // SAFETY: the pointer is to a live epoll_event, which the kernel copies.
        checked(unsafe { libc::epoll_ctl(poller, libc::EPOLL_CTL_ADD, fd, &raw mut event) })
            .map(drop)
    }

    /// Blocks until something is readable and returns which descriptors are.
    pub(crate) fn wait(&self) -> io::Result<Vec<RawFd>> {
        const BATCH: usize = 64;
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; BATCH];
        let poller = self.0.as_raw_fd();
        // SAFETY: the pointer and the count describe the live array above.
        let result =
            checked(unsafe { libc::epoll_wait(poller, events.as_mut_ptr(), BATCH as c_int, -1) });
        let ready = match result {
            Ok(count) => count.unsigned_abs() as usize,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        Ok(events
            .iter()
            .take(ready)
            .map(|event| event.u64 as RawFd)
            .collect())
    }
}

/// Turns the C convention of -1 and errno into a result.
fn checked(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// An address as the kernel wants it, with the length that belongs to its family.
fn raw_address(address: SocketAddr) -> (libc::sockaddr_storage, socklen_t) {
    // SAFETY: all zeroes is a valid sockaddr_storage.
    let mut storage: libc::sockaddr_storage = unsafe { zeroed() };
    let target: *mut c_void = (&raw mut storage).cast();
    let length = match address {
        SocketAddr::V4(v4) => {
            let raw = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from(*v4.ip()).to_be(),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: sockaddr_storage is made to hold any sockaddr, in size and alignment.
            unsafe { target.cast::<libc::sockaddr_in>().write(raw) };
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: sockaddr_storage is made to hold any sockaddr, in size and alignment.
            unsafe { target.cast::<libc::sockaddr_in6>().write(raw) };
            size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, length as socklen_t)
}
