//! The socket: system calls, and the only unsafe code of this module.
//!
//! What is said over it is in [`exchange`](super::exchange) and in the families' own modules.
#![allow(
    unsafe_code,
    reason = "system calls on netlink sockets; every block says why it is sound"
)]

use std::io;
use std::mem::{size_of, size_of_val, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use super::Error;

/// Longer than any datagram the kernel builds for a dump (32 KiB) or a notification.
const BUFFER_LEN: usize = 64 << 10;
/// Room for answers and notifications that we have not read yet.
const RECEIVE_ROOM: libc::c_int = 8 << 20;
/// The kernel answers within the sending call, or at once; this only keeps a bug from hanging the
/// daemon.
const PATIENCE: Duration = Duration::from_secs(10);

/// A netlink family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Addresses, links, routes.
    Route = libc::NETLINK_ROUTE as isize,
    /// nf_tables, connection tracking, ipset.
    Netfilter = libc::NETLINK_NETFILTER as isize,
    /// Families that are known by name, IPVS among them.
    Generic = libc::NETLINK_GENERIC as isize,
}

/// An open netlink socket with a port of its own.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    port: u32,
    seq: u32,
    send_room: usize,
    /// An answer was given up in the middle. Until all that waits has been read, the kernel tells nothing more if it had no room for
    /// something, and begins no other dump.
    is_behind: bool,
    buffer: Box<[u8]>,
}

