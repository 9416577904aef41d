//! What is told to systemd, if it started us.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Tells it that services are being proxied. It ends whom it waits for in vain, so a failure is worth a warning.
pub(super) fn notify_ready() {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    if let Err(error) = send_ready(&name) {
        tracing::warn!(%error, socket = ?name, "cannot notify systemd");
    }
}

fn send_ready(name: &OsStr) -> io::Result<()> {
    // An at sign stands for the NUL with which names begin that are no files.
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    UnixDatagram::unbound()?.send_to_addr(b"READY=1", &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(listener: &UnixDatagram) -> Vec<u8> {
        let mut buffer = [0; 64];
        let length = listener.recv(&mut buffer).unwrap();
        buffer[..length].to_vec()
    }

    #[test]
    fn a_socket_is_a_file_or_an_abstract_name() {
        let folder = ferrovia_lab::Folder::new();
        let path = folder.join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        send_ready(path.as_os_str()).unwrap();
        assert_eq!(told(&listener), b"READY=1");

        let name = format!("ferrovia-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixDatagram::bind_addr(&address).unwrap();
        send_ready(OsStr::new(&format!("@{name}"))).unwrap();
        assert_eq!(told(&listener), b"READY=1");
    }
}
