//! Carries out the lines of the wiring, which are in the language of `ip -batch`, without starting `ip`.
//!
//! A world has some hundred lines in eight namespaces. A program for each namespace takes user-mode Linux, where programs start slowly,
//! longer than everything else about a world together. Only what the wiring says is understood; anything else is an error.

mod attributes;
mod uapi;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::thread;
use std::time::{Duration, Instant};

use self::attributes::{Attributes, find};
use self::uapi::{
    ACKNOWLEDGE, ADDRESS, ADDRESS_LIFETIME, ADDRESS_LOCAL, ADDRESS_WITHOUT_DETECTION, ANSWER,
    GET_LINK, INFO_DATA, INFO_KIND, INFO_PORT_DATA, INFO_PORT_KIND, LINK_HEADER_LEN, LINK_INFO,
    LINK_MASTER, LINK_NAME, LINK_NAMESPACE, LINK_STATE, LINK_UP, MADE_BY_HAND, MAIN_TABLE,
    NEIGHBOUR, NEIGHBOUR_HARDWARE, NEIGHBOUR_PERMANENT, NEW_ADDRESS, NEW_LINK, NEW_NEIGHBOUR,
    NEW_ONLY, NEW_ROUTE, PORT_HAIRPIN, REQUEST, ROUTE_GATEWAY, ROUTE_LINK, ROUTE_ON_LINK,
    ROUTE_SOURCE, ROUTE_TO, SCOPE_LINK, SCOPE_UNIVERSE, STATE_UP, UNICAST, VETH_PEER,
};
use crate::netns;
use crate::sys;

/// Much longer than any machine takes; only a fault is waited for so long.
const PATIENCE: Duration = Duration::from_secs(30);
/// Length of a message's header.
const HEADER_LEN: usize = 16;

/// Carries out lines in the calling thread's network namespace. The error names the line.
pub(crate) fn run(lines: &str) -> io::Result<()> {
    let mut route = Route::open()?;
    for line in lines.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        route.command(&words).map_err(|error| {
            io::Error::new(error.kind(), format!("ip {}: {error}", line.trim()))
        })?;
    }
    Ok(())
}

