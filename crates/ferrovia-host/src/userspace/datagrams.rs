//! Many datagrams in one system call: what `recvmmsg` and `sendmmsg` read and write, as a safe value.
#![allow(
    unsafe_code,
    reason = "message headers are made of raw pointers; every block says why it is sound"
)]

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::null_mut;

use libc::{c_int, c_uint, socklen_t};

/// No datagram is longer. Pages of the room that no datagram reached are never touched, so they take no memory.
const LONGEST: usize = 64 << 10;
/// Room for the one control message we read and write: a local address, of either family.
const CONTROL: usize = 64;

/// Where a datagram was sent to, which is where its answer must come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Local {
    pub(super) ip: IpAddr,
    /// The interface, for addresses that mean nothing without one; else zero.
    pub(super) interface: u32,
}

/// Room for control messages, aligned as their headers must be.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL]);

/// Room for some datagrams, each with the address of a peer and a local address.
pub(super) struct DatagramBatch {
    room: Box<[u8]>,
    lens: Box<[usize]>,
    peers: Box<[libc::sockaddr_storage]>,
    controls: Box<[Control]>,
    control_lens: Box<[usize]>,
    vectors: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
}

impl DatagramBatch {
    pub(super) fn new(slots: usize) -> Self {
        // SAFETY: all zeroes is a valid value of these plain C structures.
        let (peer, vector, header) = unsafe { (zeroed(), zeroed(), zeroed()) };
        Self {
            room: vec![0; slots * LONGEST].into_boxed_slice(),
            lens: vec![0; slots].into_boxed_slice(),
            peers: vec![peer; slots].into_boxed_slice(),
            controls: vec![Control([0; CONTROL]); slots].into_boxed_slice(),
            control_lens: vec![0; slots].into_boxed_slice(),
            vectors: vec![vector; slots].into_boxed_slice(),
            headers: vec![header; slots].into_boxed_slice(),
        }
    }

    /// Takes what waits at a socket into these slots, from the first on; says how many were taken, fewer than asked only if no more waited.
    pub(super) fn receive(&mut self, socket: impl AsFd, slots: Range<usize>) -> io::Result<usize> {
        for slot in slots.clone() {
            self.lens[slot] = LONGEST;
            self.control_lens[slot] = CONTROL;
            self.lay_out(slot, Peer::Named);
        }
        let (first, count) = self.span(&slots);
        let fd = socket.as_fd().as_raw_fd();
        // SAFETY: `span` gives headers that `lay_out` has just filled with pointers into this value, which is borrowed until the call ends.
        let taken =
            unsafe { libc::recvmmsg(fd, first, count, libc::MSG_DONTWAIT as _, null_mut()) };
        let taken = usize::try_from(taken).map_err(|_| io::Error::last_os_error())?;
        for slot in slots.take(taken) {
            let header = &self.headers[slot];
            self.lens[slot] = (header.msg_len as usize).min(LONGEST);
            // Of another type in every C library.
            let control_len: usize = header.msg_hdr.msg_controllen as _;
            self.control_lens[slot] = control_len.min(CONTROL);
        }
        Ok(taken)
    }

    /// Sends these slots over a connected socket; says how many went before the first failure.
    pub(super) fn send(&mut self, socket: impl AsFd, slots: Range<usize>) -> io::Result<usize> {
        self.send_to(socket, slots, Peer::Connected)
    }

    /// Sends these slots to their peers, from their local addresses; says how many went before the first failure.
    pub(super) fn reply(&mut self, socket: impl AsFd, slots: Range<usize>) -> io::Result<usize> {
        self.send_to(socket, slots, Peer::Named)
    }

    /// The length of a datagram.
    pub(super) fn len(&self, slot: usize) -> usize {
        self.lens[slot]
    }

    /// Who sent it; nothing if that is no internet address.
    pub(super) fn peer(&self, slot: usize) -> Option<SocketAddr> {
        let storage = &raw const self.peers[slot];
        match c_int::from(self.peers[slot].ss_family) {
            libc::AF_INET => {
                // SAFETY: the family says what it is, and the storage is large enough and aligned for either.
                let address = unsafe { &*storage.cast::<libc::sockaddr_in>() };
                let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
                Some(SocketAddrV4::new(ip, u16::from_be(address.sin_port)).into())
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let address = unsafe { &*storage.cast::<libc::sockaddr_in6>() };
                let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
                let port = u16::from_be(address.sin6_port);
                Some(SocketAddrV6::new(ip, port, 0, address.sin6_scope_id).into())
            }
            _ => None,
        }
    }

