//! Requests as messages.

use std::net::{IpAddr, SocketAddr};

use ferrovia_core::dialect::ipvs::{IpvsDestination, Scheduler, VirtualServer, VirtualServerKey};
use ferrovia_core::family::Family;
use ferrovia_netlink::uapi::ip_vs::{
    IP_VS_CONN_F_MASQ, IP_VS_SVC_F_PERSISTENT, IPVS_CMD_ATTR_DEST, IPVS_CMD_ATTR_SERVICE,
    IPVS_CMD_DEL_DEST, IPVS_CMD_DEL_SERVICE, IPVS_CMD_NEW_DEST, IPVS_CMD_NEW_SERVICE,
    IPVS_CMD_SET_DEST, IPVS_CMD_SET_SERVICE, IPVS_DEST_ATTR_ADDR, IPVS_DEST_ATTR_FWD_METHOD,
    IPVS_DEST_ATTR_L_THRESH, IPVS_DEST_ATTR_PORT, IPVS_DEST_ATTR_U_THRESH, IPVS_DEST_ATTR_WEIGHT,
    IPVS_GENL_VERSION, IPVS_SVC_ATTR_ADDR, IPVS_SVC_ATTR_AF, IPVS_SVC_ATTR_FLAGS,
    IPVS_SVC_ATTR_FWMARK, IPVS_SVC_ATTR_NETMASK, IPVS_SVC_ATTR_PORT, IPVS_SVC_ATTR_PROTOCOL,
    IPVS_SVC_ATTR_SCHED_NAME, IPVS_SVC_ATTR_TIMEOUT,
};
use ferrovia_netlink::{Request, Writer, genetlink};

