//! One entry of the table, as the kernel describes it and as it must be named to be deleted.

use std::net::SocketAddr;

use ferrovia_core::family::Family;
use ferrovia_core::model::Protocol;
use ferrovia_netlink::uapi::nfnetlink_conntrack::{
    CTA_ID, CTA_IP_V4_DST, CTA_IP_V4_SRC, CTA_IP_V6_DST, CTA_IP_V6_SRC, CTA_PROTO_DST_PORT,
    CTA_PROTO_NUM, CTA_PROTO_SRC_PORT, CTA_TUPLE_IP, CTA_TUPLE_ORIG, CTA_TUPLE_PROTO,
    CTA_TUPLE_REPLY, CTA_ZONE, IPCTNL_MSG_CT_NEW,
};
use ferrovia_netlink::{Attrs, Message, Writer, nfnetlink};

use super::message_type;

/// A flow, borrowed from its message.
#[derive(Clone, Copy, Debug)]
pub struct Flow<'a> {
    /// Where its client sends packets from; none if the kernel does not say.
    pub client: Option<SocketAddr>,
    /// Where its client sends packets.
    pub sent_to: SocketAddr,
    /// Where answers come from: the endpoint, if the flow was translated.
    pub answered_by: SocketAddr,
    original: &'a [u8],
    zone: Option<&'a [u8]>,
    id: Option<&'a [u8]>,
}

impl<'a> Flow<'a> {
    /// Reads a message of a dump; none if it is no flow of the family and protocol.
    pub(super) fn read(message: &Message<'a>, family: Family, protocol: Protocol) -> Option<Self> {
        if message.kind != message_type(IPCTNL_MSG_CT_NEW) {
            return None;
        }
        let (mut original, mut reply, mut zone, mut id) = (None, None, None, None);
        for attr in Attrs::of(message, nfnetlink::HEADER_LEN) {
            match attr.kind {
                CTA_TUPLE_ORIG => original = Some(attr.value),
                CTA_TUPLE_REPLY => reply = Some(attr.value),
                CTA_ZONE => zone = Some(attr.value),
                CTA_ID => id = Some(attr.value),
                _ => {}
            }
        }
        let (original, reply) = (original?, reply?);
        let flow = Self {
            client: TupleEnd::Source.read(original, family, protocol),
            sent_to: TupleEnd::Destination.read(original, family, protocol)?,
            answered_by: TupleEnd::Source.read(reply, family, protocol)?,
            original,
            zone,
            id,
        };
        Some(flow)
    }

    /// What names this very entry to the kernel.
    pub fn key(&self) -> FlowKey {
        FlowKey {
            original: self.original.into(),
            zone: self.zone.map(Into::into),
            id: self.id.map(Into::into),
        }
    }
}

/// Names one entry, in the kernel's own words.
///
/// There is always a direction in it: a delete without one would empty the whole table. The id distinguishes the entry from a later one
/// between the same two ends, which may go elsewhere, unless that one happens to have its place in the kernel's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowKey {
    original: Box<[u8]>,
    zone: Option<Box<[u8]>>,
    id: Option<Box<[u8]>>,
}

impl FlowKey {
    /// Writes what follows the header of a message about the entry.
    pub(super) fn write(&self, w: &mut Writer) {
        w.nested(CTA_TUPLE_ORIG, |w| w.raw(&self.original));
        if let Some(zone) = &self.zone {
            w.bytes(CTA_ZONE, zone);
        }
        if let Some(id) = &self.id {
            w.bytes(CTA_ID, id);
        }
    }
}

/// One end of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TupleEnd {
    Source,
    Destination,
}

impl TupleEnd {
    /// The attribute with the address.
    pub(super) fn address(self, family: Family) -> u16 {
        match (family, self) {
            (Family::V4, Self::Source) => CTA_IP_V4_SRC,
            (Family::V4, Self::Destination) => CTA_IP_V4_DST,
            (Family::V6, Self::Source) => CTA_IP_V6_SRC,
            (Family::V6, Self::Destination) => CTA_IP_V6_DST,
        }
    }

    /// The attribute with the port.
    pub(super) fn port(self) -> u16 {
        match self {
            Self::Source => CTA_PROTO_SRC_PORT,
            Self::Destination => CTA_PROTO_DST_PORT,
        }
    }

    /// Reads the address and port at this end of a direction of the protocol.
    fn read(self, direction: &[u8], family: Family, wanted: Protocol) -> Option<SocketAddr> {
        let attrs = Attrs::new(direction);
        let ports = attrs.get(CTA_TUPLE_PROTO)?.nested();
        if ports.get(CTA_PROTO_NUM)?.u8()? != wanted.number() {
            return None;
        }
        let address = attrs
            .get(CTA_TUPLE_IP)?
            .nested()
            .get(self.address(family))?;
        let port = ports.get(self.port())?.be16()?;
        Some(SocketAddr::new(address.ip()?, port))
    }
}

#[cfg(test)]
mod tests {
    use ferrovia_netlink::{Header, messages};

    use super::*;

    fn flow_message(protocol_number: u8, family: Family) -> Vec<u8> {
        let place = |w: &mut Writer, end: TupleEnd| {
            let address = match family {
                Family::V4 => &[10, 0, 0, 1][..],
                Family::V6 => &[0xfd; 16][..],
            };
            w.nested(CTA_TUPLE_IP, |w| w.bytes(end.address(family), address));
            w.nested(CTA_TUPLE_PROTO, |w| {
                w.bytes(CTA_PROTO_NUM, &[protocol_number]);
                w.bytes(end.port(), &[0, 53]);
            });
        };
        let mut writer = Writer::new();
        let header = Header {
            kind: message_type(IPCTNL_MSG_CT_NEW),
            flags: 0,
            seq: 1,
        };
        writer.message(header, |w| {
            w.raw(&[0; nfnetlink::HEADER_LEN]);
            w.nested(CTA_TUPLE_ORIG, |w| place(w, TupleEnd::Destination));
            w.nested(CTA_TUPLE_REPLY, |w| place(w, TupleEnd::Source));
        });
        writer.finish().unwrap()
    }

    fn read(bytes: &[u8], family: Family) -> Option<SocketAddr> {
        let message = messages(bytes).next()?;
        Flow::read(&message, family, Protocol::Udp).map(|flow| flow.answered_by)
    }

    #[test]
    fn reads_only_udp_flows_of_the_family() {
        let udp = Protocol::Udp.number();
        for (family, other, place) in [
            (Family::V4, Family::V6, "10.0.0.1:53"),
            (
                Family::V6,
                Family::V4,
                "[fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd]:53",
            ),
        ] {
            assert_eq!(read(&flow_message(udp, family), family), place.parse().ok());
            assert_eq!(read(&flow_message(udp, family), other), None);
            assert_eq!(
                read(&flow_message(Protocol::Tcp.number(), family), family),
                None
            );
        }
    }

    #[test]
    fn truncated_message_is_not_a_flow() {
        let whole = flow_message(Protocol::Udp.number(), Family::V4);
        for len in nfnetlink::HEADER_LEN + Message::HEADER_LEN..whole.len() {
            let mut part = whole[..len].to_vec();
            part[..4].copy_from_slice(&u32::try_from(len).unwrap().to_ne_bytes());
            assert_eq!(read(&part, Family::V4), None, "{len} bytes");
        }
    }
}
