//! The socket: system calls, and the only unsafe code of this crate.
#![allow(
    unsafe_code,
    reason = "system calls on netlink sockets; every block says why it is sound"
)]

use std::io;
use std::mem::{size_of, size_of_val, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::Error;

/// Longer than any datagram the kernel builds for a dump (32 KiB) or a notification.
const BUFFER_LEN: usize = 64 << 10;
/// Receive buffer of the socket, for replies and notifications that have not been read yet.
const RECEIVE_BUFFER_LEN: libc::c_int = 8 << 20;
/// The kernel replies within the sending call or immediately after it, so the timeout only prevents a bug from blocking the daemon.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// The protocol of a netlink socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `NETLINK_ROUTE`: addresses, links, routes.
    Route = libc::NETLINK_ROUTE as isize,
    /// `NETLINK_NETFILTER`: nf_tables, connection tracking, ipset.
    Netfilter = libc::NETLINK_NETFILTER as isize,
    /// `NETLINK_GENERIC`: families that are registered by name, IPVS among them.
    Generic = libc::NETLINK_GENERIC as isize,
}

/// An open netlink socket.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    port: u32,
    seq: u32,
    send_buffer_len: usize,
    /// An overrun or truncated reply was given up. Until the receive buffer is empty, the kernel drops further messages and starts no other
    /// dump.
    must_drain: bool,
    buffer: Box<[u8]>,
}