/// One command, for the family of this number.
#[derive(Clone, Copy, Debug)]
pub(super) struct IpvsRequest {
    pub(super) family: u16,
    pub(super) action: IpvsAction,
}

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub(super) enum IpvsAction {
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

impl Request for IpvsRequest {
    fn kind(&self) -> u16 {
        self.family
    }

    fn flags(&self) -> u16 {
        0
    }

    fn write(&self, w: &mut Writer) {
        head(w, self.action.number());
        match &self.action {
            IpvsAction::NewServer(server) | IpvsAction::SetServer(server) => {
                whole_server(w, server);
            }
            IpvsAction::DeleteServer(key) => key_of_server(w, key),
            IpvsAction::NewDestination(key, to) | IpvsAction::SetDestination(key, to) => {
                key_of_server(w, key);
                whole_destination(w, to);
            }
            IpvsAction::DeleteDestination(key, to) => {
                key_of_server(w, key);
                w.nested(IPVS_CMD_ATTR_DEST, |w| key_of_destination(w, *to));
            }
            IpvsAction::NewMark(mark, scheduler) => marked_server(w, *mark, Some(scheduler)),
            IpvsAction::DeleteMark(mark) => marked_server(w, *mark, None),
        }
    }
}

impl IpvsAction {
    fn number(&self) -> u8 {
        match self {
            Self::NewServer(_) | Self::NewMark(..) => IPVS_CMD_NEW_SERVICE,
            Self::SetServer(_) => IPVS_CMD_SET_SERVICE,
            Self::DeleteServer(_) | Self::DeleteMark(_) => IPVS_CMD_DEL_SERVICE,
            Self::NewDestination(..) => IPVS_CMD_NEW_DEST,
            Self::SetDestination(..) => IPVS_CMD_SET_DEST,
            Self::DeleteDestination(..) => IPVS_CMD_DEL_DEST,
        }
    }
}

/// The fixed header of a command.
pub(super) fn head(w: &mut Writer, command: u8) {
    w.raw(&genetlink::header(command, IPVS_GENL_VERSION));
}

/// The attribute that says which server is meant.
pub(super) fn key_of_server(w: &mut Writer, key: &VirtualServerKey) {
    w.nested(IPVS_CMD_ATTR_SERVICE, |w| write_key(w, key));
}

fn write_key(w: &mut Writer, key: &VirtualServerKey) {
    w.u16(IPVS_SVC_ATTR_AF, family_number(Family::of(key.address)));
    w.u16(IPVS_SVC_ATTR_PROTOCOL, key.protocol.number().into());
    address(w, IPVS_SVC_ATTR_ADDR, key.address);
    w.bytes(IPVS_SVC_ATTR_PORT, &key.port.to_be_bytes());
}

fn whole_server(w: &mut Writer, server: &VirtualServer) {
    w.nested(IPVS_CMD_ATTR_SERVICE, |w| {
        write_key(w, &server.key);
        w.text(IPVS_SVC_ATTR_SCHED_NAME, server.scheduler.as_str());
        let persistent = server.persistence.map_or(0, |_| IP_VS_SVC_F_PERSISTENT);
        flags(w, server.flags | persistent);
        w.u32(IPVS_SVC_ATTR_TIMEOUT, server.persistence.unwrap_or(0));
        w.u32(
            IPVS_SVC_ATTR_NETMASK,
            netmask(Family::of(server.key.address)),
        );
    });
}

fn marked_server(w: &mut Writer, mark: u32, scheduler: Option<&Scheduler>) {
    w.nested(IPVS_CMD_ATTR_SERVICE, |w| {
        w.u16(IPVS_SVC_ATTR_AF, family_number(Family::V4));
        w.u32(IPVS_SVC_ATTR_FWMARK, mark);
        if let Some(scheduler) = scheduler {
            w.text(IPVS_SVC_ATTR_SCHED_NAME, scheduler.as_str());
            flags(w, 0);
            w.u32(IPVS_SVC_ATTR_TIMEOUT, 0);
            w.u32(IPVS_SVC_ATTR_NETMASK, netmask(Family::V4));
        }
    });
}

/// A server's flags; the mask says that all are meant.
fn flags(w: &mut Writer, flags: u32) {
    let mut both = [0; 8];
    let (value, mask) = both.split_at_mut(4);
    value.copy_from_slice(&flags.to_ne_bytes());
    mask.copy_from_slice(&u32::MAX.to_ne_bytes());
    w.bytes(IPVS_SVC_ATTR_FLAGS, &both);
}

fn whole_destination(w: &mut Writer, to: &IpvsDestination) {
    w.nested(IPVS_CMD_ATTR_DEST, |w| {
        key_of_destination(w, to.address);
        w.u32(IPVS_DEST_ATTR_FWD_METHOD, IP_VS_CONN_F_MASQ);
        w.u32(IPVS_DEST_ATTR_WEIGHT, to.weight);
        w.u32(IPVS_DEST_ATTR_U_THRESH, 0);
        w.u32(IPVS_DEST_ATTR_L_THRESH, 0);
    });
}

fn key_of_destination(w: &mut Writer, to: SocketAddr) {
    address(w, IPVS_DEST_ATTR_ADDR, to.ip());
    w.bytes(IPVS_DEST_ATTR_PORT, &to.port().to_be_bytes());
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
    use ferrovia_netlink::Header;
    use ferrovia_netlink::uapi::netlink::{NLM_F_ACK, NLM_F_REQUEST};

    use super::*;

    fn hex(action: IpvsAction) -> String {
        let command = IpvsRequest {
            family: 0x1f,
            action,
        };
        let mut writer = Writer::new();
        let header = Header {
            kind: command.kind(),
            flags: NLM_F_REQUEST | NLM_F_ACK,
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
            hex(IpvsAction::NewServer(server)),
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
        let message = hex(IpvsAction::NewDestination(KEY, to));
        assert!(
            message.ends_with(
                "34000280080001000af4010506000200192b000008000300000000000800040001000000\
                 08000500000000000800060000000000"
            ),
            "{message}"
        );
    }
}
