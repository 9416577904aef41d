//! Packets from spoofed addresses, as an attacker sends them.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

use crate::sys;

const IP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
const UDP: u8 = 17;
const SOURCE_PORT: u16 = 4000;

/// Sends an empty UDP packet from each of these addresses, from the calling thread's namespace.
///
/// # Errors
/// If the kernel rejects a packet, or without the right to send it.
pub fn spoof_udp(sources: impl IntoIterator<Item = Ipv4Addr>, to: SocketAddrV4) -> io::Result<()> {
    let socket = UdpSocket::from(sys::raw_sender()?);
    let mut packet = [0; IP_HEADER + UDP_HEADER];
    packet[0] = 0x45;
    packet[8] = 64;
    packet[9] = UDP;
    packet[16..20].copy_from_slice(&to.ip().octets());
    packet[20..22].copy_from_slice(&SOURCE_PORT.to_be_bytes());
    packet[22..24].copy_from_slice(&to.port().to_be_bytes());
    packet[24..26].copy_from_slice(&(UDP_HEADER as u16).to_be_bytes());
    for source in sources {
        // The kernel fills in lengths and the header checksum; UDP over IPv4 needs no checksum.
        packet[12..16].copy_from_slice(&source.octets());
        socket.send_to(&packet, SocketAddrV4::new(*to.ip(), 0))?;
    }
    Ok(())
}