impl Socket {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// If the kernel lacks the family, or a system call fails.
    pub fn open(protocol: Protocol) -> Result<Self, Error> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: no pointers are passed.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, protocol as libc::c_int) };
        check("open a netlink socket", fd)?;
        // SAFETY: the descriptor was just opened and belongs to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let port = bind(&fd)?;
        let buffer = vec![0; BUFFER_LEN].into_boxed_slice();
        let socket = Self {
            fd,
            port,
            seq: 1,
            send_room: 0,
            is_behind: false,
            buffer,
        };
        socket.set_options()?;
        Ok(socket)
    }

    /// The port the kernel gave us: what notifications about our own doing carry.
    pub fn port_id(&self) -> u32 {
        self.port
    }

    /// The sequence number for the next message.
    pub fn next_seq(&self) -> u32 {
        self.seq
    }

    /// Counts messages that were written with numbers from [`Self::next_seq`] on.
    pub fn skip_seqs(&mut self, count: u32) {
        self.seq = self.seq.wrapping_add(count);
    }

    /// Sends messages in one datagram: for nf_tables, one transaction. What is left of an answer that could not be read to its end is thrown
    /// away first.
    ///
    /// # Errors
    /// If the kernel does not take them. Refusals come as answers instead.
    pub fn send(&mut self, messages: &[u8]) -> Result<(), Error> {
        if self.is_behind {
            self.drain()?;
        }
        self.make_send_room(messages.len())?;
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

    /// Waits for a datagram of the kernel.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if none comes, [`Error::Lost`] if there was no room for what came.
    pub fn receive(&mut self) -> Result<&[u8], Error> {
        let len = self.receive_len(0)?.ok_or(Error::TimedOut(PATIENCE))?;
        Ok(self.buffer.get(..len).unwrap_or_default())
    }

    /// Takes a datagram that is there already; none if there is none.
    ///
    /// # Errors
    /// [`Error::Lost`] if there was no room for what came.
    pub fn receive_waiting(&mut self) -> Result<Option<&[u8]>, Error> {
        let len = self.receive_len(libc::MSG_DONTWAIT)?;
        Ok(len.and_then(|len| self.buffer.get(..len)))
    }

    /// Throws away all that waits here. After [`Error::Lost`] the kernel drops further news,
    /// without a word, until this has been done.
    ///
    /// # Errors
    /// If a system call fails.
    pub fn drain(&mut self) -> Result<(), Error> {
        loop {
            match self.receive_waiting() {
                Ok(Some(_)) | Err(Error::Lost | Error::Truncated) => {}
                Ok(None) => {
                    self.is_behind = false;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits without end from now on, as a listener does.
    ///
    /// # Errors
    /// If the system call fails.
    pub fn wait_for_ever(&self) -> Result<(), Error> {
        self.set_patience(Duration::ZERO)
    }

    /// Hears what the kernel tells a group.
    ///
    /// # Errors
    /// If the kernel does not know the group or we may not hear it.
    pub fn join(&self, group: u32) -> Result<(), Error> {
        self.option(
            "join a netlink group",
            libc::SOL_NETLINK,
            libc::NETLINK_ADD_MEMBERSHIP,
            &group,
        )
    }

    /// Lets the kernel drop what a certain port caused before it is queued here: news of our own
    /// doing costs no room and wakes nobody.
    ///
    /// # Errors
    /// If the system call fails.
    pub fn ignore_port(&self, port: u32) -> Result<(), Error> {
        /// Where a message's header has the port. A datagram only holds messages that one request
        /// caused, so the first one tells.
        const PORT: u32 = 12;
        let step = |code: u32, on_true, on_false, k| libc::sock_filter {
            code: code as u16,
            jt: on_true,
            jf: on_false,
            k,
        };
        let mut program = [
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, PORT),
            // The load takes the bytes to be in network order.
            step(
                libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
                0,
                1,
                u32::from_be_bytes(port.to_ne_bytes()),
            ),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
        ];
        // The kernel copies the program, so it need not outlive this call.
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

    /// Receives into the buffer, and answers with a length that it has; none if nothing came in time.
    fn receive_len(&mut self, flags: libc::c_int) -> Result<Option<usize>, Error> {
        loop {
            match self.receive_once(flags) {
                Ok((len, true)) if len > self.buffer.len() => {
                    self.is_behind = true;
                    return Err(Error::Truncated);
                }
                Ok((len, true)) => return Ok(Some(len)),
                // Someone else than the kernel wrote to us.
                Ok((_, false)) => {}
                Err(error) => match error.errno() {
                    Some(libc::EINTR) => {}
                    Some(libc::EAGAIN) => return Ok(None),
                    Some(libc::ENOBUFS) => {
                        self.is_behind = true;
                        return Err(Error::Lost);
                    }
                    _ => return Err(error),
                },
            }
        }
    }

    /// One call: the datagram's length, and whether it is the kernel's.
    fn receive_once(&mut self, flags: libc::c_int) -> Result<(usize, bool), Error> {
        let mut from = kernel_address();
        let mut from_len = size_of_val(&from) as libc::socklen_t;
        let (buffer, len) = (self.buffer.as_mut_ptr().cast(), self.buffer.len());
        // MSG_TRUNC makes the call answer with the datagram's true length.
        let flags = flags | libc::MSG_TRUNC;
        let from_ptr = (&raw mut from).cast();
        // SAFETY: buffer and address are live and writable for the lengths given; no more than that
        // is written, whatever is answered.
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
        // Refusals with the kernel's own words, and without a copy of a request that may be
        // megabytes long.
        self.option(
            "ask for error messages",
            libc::SOL_NETLINK,
            libc::NETLINK_EXT_ACK,
            &1,
        )?;
        self.option(
            "ask for short errors",
            libc::SOL_NETLINK,
            libc::NETLINK_CAP_ACK,
            &1,
        )?;
        // Without the right to more, the system's limit must do: reading works either way.
        let force = libc::SO_RCVBUFFORCE;
        if self
            .option(
                "set the receive buffer",
                libc::SOL_SOCKET,
                force,
                &RECEIVE_ROOM,
            )
            .is_err()
        {
            self.option(
                "set the receive buffer",
                libc::SOL_SOCKET,
                libc::SO_RCVBUF,
                &RECEIVE_ROOM,
            )?;
        }
        self.set_patience(PATIENCE)
    }

    fn set_patience(&self, patience: Duration) -> Result<(), Error> {
        // SAFETY: a timeval is two plain numbers; all zeroes is a valid one.
        let mut time: libc::timeval = unsafe { zeroed() };
        time.tv_sec = patience.as_secs() as _;
        self.option("set a time-out", libc::SOL_SOCKET, libc::SO_RCVTIMEO, &time)
    }

    /// The kernel takes a datagram only if it fits into the send buffer, and a transaction must be
    /// one datagram.
    fn make_send_room(&mut self, len: usize) -> Result<(), Error> {
        const DEFAULT: usize = 64 << 10;
        if len <= self.send_room.max(DEFAULT) {
            return Ok(());
        }
        // The kernel doubles the figure, so one that large is as much as it can be told.
        let room = libc::c_int::try_from(len).unwrap_or(libc::c_int::MAX / 2);
        self.option(
            "make room for a transaction",
            libc::SOL_SOCKET,
            libc::SO_SNDBUFFORCE,
            &room,
        )?;
        self.send_room = len;
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
        // SAFETY: the pointer is to a live value of the length given, the kernel checks that length
        // against the option, and the one value that itself has a pointer is the caller's filter,
        // whose program is alive.
        let set = unsafe { libc::setsockopt(self.fd.as_raw_fd(), level, name, value.cast(), len) };
        check(action, set)
    }
}

/// Lets the kernel choose a port. Others in this process may have sockets too, so the process id,
/// which many use, is not ours to take.
fn bind(fd: &OwnedFd) -> Result<u32, Error> {
    let mut address = kernel_address();
    let mut len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address is live and of the length given.
    let bound = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) };
    check("bind a netlink socket", bound)?;
    // SAFETY: address and length are live and writable.
    let named =
        unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut address).cast(), &raw mut len) };
    check("ask for a socket's port", named)?;
    Ok(address.nl_pid)
}

