//! Reading messages and attributes out of bytes that are not trusted.
//!
//! Nothing here panics or reads beyond the bytes, whatever they are: an iterator ends at the first invalid length.

use std::net::IpAddr;

/// One message, borrowed from the receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// `nlmsg_type`
    pub kind: u16,
    /// `NLM_F_*`
    pub flags: u16,
    /// The sequence number of the request.
    pub seq: u32,
    /// The port id of the socket whose request caused this message.
    pub port: u32,
    /// The bytes after the header.
    pub body: &'a [u8],
}

impl Message<'_> {
    /// Length of `struct nlmsghdr`.
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
        self.rest = after(self.rest, len);
        Some(Message {
            kind: u16::from_ne_bytes(chunk(header, 4)?),
            flags: u16::from_ne_bytes(chunk(header, 6)?),
            seq: u32::from_ne_bytes(chunk(header, 8)?),
            port: u32::from_ne_bytes(chunk(header, 12)?),
            body,
        })
    }
}

/// Iterates over consecutive attributes.
#[derive(Clone, Copy, Debug)]
pub struct Attrs<'a> {
    rest: &'a [u8],
}

impl<'a> Attrs<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The attributes of a message after its family's fixed header.
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
        let len = usize::from(u16::from_ne_bytes(chunk(self.rest, 0)?));
        let kind = u16::from_ne_bytes(chunk(self.rest, 2)?) & libc::NLA_TYPE_MASK as u16;
        let value = self.rest.get(4..len)?;
        self.rest = after(self.rest, len);
        Some(Attr { kind, value })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr<'a> {
    /// `nla_type` without the flags in its two highest bits.
    pub kind: u16,
    pub value: &'a [u8],
}

impl<'a> Attr<'a> {
    pub fn nested(self) -> Attrs<'a> {
        Attrs::new(self.value)
    }

    /// A string without its terminating zero.
    pub fn text(self) -> Option<&'a str> {
        let bytes = self.value.strip_suffix(&[0]).unwrap_or(self.value);
        std::str::from_utf8(bytes).ok()
    }

    /// The first byte.
    pub fn u8(self) -> Option<u8> {
        self.value.first().copied()
    }

    /// A number in host byte order.
    pub fn u16(self) -> Option<u16> {
        self.value.try_into().ok().map(u16::from_ne_bytes)
    }

    /// A number in network byte order.
    pub fn be16(self) -> Option<u16> {
        self.value.try_into().ok().map(u16::from_be_bytes)
    }

    /// A number in host byte order.
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

    /// A number in host byte order.
    pub fn u32(self) -> Option<u32> {
        self.value.try_into().ok().map(u32::from_ne_bytes)
    }

    /// A number in network byte order.
    pub fn be32(self) -> Option<u32> {
        self.value.try_into().ok().map(u32::from_be_bytes)
    }

    /// A number in network byte order.
    pub fn be64(self) -> Option<u64> {
        self.value.try_into().ok().map(u64::from_be_bytes)
    }
}

/// The bytes after the first `len` and their padding, which may be missing at the end.
fn after(bytes: &[u8], len: usize) -> &[u8] {
    bytes.get(len.next_multiple_of(4)..).unwrap_or_default()
}

fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iteration_ends_at_an_invalid_length() {
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
    fn last_attribute_may_lack_padding() {
        let bytes = [5, 0, 1, 0x80, 0xaa, 0, 0, 0, 5, 0, 2, 0x40, 0xbb];
        let read: Vec<_> = Attrs::new(&bytes)
            .map(|attr| (attr.kind, attr.u8()))
            .collect();
        assert_eq!(read, [(1, Some(0xaa)), (2, Some(0xbb))]);
    }

    #[test]
    fn number_of_another_length_is_none() {
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
