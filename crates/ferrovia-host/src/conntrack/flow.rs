//! One entry of the table, as the kernel tells it and as it must be named to be deleted.

use std::net::SocketAddr;

use ferrovia_core::family::Family;
use ferrovia_core::model::Protocol;

use super::uapi::{HEADER_LEN, entry, ip, msg, protocol, tuple};
use crate::netlink::{Attrs, Message, Writer};

/// A flow, borrowed from the message that told of it.
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
        if message.kind != msg::NEW {
            return None;
        }
        let (mut original, mut reply, mut zone, mut id) = (None, None, None, None);
        for attr in Attrs::of(message, HEADER_LEN) {
            match attr.kind {
                entry::ORIGINAL => original = Some(attr.value),
                entry::REPLY => reply = Some(attr.value),
                entry::ZONE => zone = Some(attr.value),
                entry::ID => id = Some(attr.value),
                _ => {}
            }
        }
        let (original, reply) = (original?, reply?);
        let flow = Self {
            client: End::Source.read(original, family, protocol),
            sent_to: End::Destination.read(original, family, protocol)?,
            answered_by: End::Source.read(reply, family, protocol)?,
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
/// There is always a direction in it: a delete without one would empty the whole table. The number tells the entry from a later one
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
        w.nested(entry::ORIGINAL, |w| w.raw(&self.original));
        if let Some(zone) = &self.zone {
            w.bytes(entry::ZONE, zone);
        }
        if let Some(id) = &self.id {
            w.bytes(entry::ID, id);
        }
    }
}

/// One end of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Source,
    Destination,
}

impl End {
    /// The attribute with the address.
    pub(super) fn address(self, family: Family) -> u16 {
        match (family, self) {
            (Family::V4, Self::Source) => ip::V4_SOURCE,
            (Family::V4, Self::Destination) => ip::V4_DESTINATION,
            (Family::V6, Self::Source) => ip::V6_SOURCE,
            (Family::V6, Self::Destination) => ip::V6_DESTINATION,
        }
    }

    /// The attribute with the port.
    pub(super) fn port(self) -> u16 {
        match self {
            Self::Source => protocol::SOURCE_PORT,
            Self::Destination => protocol::DESTINATION_PORT,
        }
    }

    /// Reads the address and port at this end of a direction of the protocol.
    fn read(self, direction: &[u8], family: Family, wanted: Protocol) -> Option<SocketAddr> {
        let attrs = Attrs::new(direction);
        let ports = attrs.get(tuple::PROTOCOL)?.nested();
        if ports.get(protocol::NUMBER)?.u8()? != wanted.number() {
            return None;
        }
        let address = attrs.get(tuple::IP)?.nested().get(self.address(family))?;
        let port = ports.get(self.port())?.be16()?;
        Some(SocketAddr::new(address.ip()?, port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{Header, messages};

    fn told(protocol_number: u8, family: Family) -> Vec<u8> {
        let place = |w: &mut Writer, end: End| {
            let address = match family {
                Family::V4 => &[10, 0, 0, 1][..],
                Family::V6 => &[0xfd; 16][..],
            };
            w.nested(tuple::IP, |w| w.bytes(end.address(family), address));
            w.nested(tuple::PROTOCOL, |w| {
                w.bytes(protocol::NUMBER, &[protocol_number]);
                w.bytes(end.port(), &[0, 53]);
            });
        };
        let mut writer = Writer::new();
        let header = Header {
            kind: msg::NEW,
            flags: 0,
            seq: 1,
        };
        writer.message(header, |w| {
            w.raw(&[0; HEADER_LEN]);
            w.nested(entry::ORIGINAL, |w| place(w, End::Destination));
            w.nested(entry::REPLY, |w| place(w, End::Source));
        });
        writer.finish().unwrap()
    }

    fn read(bytes: &[u8], family: Family) -> Option<SocketAddr> {
        let message = messages(bytes).next()?;
        Flow::read(&message, family, Protocol::Udp).map(|flow| flow.answered_by)
    }

    #[test]
    fn only_udp_flows_of_the_family_are_read() {
        let udp = Protocol::Udp.number();
        for (family, other, place) in [
            (Family::V4, Family::V6, "10.0.0.1:53"),
            (
                Family::V6,
                Family::V4,
                "[fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd]:53",
            ),
        ] {
            assert_eq!(read(&told(udp, family), family), place.parse().ok());
            assert_eq!(read(&told(udp, family), other), None);
            assert_eq!(read(&told(Protocol::Tcp.number(), family), family), None);
        }
    }

    #[test]
    fn half_a_message_is_no_flow() {
        let whole = told(Protocol::Udp.number(), Family::V4);
        for len in HEADER_LEN + Message::HEADER_LEN..whole.len() {
            let mut part = whole[..len].to_vec();
            part[..4].copy_from_slice(&u32::try_from(len).unwrap().to_ne_bytes());
            assert_eq!(read(&part, Family::V4), None, "{len} bytes");
        }
    }
}
