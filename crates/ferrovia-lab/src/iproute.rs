//! Carries out the lines of the wiring, which are in the language of `ip -batch`, without starting `ip`.
//!
//! A world has some hundred lines in eight namespaces. A program for each namespace takes user-mode Linux, where programs start slowly,
//! longer than everything else about a world together. Only what the wiring says is understood; anything else is an error.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd as _;
use std::thread;
use std::time::{Duration, Instant};

use ferrovia_netlink::rtnetlink::{
    LINK_HEADER_LEN, address_header, deprecated_address_lifetime, find_link, link_header,
};
use ferrovia_netlink::uapi::if_addr::{IFA_ADDRESS, IFA_CACHEINFO, IFA_F_NODAD, IFA_LOCAL};
use ferrovia_netlink::uapi::if_link::{
    IFLA_BRPORT_MODE, IFLA_IFNAME, IFLA_INFO_DATA, IFLA_INFO_KIND, IFLA_INFO_SLAVE_DATA,
    IFLA_INFO_SLAVE_KIND, IFLA_LINKINFO, IFLA_MASTER, IFLA_NET_NS_FD, IFLA_OPERSTATE,
};
use ferrovia_netlink::uapi::neighbour::{NDA_DST, NDA_LLADDR, NUD_PERMANENT};
use ferrovia_netlink::uapi::netlink::{NLM_F_CREATE, NLM_F_EXCL};
use ferrovia_netlink::uapi::rtnetlink::{
    RT_SCOPE_LINK, RT_SCOPE_UNIVERSE, RT_TABLE_MAIN, RTA_DST, RTA_GATEWAY, RTA_OIF, RTA_PREFSRC,
    RTM_GETLINK, RTM_NEWADDR, RTM_NEWLINK, RTM_NEWNEIGH, RTM_NEWROUTE, RTN_UNICAST, RTNH_F_ONLINK,
    RTPROT_BOOT,
};
use ferrovia_netlink::uapi::veth::VETH_INFO_PEER;
use ferrovia_netlink::{Attr, Attrs, Error, Protocol, Socket, Writer};

use crate::netns;

/// How long to wait for links to come up. Much longer than any machine takes: only a bug exhausts it.
const CARRIER_TIMEOUT: Duration = Duration::from_secs(30);
/// New objects only: an existing one is an error.
const NEW_ONLY: u16 = NLM_F_CREATE | NLM_F_EXCL;

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
    let deadline = Instant::now() + CARRIER_TIMEOUT;
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

/// Links, addresses and routes of one namespace.
struct Route {
    socket: Socket,
    /// Interface indexes by name.
    indexes: HashMap<String, u32>,
}

impl Route {
    fn open() -> io::Result<Self> {
        Ok(Self {
            socket: Socket::open(Protocol::Route).map_err(system_error)?,
            indexes: HashMap::new(),
        })
    }