/// Port 0: the kernel as a peer, "choose one" when binding.
fn kernel_address() -> libc::sockaddr_nl {
    // SAFETY: a sockaddr_nl is plain numbers; all zeroes is a valid one.
    let mut address: libc::sockaddr_nl = unsafe { zeroed() };
    address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    address
}

/// A system call's result, or the error it left behind.
fn check<T: TryInto<i64>>(action: &'static str, result: T) -> Result<(), Error> {
    match result.try_into() {
        Ok(..0) => Err(call(action, io::Error::last_os_error())),
        _ => Ok(()),
    }
}

fn call(action: &'static str, cause: io::Error) -> Error {
    Error::Call { action, cause }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{Header, Writer, flags};
    use crate::rtnetlink::{link, msg};

    /// A question for a link that is not there, which is answered by a refusal.
    fn not_there(w: &mut Writer) {
        w.raw(&link::header(0, 0));
        w.text(link::NAME, "not-there");
    }

    /// The same again and again.
    fn questions(socket: &mut Socket, count: u32) -> Vec<u8> {
        let mut writer = Writer::new();
        for number in 0..count {
            let header = Header {
                kind: msg::GET_LINK,
                flags: flags::REQUEST,
                seq: socket.next_seq().wrapping_add(number),
            };
            writer.message(header, not_there);
        }
        socket.skip_seqs(count);
        writer.finish().unwrap()
    }

    #[test]
    fn a_question_is_answered_after_answers_were_lost() {
        let mut socket = Socket::open(Protocol::Route).unwrap();
        let small: libc::c_int = 4096;
        socket
            .option("", libc::SOL_SOCKET, libc::SO_RCVBUF, &small)
            .unwrap();
        let many = questions(&mut socket, 500);
        socket.send(&many).unwrap();
        let lost = loop {
            match socket.receive() {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert!(matches!(lost, Error::Lost), "{lost}");
        let refused = socket.ask(msg::GET_LINK, not_there, |_| Some(()));
        let refused = refused.unwrap_err();
        assert_eq!(refused.errno(), Some(libc::ENODEV), "{refused}");
    }
}