    /// Where it was sent to, if the socket reports it.
    pub(super) fn local(&self, slot: usize) -> Option<Local> {
        let control = &self.controls[slot].0[..self.control_lens[slot]];
        let (header, data) = control.split_at_checked(size_of::<libc::cmsghdr>())?;
        // SAFETY: the slice is as long as the structure; read unaligned, any bytes are a valid value of it.
        let header: libc::cmsghdr =
            unsafe { header.as_ptr().cast::<libc::cmsghdr>().read_unaligned() };
        match (header.cmsg_level, header.cmsg_type) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                // Index, the address to answer from, the address of the header.
                let from = data.get(4..8)?;
                Some(Local {
                    ip: Ipv4Addr::from(<[u8; 4]>::try_from(from).ok()?).into(),
                    interface: 0,
                })
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let ip = Ipv6Addr::from(<[u8; 16]>::try_from(data.get(..16)?).ok()?);
                let index = <[u8; 4]>::try_from(data.get(16..20)?).ok()?;
                let interface = if ip.is_unicast_link_local() {
                    u32::from_ne_bytes(index)
                } else {
                    0
                };
                Some(Local {
                    ip: ip.into(),
                    interface,
                })
            }
            _ => None,
        }
    }

    /// Addresses a slot: to whom, and from which of our addresses.
    pub(super) fn address(&mut self, slot: usize, peer: SocketAddr, local: Option<Local>) {
        self.write_peer(slot, peer);
        self.control_lens[slot] = local.map_or(0, |local| self.write_control(slot, local));
    }

    fn send_to(&mut self, socket: impl AsFd, slots: Range<usize>, peer: Peer) -> io::Result<usize> {
        for slot in slots.clone() {
            self.lay_out(slot, peer);
        }
        let (first, count) = self.span(&slots);
        let fd = socket.as_fd().as_raw_fd();
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: as in `receive`; the kernel only reads through these pointers, and writes lengths into the headers.
        let sent = unsafe { libc::sendmmsg(fd, first, count, flags as _) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Writes the header of a slot again: nothing is believed to be left of an earlier call.
    fn lay_out(&mut self, slot: usize, peer: Peer) {
        let start = slot * LONGEST;
        let data = &mut self.room[start..start + self.lens[slot]];
        self.vectors[slot] = libc::iovec {
            iov_base: data.as_mut_ptr().cast(),
            iov_len: data.len(),
        };
        let header = &mut self.headers[slot].msg_hdr;
        header.msg_iov = &raw mut self.vectors[slot];
        header.msg_iovlen = 1;
        header.msg_flags = 0;
        match peer {
            Peer::Named => {
                header.msg_name = (&raw mut self.peers[slot]).cast();
                header.msg_namelen = size_of::<libc::sockaddr_storage>() as socklen_t;
                header.msg_control = self.controls[slot].0.as_mut_ptr().cast();
                header.msg_controllen = self.control_lens[slot] as _;
            }
            Peer::Connected => {
                header.msg_name = null_mut();
                header.msg_namelen = 0;
                header.msg_control = null_mut();
                header.msg_controllen = 0;
            }
        }
    }

    /// The headers of these slots, as the calls ask for them.
    fn span(&mut self, slots: &Range<usize>) -> (*mut libc::mmsghdr, c_uint) {
        let headers = &mut self.headers[slots.clone()];
        let count = c_uint::try_from(headers.len()).unwrap_or(c_uint::MAX);
        (headers.as_mut_ptr(), count)
    }

    fn write_peer(&mut self, slot: usize, peer: SocketAddr) {
        let storage = &raw mut self.peers[slot];
        // SAFETY: the storage is large enough and aligned for either kind of address, and all zeroes is a valid value of both.
        unsafe {
            match peer {
                SocketAddr::V4(peer) => {
                    let mut address: libc::sockaddr_in = zeroed();
                    address.sin_family = libc::AF_INET as libc::sa_family_t;
                    address.sin_port = peer.port().to_be();
                    address.sin_addr.s_addr = u32::from(*peer.ip()).to_be();
                    storage.cast::<libc::sockaddr_in>().write(address);
                }
                SocketAddr::V6(peer) => {
                    let mut address: libc::sockaddr_in6 = zeroed();
                    address.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                    address.sin6_port = peer.port().to_be();
                    address.sin6_addr.s6_addr = peer.ip().octets();
                    address.sin6_scope_id = peer.scope_id();
                    storage.cast::<libc::sockaddr_in6>().write(address);
                }
            }
        }
    }

    /// Writes the message that says which address to send from; its length.
    fn write_control(&mut self, slot: usize, local: Local) -> usize {
        let (level, kind, data, len) = match local.ip {
            IpAddr::V4(ip) => {
                let mut data = [0; 20];
                data[4..8].copy_from_slice(&ip.octets());
                (libc::IPPROTO_IP, libc::IP_PKTINFO, data, 12)
            }
            IpAddr::V6(ip) => {
                let mut data = [0; 20];
                data[..16].copy_from_slice(&ip.octets());
                data[16..].copy_from_slice(&local.interface.to_ne_bytes());
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, data, 20)
            }
        };
        // SAFETY: all zeroes is a valid header.
        let mut header: libc::cmsghdr = unsafe { zeroed() };
        header.cmsg_level = level;
        header.cmsg_type = kind;
        header.cmsg_len = (size_of::<libc::cmsghdr>() + len) as _;
        let control = &mut self.controls[slot].0;
        // SAFETY: the room is aligned for a header and longer than one.
        unsafe { control.as_mut_ptr().cast::<libc::cmsghdr>().write(header) };
        control[size_of::<libc::cmsghdr>()..][..len].copy_from_slice(&data[..len]);
        // The room a message takes is a multiple of the alignment.
        (size_of::<libc::cmsghdr>() + len).next_multiple_of(size_of::<usize>())
    }
}

/// Whether the peer of a slot goes into its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    Named,
    Connected,
}