/// Waits until links of the calling thread's network namespace carry packets.
///
/// When the second end of a pair comes up, the kernel makes the first one carry a little later, up to a second on older kernels, and loses
/// what is sent by it until then: a call that begins with a lost packet is a second late.
pub(crate) fn wait_until_carrying(links: &[String]) -> io::Result<()> {
    let mut route = Route::open()?;
    let deadline = Instant::now() + PATIENCE;
    for link in links {
        while !route.is_carrying(link)? {
            if deadline < Instant::now() {
                return Err(io::Error::other(format!("the link {link} does not carry")));
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
    Ok(())
}

/// A conversation about one namespace's links, addresses and routes.
struct Route {
    /// A netlink socket; for the standard library anything that sends and receives datagrams is UDP.
    socket: UdpSocket,
    /// The numbers of links, by name.
    numbers: HashMap<String, u32>,
}

impl Route {
    fn open() -> io::Result<Self> {
        Ok(Self {
            socket: sys::route_socket()?.into(),
            numbers: HashMap::new(),
        })
    }

    fn command(&mut self, words: &[&str]) -> io::Result<()> {
        match *words {
            ["link", "add", name, "type", "bridge"] => {
                let info = Attributes::default().text(INFO_KIND, "bridge");
                let link = Attributes::behind(&link_header(0, 0)).text(LINK_NAME, name);
                self.ask(NEW_LINK, NEW_ONLY, link.nested(LINK_INFO, &info))
            }
            [
                "link",
                "add",
                name,
                "netns",
                namespace,
                "type",
                "veth",
                "peer",
                "name",
                peer,
                "netns",
                peers_namespace,
            ] => self.add_pair((name, namespace), (peer, peers_namespace)),
            ["link", "set", name, "up"] => {
                let header = link_header(self.number(name)?, LINK_UP);
                self.ask(NEW_LINK, 0, Attributes::behind(&header))
            }
            ["link", "set", name, "master", master] => {
                let master = self.number(master)?;
                let link = Attributes::behind(&link_header(self.number(name)?, 0));
                self.ask(NEW_LINK, 0, link.with(LINK_MASTER, &master.to_ne_bytes()))
            }
            ["link", "set", name, "type", "bridge_slave", "hairpin", "on"] => {
                let hairpin = Attributes::default().with(PORT_HAIRPIN, &[1]);
                let info = Attributes::default()
                    .text(INFO_PORT_KIND, "bridge")
                    .nested(INFO_PORT_DATA, &hairpin);
                let link = Attributes::behind(&link_header(self.number(name)?, 0));
                self.ask(NEW_LINK, 0, link.nested(LINK_INFO, &info))
            }
            ["addr", "add", address, "dev", name, ref options @ ..] => {
                self.add_address(address, name, options)
            }
            ["route", "add", to, ref options @ ..] => self.add_route(to, options),
            [
                "neigh",
                "add",
                address,
                "lladdr",
                hardware,
                "dev",
                name,
                "nud",
                "permanent",
            ] => self.add_neighbour(address, hardware, name),
            _ => Err(unknown()),
        }
    }

    /// Two ends of a link, each with its namespace.
    fn add_pair(&mut self, one: (&str, &str), other: (&str, &str)) -> io::Result<()> {
        let open = |name| File::open(netns::path(name));
        let (one_in, other_in) = (open(one.1)?, open(other.1)?);
        let end = |name, namespace: &File| {
            Attributes::behind(&link_header(0, 0))
                .text(LINK_NAME, name)
                .with(LINK_NAMESPACE, &namespace.as_raw_fd().to_ne_bytes())
        };
        let peer = Attributes::default().nested(VETH_PEER, &end(other.0, &other_in));
        let info = Attributes::default()
            .text(INFO_KIND, "veth")
            .nested(INFO_DATA, &peer);
        let link = end(one.0, &one_in).nested(LINK_INFO, &info);
        self.ask(NEW_LINK, NEW_ONLY, link)
    }

    fn add_address(&mut self, address: &str, name: &str, options: &[&str]) -> io::Result<()> {
        let (address, length) = prefix(address)?;
        let (mut flags, mut lifetime) = (0, None);
        let mut rest = options;
        while !rest.is_empty() {
            rest = match rest {
                ["nodad", rest @ ..] => {
                    flags |= ADDRESS_WITHOUT_DETECTION;
                    rest
                }
                ["preferred_lft", "0", rest @ ..] => {
                    // Never preferred, valid for ever, and two times that only the kernel sets.
                    lifetime = Some([0, u32::MAX, 0, 0].map(u32::to_ne_bytes).concat());
                    rest
                }
                _ => return Err(unknown()),
            };
        }
        let number = self.number(name)?.to_ne_bytes();
        let header = [&[family(address), length, flags, 0][..], &number].concat();
        let mut message = Attributes::behind(&header)
            .with(ADDRESS_LOCAL, &bytes(address))
            .with(ADDRESS, &bytes(address));
        if let Some(lifetime) = lifetime {
            message = message.with(ADDRESS_LIFETIME, &lifetime);
        }
        self.ask(NEW_ADDRESS, NEW_ONLY, message)
    }

    fn add_route(&mut self, to: &str, options: &[&str]) -> io::Result<()> {
        let to = match to {
            "default" => None,
            to => Some(prefix(to)?),
        };
        let (mut gateway, mut source, mut link, mut flags) = (None, None, None, 0);
        let mut rest = options;
        while !rest.is_empty() {
            rest = match rest {
                ["via", address, rest @ ..] => {
                    gateway = Some(parse(address)?);
                    rest
                }
                ["src", address, rest @ ..] => {
                    source = Some(parse(address)?);
                    rest
                }
                ["dev", name, rest @ ..] => {
                    link = Some(self.number(name)?);
                    rest
                }
                ["onlink", rest @ ..] => {
                    flags |= ROUTE_ON_LINK;
                    rest
                }
                _ => return Err(unknown()),
            };
        }
        let of = to.map(|(address, _)| address).or(gateway);
        let family = family(of.ok_or_else(unknown)?);
        let scope = match gateway {
            None if i32::from(family) == libc::AF_INET => SCOPE_LINK,
            _ => SCOPE_UNIVERSE,
        };
        let length = to.map_or(0, |(_, length)| length);
        let header = [
            family,
            length,
            0,
            0,
            MAIN_TABLE,
            MADE_BY_HAND,
            scope,
            UNICAST,
        ];
        let header = [&header[..], &flags.to_ne_bytes()].concat();
        let to = to.map(|(address, _)| bytes(address));
        let link = link.map(|number| number.to_ne_bytes().to_vec());
        let attributes = [
            (ROUTE_TO, to),
            (ROUTE_LINK, link),
            (ROUTE_GATEWAY, gateway.map(bytes)),
            (ROUTE_SOURCE, source.map(bytes)),
        ];
        let given = attributes
            .into_iter()
            .filter_map(|(kind, value)| Some((kind, value?)));
        let message = given.fold(Attributes::behind(&header), |message, (kind, value)| {
            message.with(kind, &value)
        });
        self.ask(NEW_ROUTE, NEW_ONLY, message)
    }

    fn add_neighbour(&mut self, address: &str, hardware: &str, name: &str) -> io::Result<()> {
        let address = parse(address)?;
        let hardware: Result<Vec<u8>, _> = hardware
            .split(':')
            .map(|byte| u8::from_str_radix(byte, 16))
            .collect();
        let hardware = hardware.map_err(|_| unknown())?;
        let number = self.number(name)?.to_ne_bytes();
        let state = NEIGHBOUR_PERMANENT.to_ne_bytes();
        let header = [&[family(address), 0, 0, 0][..], &number, &state, &[0, 0]].concat();
        let message = Attributes::behind(&header)
            .with(NEIGHBOUR, &bytes(address))
            .with(NEIGHBOUR_HARDWARE, &hardware);
        self.ask(NEW_NEIGHBOUR, NEW_ONLY, message)
    }

    /// The number of a link.
    fn number(&mut self, name: &str) -> io::Result<u32> {
        if let Some(number) = self.numbers.get(name) {
            return Ok(*number);
        }
        let number = number_at(&self.link(name)?, HEADER_LEN + 4)?;
        self.numbers.insert(name.to_owned(), number);
        Ok(number)
    }

    fn is_carrying(&mut self, name: &str) -> io::Result<bool> {
        let link = self.link(name)?;
        let attributes = link.get(HEADER_LEN + LINK_HEADER_LEN..).unwrap_or_default();
        Ok(find(attributes, LINK_STATE) == Some(&[STATE_UP]))
    }

    /// What the kernel says of a link.
    fn link(&mut self, name: &str) -> io::Result<Vec<u8>> {
        let question = Attributes::behind(&link_header(0, 0)).text(LINK_NAME, name);
        self.exchange(GET_LINK, 0, question)
    }

    /// Asks the kernel to do something.
    fn ask(&mut self, kind: u16, flags: u16, message: Attributes) -> io::Result<()> {
        self.exchange(kind, flags | ACKNOWLEDGE, message).map(drop)
    }

    /// Sends a message; what is answered, unless that is a refusal.
    fn exchange(&mut self, kind: u16, flags: u16, message: Attributes) -> io::Result<Vec<u8>> {
        let message = message.into_bytes();
        let length = u32::try_from(HEADER_LEN + message.len()).map_err(io::Error::other)?;
        let mut sent = length.to_ne_bytes().to_vec();
        sent.extend(kind.to_ne_bytes());
        sent.extend((flags | REQUEST).to_ne_bytes());
        // Each question is answered before the next is asked, so they need no numbers.
        sent.extend([0; 8]);
        sent.extend(message);
        self.socket.send(&sent)?;
        let mut answer = vec![0; 32 << 10];
        let length = self.socket.recv(&mut answer)?;
        answer.truncate(length);
        if answer.get(4..6) != Some(&ANSWER.to_ne_bytes()) {
            return Ok(answer);
        }
        match number_at(&answer, HEADER_LEN)?.cast_signed() {
            0 => Ok(answer),
            errno => Err(io::Error::from_raw_os_error(-errno)),
        }
    }
}

/// The header of messages about links; the flags given are set, the others left as they are.
fn link_header(number: u32, flags: u32) -> Vec<u8> {
    [0, number, flags, flags].map(u32::to_ne_bytes).concat()
}

fn number_at(message: &[u8], at: usize) -> io::Result<u32> {
    let bytes = message
        .get(at..at + 4)
        .and_then(|four| four.try_into().ok());
    bytes.map(u32::from_ne_bytes).ok_or_else(unknown)
}

fn prefix(text: &str) -> io::Result<(IpAddr, u8)> {
    let (address, length) = text.split_once('/').ok_or_else(unknown)?;
    Ok((parse(address)?, length.parse().map_err(|_| unknown())?))
}

fn parse(address: &str) -> io::Result<IpAddr> {
    address.parse().map_err(|_| unknown())
}

fn family(address: IpAddr) -> u8 {
    let family = match address {
        IpAddr::V4(_) => libc::AF_INET,
        IpAddr::V6(_) => libc::AF_INET6,
    };
    family as u8
}

fn bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// The wiring says something that is not understood here, or the kernel does.
fn unknown() -> io::Error {
    io::Error::from(io::ErrorKind::InvalidInput)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_understood_is_said_with_its_line() {
        for line in [
            "link frobnicate eth0",
            "route add default dev lo",
            "addr add 1 dev lo",
        ] {
            let error = run(line).unwrap_err().to_string();
            assert!(error.starts_with(&format!("ip {line}: ")), "{error}");
        }
    }
}
