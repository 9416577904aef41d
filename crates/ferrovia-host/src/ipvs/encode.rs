//! Requests as messages.

use std::net::{IpAddr, SocketAddr};

use ferrovia_core::dialect::ipvs::{IpvsDestination, Scheduler, VirtualServer, VirtualServerKey};
use ferrovia_core::family::Family;

use super::uapi::{MASQUERADE, PERSISTENT, VERSION, attr, command, destination, server};
use crate::netlink::{Request, Writer};

/// One command, for the family of this number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    pub(super) family: u16,
    pub(super) action: Action,
}

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    NewServer(VirtualServer),
    SetServer(VirtualServer),
    DeleteServer(VirtualServerKey),
    NewDestination(VirtualServerKey, IpvsDestination),
    SetDestination(VirtualServerKey, IpvsDestination),
    DeleteDestination(VirtualServerKey, SocketAddr),
    /// A server for packets with a mark, to see whether a scheduler is there.
    NewMark(u32, Scheduler),
    DeleteMark(u32),
}

impl Request for Command {
    fn kind(&self) -> u16 {
        self.family
    }

    fn flags(&self) -> u16 {
        0
    }

    fn write(&self, w: &mut Writer) {
        head(w, self.action.number());
        match &self.action {
            Action::NewServer(server) | Action::SetServer(server) => whole_server(w, server),
            Action::DeleteServer(key) => key_of_server(w, key),
            Action::NewDestination(key, to) | Action::SetDestination(key, to) => {
                key_of_server(w, key);
                whole_destination(w, to);
            }
            Action::DeleteDestination(key, to) => {
                key_of_server(w, key);
                w.nested(attr::DESTINATION, |w| key_of_destination(w, *to));
            }
            Action::NewMark(mark, scheduler) => marked_server(w, *mark, Some(scheduler)),
            Action::DeleteMark(mark) => marked_server(w, *mark, None),
        }
    }
}

impl Action {
    fn number(&self) -> u8 {
        match self {
            Self::NewServer(_) | Self::NewMark(..) => command::NEW_SERVER,
            Self::SetServer(_) => command::SET_SERVER,
            Self::DeleteServer(_) | Self::DeleteMark(_) => command::DELETE_SERVER,
            Self::NewDestination(..) => command::NEW_DESTINATION,
            Self::SetDestination(..) => command::SET_DESTINATION,
            Self::DeleteDestination(..) => command::DELETE_DESTINATION,
        }
    }
}

/// The fixed header of a command.
pub(super) fn head(w: &mut Writer, command: u8) {
    w.raw(&[command, VERSION, 0, 0]);
}

/// The attribute that says which server is meant.
pub(super) fn key_of_server(w: &mut Writer, key: &VirtualServerKey) {
    w.nested(attr::SERVER, |w| write_key(w, key));
}

fn write_key(w: &mut Writer, key: &VirtualServerKey) {
    w.u16(server::FAMILY, family_number(Family::of(key.address)));
    w.u16(server::PROTOCOL, key.protocol.number().into());
    address(w, server::ADDRESS, key.address);
    w.bytes(server::PORT, &key.port.to_be_bytes());
}

fn whole_server(w: &mut Writer, server: &VirtualServer) {
    w.nested(attr::SERVER, |w| {
        write_key(w, &server.key);
        w.text(server::SCHEDULER, server.scheduler.as_str());
        let persistent = server.persistence.map_or(0, |_| PERSISTENT);
        flags(w, server.flags | persistent);
        w.u32(server::TIMEOUT, server.persistence.unwrap_or(0));
        w.u32(server::NETMASK, netmask(Family::of(server.key.address)));
    });
}

fn marked_server(w: &mut Writer, mark: u32, scheduler: Option<&Scheduler>) {
    w.nested(attr::SERVER, |w| {
        w.u16(server::FAMILY, family_number(Family::V4));
        w.u32(server::MARK, mark);
        if let Some(scheduler) = scheduler {
            w.text(server::SCHEDULER, scheduler.as_str());
            flags(w, 0);
            w.u32(server::TIMEOUT, 0);
            w.u32(server::NETMASK, netmask(Family::V4));
        }
    });
}

/// A server's flags; the mask says that all are meant.
fn flags(w: &mut Writer, flags: u32) {
    let mut both = [0; 8];
    let (value, mask) = both.split_at_mut(4);
    value.copy_from_slice(&flags.to_ne_bytes());
    mask.copy_from_slice(&u32::MAX.to_ne_bytes());
    w.bytes(server::FLAGS, &both);
}

fn whole_destination(w: &mut Writer, to: &IpvsDestination) {
    w.nested(attr::DESTINATION, |w| {
        key_of_destination(w, to.address);
        w.u32(destination::METHOD, MASQUERADE);
        w.u32(destination::WEIGHT, to.weight);
        w.u32(destination::UPPER, 0);
        w.u32(destination::LOWER, 0);
    });
}

fn key_of_destination(w: &mut Writer, to: SocketAddr) {
    address(w, destination::ADDRESS, to.ip());
    w.bytes(destination::PORT, &to.port().to_be_bytes());
}

fn address(w: &mut Writer, kind: u16, ip: IpAddr) {
    match ip {
        IpAddr::V4(v4) => w.bytes(kind, &v4.octets()),
        IpAddr::V6(v6) => w.bytes(kind, &v6.octets()),
    }
}

fn family_number(family: Family) -> u16 {
    match family {
        Family::V4 => libc::AF_INET as u16,
        Family::V6 => libc::AF_INET6 as u16,
    }
}

/// A client is one address: all bits count. In IPv6 the number of bits is said, in IPv4 the bits themselves.
fn netmask(family: Family) -> u32 {
    match family {
        Family::V4 => u32::MAX,
        Family::V6 => 128,
    }
}

#[cfg(test)]
mod tests {
    use ferrovia_core::model::Protocol;

    use super::*;
    use crate::netlink::{Header, flags};

    fn hex(action: Action) -> String {
        let command = Command {
            family: 0x1f,
            action,
        };
        let mut writer = Writer::new();
        let header = Header {
            kind: command.kind(),
            flags: flags::REQUEST | flags::ACK,
            seq: 1,
        };
        writer.message(header, |w| command.write(w));
        let bytes = writer.finish().unwrap();
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    const KEY: VirtualServerKey = VirtualServerKey {
        address: IpAddr::V4(std::net::Ipv4Addr::new(10, 96, 0, 1)),
        port: 443,
        protocol: Protocol::Tcp,
    };

    #[test]
    #[cfg(target_endian = "little")]
    fn golden_server() {
        let server = VirtualServer {
            key: KEY,
            scheduler: Scheduler::RR,
            flags: 0,
            persistence: Some(10800),
        };
        assert_eq!(
            hex(Action::NewServer(server)),
            "5c0000001f00050001000000000000000101000048000180060001000200000006000200060000000800030\
             00a6000010600040001bb00000700060072720000 0c00070001000000ffffffff08000800302a000008000\
             900ffffffff"
                .replace(' ', "")
        );
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn golden_destination() {
        let to = IpvsDestination {
            address: "10.244.1.5:6443".parse().unwrap(),
            weight: 1,
        };
        let message = hex(Action::NewDestination(KEY, to));
        assert!(
            message.ends_with(
                "34000280080001000af4010506000200192b000008000300000000000800040001000000\
                 08000500000000000800060000000000"
            ),
            "{message}"
        );
    }
}
