//! Sockets that listen, for one family or for both.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// How many clients may wait to be taken in.
const BACKLOG: i32 = 256;

/// Listens on an address. The IPv4 wildcard means both families where there are two, as it does to kube-proxy.
///
/// # Errors
/// If a system call fails, most likely because the port is taken or the address is not ours.
pub(super) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    if !address.ip().is_unspecified() {
        return listen_one_family(address);
    }
    let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), address.port());
    match open(any, false) {
        Err(error) if address.is_ipv4() && is_without_ipv6(&error) => listen_one_family(address),
        other => other,
    }
}

/// Listens on an address, and not on the other family even if it is a wildcard.
///
/// # Errors
/// As [`listen`].
pub(super) fn listen_one_family(address: SocketAddr) -> io::Result<TcpListener> {
    open(address, true)
}

fn open(address: SocketAddr, only_one_family: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking().cloexec(),
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(only_one_family)?;
    }
    // Connections of a proxy that ended a moment ago do not keep this one from starting.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// The kernel was built or started without IPv6, or it is turned off on all interfaces.
fn is_without_ipv6(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL)
    )
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    fn connects(address: &str, port: u16) -> bool {
        TcpStream::connect((address, port)).is_ok()
    }

    #[test]
    fn a_wildcard_is_for_both_families() {
        for wildcard in ["0.0.0.0:0", "[::]:0"] {
            let listener = listen(wildcard.parse().unwrap()).unwrap();
            let port = listener.local_addr().unwrap().port();
            assert!(connects("127.0.0.1", port), "{wildcard}");
            assert!(connects("::1", port), "{wildcard}");
        }
    }

    #[test]
    fn one_family_leaves_the_other_alone() {
        let v6 = listen_one_family("[::]:0".parse().unwrap()).unwrap();
        let port = v6.local_addr().unwrap().port();
        assert!(connects("::1", port) && !connects("127.0.0.1", port));
        let v4 = listen_one_family(SocketAddr::new([0, 0, 0, 0].into(), port)).unwrap();
        assert!(connects("127.0.0.1", port), "both can have the same port");
        drop(v6);
        assert!(!connects("::1", port));
        drop(v4);
    }
}