impl Socket {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// If the kernel lacks the protocol, or a system call fails.
    pub fn open(protocol: Protocol) -> Result<Self, Error> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: no pointers are passed.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, protocol as libc::c_int) };
        check("open a netlink socket", fd)?;
        // SAFETY: the descriptor was just opened and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let port = bind(&fd)?;
        let buffer = vec![0; BUFFER_LEN].into_boxed_slice();
        let socket = Self {
            fd,
            port,
            seq: 1,
            send_buffer_len: 0,
            must_drain: false,
            buffer,
        };
        socket.set_options()?;
        Ok(socket)
    }

    /// The port id that the kernel assigned. Notifications about changes made over this socket carry it.
    pub fn port_id(&self) -> u32 {
        self.port
    }

    pub fn next_seq(&self) -> u32 {
        self.seq
    }

    /// Skips sequence numbers that messages were written with, starting at [`Self::next_seq`].
    pub fn skip_seqs(&mut self, count: u32) {
        self.seq = self.seq.wrapping_add(count);
    }

    /// Sends messages in one datagram, which nf_tables takes as one transaction. The rest of a reply that was given up is discarded first.
    ///
    /// # Errors
    /// If the system call fails. Refusals arrive as replies instead.
    pub fn send(&mut self, messages: &[u8]) -> Result<(), Error> {
        if self.must_drain {
            self.drain()?;
        }
        self.ensure_send_buffer(messages.len())?;
        loop {
            let (data, len) = (messages.as_ptr().cast(), messages.len());
            // SAFETY: pointer and length are those of a live slice.
            let sent = unsafe { libc::send(self.fd.as_raw_fd(), data, len, 0) };
            match check("send to the kernel", sent) {
                Err(error) if error.errno() == Some(libc::EINTR) => {}
                result => return result,
            }
        }
    }

    /// Waits for a datagram from the kernel.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if none arrives, [`Error::Overrun`] if the kernel dropped messages.
    pub fn receive(&mut self) -> Result<&[u8], Error> {
        let len = self
            .receive_len(0)?
            .ok_or(Error::TimedOut(RECEIVE_TIMEOUT))?;
        Ok(self.buffer.get(..len).unwrap_or_default())
    }

    /// Receives a datagram if one has arrived already.
    ///
    /// # Errors
    /// [`Error::Overrun`] if the kernel dropped messages.
    pub fn try_receive(&mut self) -> Result<Option<&[u8]>, Error> {
        let len = self.receive_len(libc::MSG_DONTWAIT)?;
        Ok(len.and_then(|len| self.buffer.get(..len)))
    }

    /// Discards all messages in the receive buffer. After [`Error::Overrun`] the kernel silently drops further messages until the buffer is
    /// empty.
    ///
    /// # Errors
    /// If a system call fails.
    pub fn drain(&mut self) -> Result<(), Error> {
        loop {
            match self.try_receive() {
                Ok(Some(_)) | Err(Error::Overrun | Error::Truncated) => {}
                Ok(None) => {
                    self.must_drain = false;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Lets [`Self::receive`] wait without a timeout, as a listener for notifications does.
    ///
    /// # Errors
    /// If the system call fails.
    pub fn disable_timeout(&self) -> Result<(), Error> {
        self.set_receive_timeout(Duration::ZERO)
    }

    /// Subscribes to a multicast group.
    ///
    /// # Errors
    /// If the kernel does not know the group or the process may not join it.
    pub fn join(&self, group: u32) -> Result<(), Error> {
        self.option(
            "join a netlink group",
            libc::SOL_NETLINK,
            libc::NETLINK_ADD_MEMBERSHIP,
            &group,
        )
    }

    /// Attaches a filter that drops notifications about changes made by another socket, named by its port id. Such messages take no space in
    /// the receive buffer and wake no thread.
    ///
    /// # Errors
    /// If the system call fails.
    pub fn ignore_port(&self, port: u32) -> Result<(), Error> {
        /// The offset of the port id in the message header. All messages of a datagram have the same cause, so the first one decides.
        const PORT_OFFSET: u32 = 12;
        let step = |code: u32, on_true, on_false, k| libc::sock_filter {
            code: code as u16,
            jt: on_true,
            jf: on_false,
            k,
        };
        let mut program = [
            step(
                libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
                0,
                0,
                PORT_OFFSET,
            ),
            // The load converts from network byte order.
            step(
                libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
                0,
                1,
                u32::from_be_bytes(port.to_ne_bytes()),
            ),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
        ];
        // The kernel copies the program during the call.
        let filter = libc::sock_fprog {
            len: program.len() as u16,
            filter: program.as_mut_ptr(),
        };
        self.option(
            "filter messages",
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            &filter,
        )
    }

    /// Receives into the buffer and returns the length; none if nothing arrived in time.
    fn receive_len(&mut self, flags: libc::c_int) -> Result<Option<usize>, Error> {
        loop {
            match self.receive_once(flags) {
                Ok((len, true)) if len > self.buffer.len() => {
                    self.must_drain = true;
                    return Err(Error::Truncated);
                }
                Ok((len, true)) => return Ok(Some(len)),
                // Another process sent it.
                Ok((_, false)) => {}
                Err(error) => match error.errno() {
                    Some(libc::EINTR) => {}
                    Some(libc::EAGAIN) => return Ok(None),
                    Some(libc::ENOBUFS) => {
                        self.must_drain = true;
                        return Err(Error::Overrun);
                    }
                    _ => return Err(error),
                },
            }
        }
    }

    /// One system call: the datagram's length, and whether the kernel sent it.
    fn receive_once(&mut self, flags: libc::c_int) -> Result<(usize, bool), Error> {
        let mut from = kernel_address();
        let mut from_len = size_of_val(&from) as libc::socklen_t;
        let (buffer, len) = (self.buffer.as_mut_ptr().cast(), self.buffer.len());
        // With MSG_TRUNC the call returns the length before truncation.
        let flags = flags | libc::MSG_TRUNC;
        let from_ptr = (&raw mut from).cast();
        // SAFETY: buffer and address are live and writable for the lengths given; no more than that is written, whatever is returned.
        let received = unsafe {
            libc::recvfrom(
                self.fd.as_raw_fd(),
                buffer,
                len,
                flags,
                from_ptr,
                &raw mut from_len,
            )
        };
        check("receive from the kernel", received)?;
        Ok((received.unsigned_abs(), from.nl_pid == 0))
    }

    fn set_options(&self) -> Result<(), Error> {
        // Error replies with the kernel's message, and without a copy of a request that may be megabytes long.
        self.option(
            "enable extended acknowledgements",
            libc::SOL_NETLINK,
            libc::NETLINK_EXT_ACK,
            &1,
        )?;
        self.option(
            "enable capped acknowledgements",
            libc::SOL_NETLINK,
            libc::NETLINK_CAP_ACK,
            &1,
        )?;
        // Without CAP_NET_ADMIN the system's limit applies, which is enough for reading.
        let force = libc::SO_RCVBUFFORCE;
        if self
            .option(
                "set the receive buffer",
                libc::SOL_SOCKET,
                force,
                &RECEIVE_BUFFER_LEN,
            )
            .is_err()
        {
            self.option(
                "set the receive buffer",
                libc::SOL_SOCKET,
                libc::SO_RCVBUF,
                &RECEIVE_BUFFER_LEN,
            )?;
        }
        self.set_receive_timeout(RECEIVE_TIMEOUT)
    }

    fn set_receive_timeout(&self, timeout: Duration) -> Result<(), Error> {
        // SAFETY: a timeval is two plain numbers; all zeroes is a valid one.
        let mut time: libc::timeval = unsafe { zeroed() };
        time.tv_sec = timeout.as_secs() as _;
        self.option(
            "set the receive timeout",
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            &time,
        )
    }

    /// The kernel accepts a datagram only if it fits into the send buffer, and a transaction is one datagram.
    fn ensure_send_buffer(&mut self, len: usize) -> Result<(), Error> {
        const DEFAULT: usize = 64 << 10;
        if len <= self.send_buffer_len.max(DEFAULT) {
            return Ok(());
        }
        // The kernel doubles the value, so this is the largest one that does not overflow.
        let room = libc::c_int::try_from(len).unwrap_or(libc::c_int::MAX / 2);
        self.option(
            "set the send buffer",
            libc::SOL_SOCKET,
            libc::SO_SNDBUFFORCE,
            &room,
        )?;
        self.send_buffer_len = len;
        Ok(())
    }

    fn option<T>(
        &self,
        action: &'static str,
        level: libc::c_int,
        name: libc::c_int,
        value: &T,
    ) -> Result<(), Error> {
        let value: *const T = value;
        let len = size_of::<T>() as libc::socklen_t;
        // SAFETY: the pointer is to a live value of the length given, and the kernel checks that length against the option. The only value
        // that contains a pointer is the caller's filter, whose program is alive.
        let set = unsafe { libc::setsockopt(self.fd.as_raw_fd(), level, name, value.cast(), len) };
        check(action, set)
    }
}

/// Binds to a port id that the kernel chooses. Other sockets of this process may use the process id.
fn bind(fd: &OwnedFd) -> Result<u32, Error> {
    let mut address = kernel_address();
    let mut len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address is live and of the length given.
    let bound = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) };
    check("bind a netlink socket", bound)?;
    // SAFETY: address and length are live and writable.
    let named =
        unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut address).cast(), &raw mut len) };
    check("read the port id of a netlink socket", named)?;
    Ok(address.nl_pid)
}

