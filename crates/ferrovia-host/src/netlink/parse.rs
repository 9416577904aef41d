//! Reading messages and attributes out of bytes that are not trusted.
//!
//! Whatever the bytes are, nothing here panics or reads beyond them: an iterator ends where a
//! length makes no sense. Meaning is left to the families.

use std::net::IpAddr;

/// One message, borrowed from the buffer it was received in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// What it is, numbered by its family.
    pub kind: u16,
    /// How it is meant.
    pub flags: u16,
    /// The request it answers.
    pub seq: u32,
    /// The port of the socket whose request caused it.
    pub port: u32,
    /// What follows the header.
    pub body: &'a [u8],
}

impl Message<'_> {
    /// Length of a message's own header.
    pub const HEADER_LEN: usize = 16;
}

/// The messages of a datagram.
pub fn messages(bytes: &[u8]) -> Messages<'_> {
    Messages { rest: bytes }
}

/// Iterates over [`messages`].
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let len = u32::from_ne_bytes(*self.rest.first_chunk()?) as usize;
        let message = self.rest.get(..len)?;
        let (header, body) = message.split_at_checked(Message::HEADER_LEN)?;
        self.rest = behind(self.rest, len);
        Some(Message {
            kind: u16::from_ne_bytes(chunk(header, 4)?),
            flags: u16::from_ne_bytes(chunk(header, 6)?),
            seq: u32::from_ne_bytes(chunk(header, 8)?),
            port: u32::from_ne_bytes(chunk(header, 12)?),
            body,
        })
    }
}

/// Iterates over attributes that stand one behind the other.
#[derive(Clone, Copy, Debug)]
pub struct Attrs<'a> {
    rest: &'a [u8],
}

impl<'a> Attrs<'a> {
    /// Reads these bytes as attributes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The attributes of a message behind its family's fixed header.
    pub fn of(message: &Message<'a>, header_len: usize) -> Self {
        Self::new(message.body.get(header_len..).unwrap_or_default())
    }

    /// The first attribute of a kind.
    pub fn get(mut self, kind: u16) -> Option<Attr<'a>> {
        self.find(|attr| attr.kind == kind)
    }
}

impl<'a> Iterator for Attrs<'a> {
    type Item = Attr<'a>;

    fn next(&mut self) -> Option<Attr<'a>> {
        /// The two highest bits of the kind say how the value is coded, not what it is.
        const KIND: u16 = 0x3fff;
        let len = usize::from(u16::from_ne_bytes(chunk(self.rest, 0)?));
        let kind = u16::from_ne_bytes(chunk(self.rest, 2)?) & KIND;
        let value = self.rest.get(4..len)?;
        self.rest = behind(self.rest, len);
        Some(Attr { kind, value })
    }
}

/// One attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr<'a> {
    /// What it is.
    pub kind: u16,
    /// Its bytes.
    pub value: &'a [u8],
}

impl<'a> Attr<'a> {
    /// The attributes inside.
    pub fn nested(self) -> Attrs<'a> {
        Attrs::new(self.value)
    }

    /// A string, without the terminating zero.
    pub fn text(self) -> Option<&'a str> {
        let bytes = self.value.strip_suffix(&[0]).unwrap_or(self.value);
        std::str::from_utf8(bytes).ok()
    }

    /// A byte.
    pub fn u8(self) -> Option<u8> {
        self.value.first().copied()
    }

    /// A 16-bit number in the host's byte order.
    pub fn u16(self) -> Option<u16> {
        self.value.try_into().ok().map(u16::from_ne_bytes)
    }

    /// A 16-bit number in network byte order.
    pub fn be16(self) -> Option<u16> {
        self.value.try_into().ok().map(u16::from_be_bytes)
    }

    /// A 64-bit number in the host's byte order.
    pub fn u64(self) -> Option<u64> {
        self.value.try_into().ok().map(u64::from_ne_bytes)
    }

    /// An IP address of either family, by its length.
    pub fn ip(self) -> Option<IpAddr> {
        match self.value.len() {
            4 => <[u8; 4]>::try_from(self.value).ok().map(IpAddr::from),
            16 => <[u8; 16]>::try_from(self.value).ok().map(IpAddr::from),
            _ => None,
        }
    }

    /// A 32-bit number in the host's byte order.
    pub fn u32(self) -> Option<u32> {
        self.value.try_into().ok().map(u32::from_ne_bytes)
    }

    /// A 32-bit number in network byte order.
    pub fn be32(self) -> Option<u32> {
        self.value.try_into().ok().map(u32::from_be_bytes)
    }

    /// A 64-bit number in network byte order.
    pub fn be64(self) -> Option<u64> {
        self.value.try_into().ok().map(u64::from_be_bytes)
    }
}

/// What follows `len` bytes and their padding; the padding of the last one may be missing.
fn behind(bytes: &[u8], len: usize) -> &[u8] {
    bytes.get(len.next_multiple_of(4)..).unwrap_or_default()
}

fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_that_make_no_sense_end_the_reading() {
        for len in [0_u16, 1, 3, 9, u16::MAX] {
            let mut bytes = [8, 0, 1, 0, 1, 2, 3, 4].to_vec();
            bytes.extend(len.to_ne_bytes());
            bytes.extend([2, 0, 5, 6, 7, 8]);
            let read: Vec<_> = Attrs::new(&bytes).map(|attr| attr.kind).collect();
            assert_eq!(read, [1], "{len}");
        }
        for len in [0_u32, 15, 21, u32::MAX] {
            let mut bytes = len.to_ne_bytes().to_vec();
            bytes.resize(20, 0);
            assert_eq!(messages(&bytes).count(), 0, "{len}");
        }
        assert_eq!(messages(&[]).count(), 0);
    }

    #[test]
    fn the_last_attribute_need_not_be_padded() {
        let bytes = [5, 0, 1, 0x80, 0xaa, 0, 0, 0, 5, 0, 2, 0x40, 0xbb];
        let read: Vec<_> = Attrs::new(&bytes)
            .map(|attr| (attr.kind, attr.u8()))
            .collect();
        assert_eq!(read, [(1, Some(0xaa)), (2, Some(0xbb))]);
    }

    #[test]
    fn a_number_of_another_length_is_none() {
        let attr = Attr {
            kind: 1,
            value: &[1, 2, 3],
        };
        assert_eq!(
            (attr.be32(), attr.u32(), attr.be64(), attr.u8()),
            (None, None, None, Some(1))
        );
        assert_eq!(
            Attr {
                kind: 1,
                value: &[0xff, 0]
            }
            .text(),
            None
        );
        assert_eq!(
            Attr {
                kind: 1,
                value: b""
            }
            .text(),
            Some("")
        );
    }
}
