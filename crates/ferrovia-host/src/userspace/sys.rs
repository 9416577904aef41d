//! The system calls of the engine that the standard library does not offer, behind safe functions.
//!
//! All unsafe code of the engine is in this file and in [`datagrams`](super::datagrams), which only lays out what `recvmmsg` and `sendmmsg`
//! ask for.
#![allow(
    unsafe_code,
    reason = "epoll, splice and accept4 have no safe form in std; every block says why it is sound"
)]

use std::io;
use std::mem::size_of;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::time::Duration;

use libc::{c_int, socklen_t};
use socket2::SockAddr;

/// How many events are taken from the kernel at once.
const EVENTS: usize = 256;

/// What a descriptor is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EpollInterest {
    /// Both directions, edge-triggered: for connections, without a system call to change the interest.
    Edges,
    /// While there is something to read.
    Readable,
    /// While there is something to read, and of all that watch only one is to be woken: a listener that several threads share.
    ReadableByOne,
}

/// A set of watched descriptors.
#[derive(Debug)]
pub(super) struct Epoll(OwnedFd);

impl Epoll {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: no pointers are passed.
        owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).map(Self)
    }

    /// Watches a descriptor; its events carry the token. A descriptor that is closed leaves by itself.
    pub(super) fn add(&self, fd: impl AsFd, token: u64, watch: EpollInterest) -> io::Result<()> {
        let events = match watch {
            EpollInterest::Edges => {
                libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET
            }
            EpollInterest::Readable => libc::EPOLLIN,
            EpollInterest::ReadableByOne => libc::EPOLLIN | libc::EPOLLEXCLUSIVE,
        };
        let mut event = libc::epoll_event {
            events: events.cast_unsigned(),
            u64: token,
        };
        let fd = fd.as_fd().as_raw_fd();
        // SAFETY: both descriptors are open while borrowed, the event outlives the call.
        let done =
            unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) };
        checked(done).map(drop)
    }

    /// Watches it no longer.
    pub(super) fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        let fd = fd.as_fd().as_raw_fd();
        // SAFETY: both descriptors are open while borrowed; removing takes no event.
        let done =
            unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_DEL, fd, null_mut()) };
        checked(done).map(drop)
    }

    /// Waits for events, at most so long. That a signal came is no error, and no event either.
    pub(super) fn wait(&self, events: &mut Events, limit: Option<Duration>) -> io::Result<()> {
        // Rounded up, or the last part of a millisecond would be spent in a busy loop.
        let limit = limit.map_or(-1, |limit| {
            c_int::try_from(limit.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX)
        });
        let room = c_int::try_from(EVENTS).unwrap_or(c_int::MAX);
        // SAFETY: the array has room for as many events as are passed to the call.
        let count =
            unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.list.as_mut_ptr(), room, limit) };
        events.len = 0;
        match checked(count) {
            Ok(count) => events.len = usize::try_from(count).unwrap_or(0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Room for the events of one wait.
pub(super) struct Events {
    list: Box<[libc::epoll_event]>,
    len: usize,
}

impl Events {
    pub(super) fn new() -> Self {
        let none = libc::epoll_event { events: 0, u64: 0 };
        Self {
            list: vec![none; EVENTS].into_boxed_slice(),
            len: 0,
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The token of one of them, and what happened.
    pub(super) fn get(&self, index: usize) -> (u64, Ready) {
        let event = self.list[index];
        (event.u64, Ready(event.events))
    }
}

/// What happened to a descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready(u32);

impl Ready {
    /// There is something to read, be it an end or an error.
    pub(super) fn readable(self) -> bool {
        self.has(libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR)
    }

    /// There is room to write.
    pub(super) fn writable(self) -> bool {
        self.has(libc::EPOLLOUT)
    }

    /// The peer will send no more: what is there must be read to its end.
    pub(super) fn ended(self) -> bool {
        self.has(libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR)
    }

    /// It failed; for a socket that is connecting, the attempt did.
    pub(super) fn failed(self) -> bool {
        self.has(libc::EPOLLERR | libc::EPOLLHUP)
    }

    fn has(self, events: c_int) -> bool {
        self.0 & events.cast_unsigned() != 0
    }
}

/// A counter to wake a thread with: written by others, watched by the thread.
pub(super) fn wake_counter() -> io::Result<OwnedFd> {
    // SAFETY: no pointers are passed.
    owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
}

/// Takes a connection that waits, non-blocking from the start, which saves a call.
pub(super) fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let take = |address: *mut socket2::SockAddrStorage, len: *mut socklen_t| {
        // SAFETY: socket2 gives pointers to room for an address and to its size, as the call asks.
        owned(unsafe { libc::accept4(listener.as_raw_fd(), address.cast(), len, flags) })
    };
    // SAFETY: when it succeeds, accept4 has written an address and its length.
    let (fd, address) = unsafe { SockAddr::try_init(take) }?;
    let address = address
        .as_socket()
        .ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))?;
    Ok((TcpStream::from(fd), address))
}

/// A pipe that holds about so many bytes, or what the system grants; its end to read and its end to write.
pub(super) fn pipe(size: usize) -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [-1; 2];
    // SAFETY: the array has room for two descriptors.
    checked(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) })?;
    let (read, write) = (owned(ends[0])?, owned(ends[1])?);
    let size = c_int::try_from(size).unwrap_or(c_int::MAX);
    // SAFETY: an integer is all it takes. Refused, the pipe is smaller and works as well.
    let _ = unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, size) };
    Ok((read, write))
}

/// Moves bytes between a pipe and a socket without copying them.
pub(super) fn splice(from: impl AsFd, to: impl AsFd, len: usize) -> io::Result<usize> {
    let flags = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK;
    let (from, to) = (from.as_fd().as_raw_fd(), to.as_fd().as_raw_fd());
    // SAFETY: the descriptors are open while borrowed; no offsets are passed.
    let moved = unsafe { libc::splice(from, null_mut(), to, null_mut(), len, flags) };
    usize::try_from(moved).map_err(|_| io::Error::last_os_error())
}

/// Asks for room for datagrams that were not read yet: beyond the system's limit if this process may.
pub(super) fn set_receive_room(socket: impl AsFd, bytes: c_int) -> io::Result<()> {
    let forced = set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes);
    forced.or_else(|_| set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes))
}

/// Sets an option whose value is a number.
pub(super) fn set_option(
    socket: &impl AsFd,
    level: c_int,
    name: c_int,
    value: c_int,
) -> io::Result<()> {
    let len = size_of::<c_int>() as socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: pointer and length are those of a live integer.
    checked(unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), len) }).map(drop)
}

fn owned(fd: c_int) -> io::Result<OwnedFd> {
    checked(fd)?;
    // SAFETY: callers pass a descriptor that a system call just opened, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn checked(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}