/// Port id 0: the kernel as a peer, or "choose one" when binding.
fn kernel_address() -> libc::sockaddr_nl {
    // SAFETY: a sockaddr_nl is plain numbers; all zeroes is a valid one.
    let mut address: libc::sockaddr_nl = unsafe { zeroed() };
    address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    address
}

/// Converts the result of a system call.
fn check<T: TryInto<i64>>(action: &'static str, result: T) -> Result<(), Error> {
    match result.try_into() {
        Ok(..0) => Err(Error::Syscall {
            action,
            cause: io::Error::last_os_error(),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtnetlink::link_header;
    use crate::uapi::if_link::IFLA_IFNAME;
    use crate::uapi::netlink::NLM_F_REQUEST;
    use crate::uapi::rtnetlink::RTM_GETLINK;
    use crate::{Header, Writer};

    /// A request for a link that does not exist, which the kernel refuses.
    fn missing_link(w: &mut Writer) {
        w.raw(&link_header(0, 0));
        w.text(IFLA_IFNAME, "not-there");
    }

    fn many_requests(socket: &mut Socket, count: u32) -> Vec<u8> {
        let mut writer = Writer::new();
        for number in 0..count {
            let header = Header {
                kind: RTM_GETLINK,
                flags: NLM_F_REQUEST,
                seq: socket.next_seq().wrapping_add(number),
            };
            writer.message(header, missing_link);
        }
        socket.skip_seqs(count);
        writer.finish().unwrap()
    }

    #[test]
    fn query_succeeds_after_an_overrun() {
        let mut socket = Socket::open(Protocol::Route).unwrap();
        let small: libc::c_int = 4096;
        socket
            .option("", libc::SOL_SOCKET, libc::SO_RCVBUF, &small)
            .unwrap();
        let many = many_requests(&mut socket, 500);
        socket.send(&many).unwrap();
        let overrun = loop {
            match socket.receive() {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert!(matches!(overrun, Error::Overrun), "{overrun}");
        let refused = socket.query(RTM_GETLINK, missing_link, |_| Some(()));
        let refused = refused.unwrap_err();
        assert_eq!(refused.errno(), Some(libc::ENODEV), "{refused}");
    }
}
