//! Who listens on which port, as listed in `/proc`.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ferrovia_core::model::Protocol;

use super::processes;

/// The kernel's number of the state in which a TCP socket waits for connections.
const TCP_LISTEN: &str = "0A";
/// The same for UDP: a socket without a peer.
const UDP_OPEN: &str = "07";

/// A socket that takes new connections, or packets from anyone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListeningSocket {
    pub protocol: Protocol,
    /// The address it is bound to; unspecified for all of them.
    pub address: IpAddr,
    pub port: u16,
    /// The kernel's number for it, by which its process can be found.
    pub inode: u64,
}

/// The sockets of this thread's network namespace that listen.
///
/// # Errors
/// If a list cannot be read. One of a family that the kernel does not have is left out.
pub fn listeners() -> io::Result<Vec<ListeningSocket>> {
    let mut found = Vec::new();
    for (file, protocol) in [
        ("tcp", Protocol::Tcp),
        ("tcp6", Protocol::Tcp),
        ("udp", Protocol::Udp),
        ("udp6", Protocol::Udp),
    ] {
        match fs::read_to_string(format!("/proc/thread-self/net/{file}")) {
            Ok(table) => found.extend(table.lines().filter_map(|line| parse(line, protocol))),
            Err(error) if error.kind() == io::ErrorKind::NotFound && file.ends_with('6') => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// The processes that hold these sockets, as `name (pid 7)`. Those of other users are only found with the right to look at them.
pub fn owners(inodes: &[u64]) -> HashMap<u64, String> {
    let wanted: HashMap<String, u64> = inodes
        .iter()
        .map(|inode| (format!("socket:[{inode}]"), *inode))
        .collect();
    let mut owners = HashMap::new();
    if wanted.is_empty() {
        return owners;
    }
    for process in processes::running() {
        let Ok(files) = fs::read_dir(format!("/proc/{}/fd", process.pid)) else {
            continue;
        };
        for file in files.flatten() {
            let target = fs::read_link(file.path()).ok();
            let inode = target.and_then(|target| wanted.get(target.to_str()?));
            if let Some(inode) = inode {
                owners.insert(*inode, process.to_string());
            }
        }
    }
    owners
}

fn parse(line: &str, protocol: Protocol) -> Option<ListeningSocket> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let wanted = match protocol {
        Protocol::Tcp => TCP_LISTEN,
        _ => UDP_OPEN,
    };
    if *fields.get(3)? != wanted {
        return None;
    }
    let (address, port) = fields.get(1)?.split_once(':')?;
    Some(ListeningSocket {
        protocol,
        address: parse_address(address)?,
        port: u16::from_str_radix(port, 16).ok()?,
        inode: fields.get(9)?.parse().ok()?,
    })
}

/// Words of 32 bits, each printed as the number that this machine takes the bytes for.
fn parse_address(text: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let word = u32::from_str_radix(text.get(at..at + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let mut bytes = [0; 16];
            for (at, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(at * 8)?);
            }
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

#[cfg(all(test, target_endian = "little"))]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_are_read_and_others_are_not() {
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0";
        let listener = parse(line, Protocol::Tcp).unwrap();
        assert_eq!(listener.address, IpAddr::from([127, 0, 0, 1]));
        assert_eq!((listener.port, listener.inode), (8080, 4711));
        assert_eq!(parse(&line.replace(" 0A ", " 01 "), Protocol::Tcp), None);
        assert_eq!(parse(line, Protocol::Udp), None);
        for nonsense in [
            "",
            "sl local_address rem_address st",
            "0: zz:zz x 0A",
            "0: 01:1 x 0A a a a a a 1",
        ] {
            assert_eq!(parse(nonsense, Protocol::Tcp), None, "{nonsense:?}");
        }
    }

    #[test]
    fn ipv6_addresses_come_in_words() {
        assert_eq!(
            parse_address("00000000000000000000000001000000"),
            Some(IpAddr::from(Ipv6Addr::LOCALHOST))
        );
        assert_eq!(
            parse_address("B80D0120000000000000000001000000"),
            "2001:db8::1".parse().ok()
        );
    }

    #[test]
    fn a_listener_of_ours_is_found_with_its_owner() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let all = listeners().unwrap();
        let ours = all.iter().find(|one| one.port == port).unwrap();
        let owners = owners(&[ours.inode]);
        let pid = format!("(pid {})", std::process::id());
        assert!(owners[&ours.inode].ends_with(&pid), "{owners:?}");
    }
}