    fn command(&mut self, words: &[&str]) -> io::Result<()> {
        match *words {
            ["link", "add", name, "type", "bridge"] => self.request(RTM_NEWLINK, NEW_ONLY, |w| {
                w.raw(&link_header(0, 0));
                w.text(IFLA_IFNAME, name);
                w.nested(IFLA_LINKINFO, |w| w.text(IFLA_INFO_KIND, "bridge"));
            }),
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
                let header = link_header(self.index(name)?, libc::IFF_UP as u32);
                self.request(RTM_NEWLINK, 0, |w| w.raw(&header))
            }
            ["link", "set", name, "master", master] => {
                let (index, master) = (self.index(name)?, self.index(master)?);
                self.request(RTM_NEWLINK, 0, |w| {
                    w.raw(&link_header(index, 0));
                    w.u32(IFLA_MASTER, master);
                })
            }
            ["link", "set", name, "type", "bridge_slave", "hairpin", "on"] => {
                let index = self.index(name)?;
                self.request(RTM_NEWLINK, 0, |w| {
                    w.raw(&link_header(index, 0));
                    w.nested(IFLA_LINKINFO, |w| {
                        w.text(IFLA_INFO_SLAVE_KIND, "bridge");
                        w.nested(IFLA_INFO_SLAVE_DATA, |w| w.bytes(IFLA_BRPORT_MODE, &[1]));
                    });
                })
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
        let end = |w: &mut Writer, name, namespace: &File| {
            w.raw(&link_header(0, 0));
            w.text(IFLA_IFNAME, name);
            w.bytes(IFLA_NET_NS_FD, &namespace.as_raw_fd().to_ne_bytes());
        };
        self.request(RTM_NEWLINK, NEW_ONLY, |w| {
            end(w, one.0, &one_in);
            w.nested(IFLA_LINKINFO, |w| {
                w.text(IFLA_INFO_KIND, "veth");
                w.nested(IFLA_INFO_DATA, |w| {
                    w.nested(VETH_INFO_PEER, |w| end(w, other.0, &other_in));
                });
            });
        })
    }

    fn add_address(&mut self, address: &str, name: &str, options: &[&str]) -> io::Result<()> {
        let (address, length) = prefix(address)?;
        let (mut flags, mut lifetime) = (0, None);
        let mut rest = options;
        while !rest.is_empty() {
            rest = match rest {
                ["nodad", rest @ ..] => {
                    flags |= IFA_F_NODAD;
                    rest
                }
                ["preferred_lft", "0", rest @ ..] => {
                    lifetime = Some(deprecated_address_lifetime());
                    rest
                }
                _ => return Err(unknown()),
            };
        }
        let header = address_header(family(address), length, flags, self.index(name)?);
        self.request(RTM_NEWADDR, NEW_ONLY, |w| {
            w.raw(&header);
            w.bytes(IFA_LOCAL, &bytes(address));
            w.bytes(IFA_ADDRESS, &bytes(address));
            if let Some(lifetime) = lifetime {
                w.bytes(IFA_CACHEINFO, &lifetime);
            }
        })
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
                    link = Some(self.index(name)?);
                    rest
                }
                ["onlink", rest @ ..] => {
                    flags |= RTNH_F_ONLINK;
                    rest
                }
                _ => return Err(unknown()),
            };
        }
        let of = to.map(|(address, _)| address).or(gateway);
        let family = family(of.ok_or_else(unknown)?);
        let scope = match gateway {
            None if i32::from(family) == libc::AF_INET => RT_SCOPE_LINK,
            _ => RT_SCOPE_UNIVERSE,
        };
        let length = to.map_or(0, |(_, length)| length);
        let header = [
            family,
            length,
            0,
            0,
            RT_TABLE_MAIN,
            RTPROT_BOOT,
            scope,
            RTN_UNICAST,
        ];
        self.request(RTM_NEWROUTE, NEW_ONLY, |w| {
            w.raw(&header);
            w.raw(&flags.to_ne_bytes());
            if let Some((address, _)) = to {
                w.bytes(RTA_DST, &bytes(address));
            }
            if let Some(index) = link {
                w.u32(RTA_OIF, index);
            }
            if let Some(gateway) = gateway {
                w.bytes(RTA_GATEWAY, &bytes(gateway));
            }
            if let Some(source) = source {
                w.bytes(RTA_PREFSRC, &bytes(source));
            }
        })
    }

    fn add_neighbour(&mut self, address: &str, hardware: &str, name: &str) -> io::Result<()> {
        let address = parse(address)?;
        let hardware: Result<Vec<u8>, _> = hardware
            .split(':')
            .map(|byte| u8::from_str_radix(byte, 16))
            .collect();
        let hardware = hardware.map_err(|_| unknown())?;
        let index = self.index(name)?.to_ne_bytes();
        let state = NUD_PERMANENT.to_ne_bytes();
        self.request(RTM_NEWNEIGH, NEW_ONLY, |w| {
            w.raw(&[family(address), 0, 0, 0]);
            w.raw(&index);
            w.raw(&state);
            w.raw(&[0, 0]);
            w.bytes(NDA_DST, &bytes(address));
            w.bytes(NDA_LLADDR, &hardware);
        })
    }

    fn index(&mut self, name: &str) -> io::Result<u32> {
        if let Some(index) = self.indexes.get(name) {
            return Ok(*index);
        }
        let (index, _) = find_link(&mut self.socket, name).map_err(system_error)?;
        self.indexes.insert(name.to_owned(), index);
        Ok(index)
    }

    fn is_carrying(&mut self, name: &str) -> io::Result<bool> {
        let state = self.socket.query(
            RTM_GETLINK,
            |w| {
                w.raw(&link_header(0, 0));
                w.text(IFLA_IFNAME, name);
            },
            |message| {
                let attrs = Attrs::of(message, LINK_HEADER_LEN);
                Some(attrs.get(IFLA_OPERSTATE).and_then(Attr::u8))
            },
        );
        Ok(state.map_err(system_error)?.map(i32::from) == Some(libc::IF_OPER_UP))
    }

    fn request(&mut self, kind: u16, flags: u16, body: impl FnOnce(&mut Writer)) -> io::Result<()> {
        self.socket.request(kind, flags, body).map_err(system_error)
    }
}

/// An error with the kind of its error number, by which callers tell what is missing.
fn system_error(error: Error) -> io::Error {
    match error.errno() {
        Some(errno) => io::Error::from_raw_os_error(errno),
        None => io::Error::other(error),
    }
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

/// A line of the wiring is not understood.
fn unknown() -> io::Error {
    io::Error::from(io::ErrorKind::InvalidInput)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_line_is_quoted_in_the_error() {
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
