//! Writing messages and nested attributes into one growing buffer.
//!
//! A whole transaction is one buffer, so that it costs one allocation that grows and one system call.

use crate::uapi::netlink::NLA_F_NESTED;

/// Length of `struct nlattr`.
const ATTR_HEADER_LEN: usize = 4;

/// The fields of a `struct nlmsghdr` that the sender sets. [`Writer`] adds the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// `nlmsg_type`
    pub kind: u16,
    /// `NLM_F_*`
    pub flags: u16,
    /// Replies carry the same number.
    pub seq: u32,
}

/// An attribute is longer than its 16-bit length field can express.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a netlink attribute exceeds 65535 bytes")]
pub struct AttributeTooLong;

/// A buffer of messages.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    too_long: bool,
}

impl Writer {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn with_capacity(bytes: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(bytes),
            too_long: false,
        }
    }

    /// Appends a message; `body` writes what follows the header.
    pub fn message(&mut self, header: Header, body: impl FnOnce(&mut Self)) {
        self.reserve_for_message();
        let start = self.bytes.len();
        self.raw(&[0; 4]);
        self.raw(&header.kind.to_ne_bytes());
        self.raw(&header.flags.to_ne_bytes());
        self.raw(&header.seq.to_ne_bytes());
        // The sender's port id, which the kernel takes from the socket.
        self.raw(&[0; 4]);
        body(self);
        self.pad();
        // The kernel refuses to send more than 4 GiB at once.
        let len = u32::try_from(self.bytes.len() - start).unwrap_or(u32::MAX);
        self.patch(start, &len.to_ne_bytes());
    }

    /// Adds flags to the message that starts at this position.
    pub fn add_flags(&mut self, start: usize, flags: u16) {
        const OFFSET: usize = 6;
        if let Some([low, high]) = self.bytes.get(start + OFFSET..start + OFFSET + 2) {
            let flags = u16::from_ne_bytes([*low, *high]) | flags;
            self.patch(start + OFFSET, &flags.to_ne_bytes());
        }
    }

    /// An attribute with `NLA_F_NESTED`; `body` writes the attributes inside.
    pub fn nested(&mut self, kind: u16, body: impl FnOnce(&mut Self)) {
        self.attr_with(kind | NLA_F_NESTED, body);
    }

    pub fn bytes(&mut self, kind: u16, value: &[u8]) {
        self.attr_with(kind, |w| w.raw(value));
    }

    /// A string with a terminating zero.
    pub fn text(&mut self, kind: u16, value: &str) {
        self.attr_with(kind, |w| {
            w.raw(value.as_bytes());
            w.raw(&[0]);
        });
    }

    /// A number in host byte order.
    pub fn u16(&mut self, kind: u16, value: u16) {
        self.bytes(kind, &value.to_ne_bytes());
    }

    /// A number in host byte order.
    pub fn u32(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_ne_bytes());
    }

    /// A number in network byte order.
    pub fn be32(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_be_bytes());
    }

    /// A number in network byte order.
    pub fn be64(&mut self, kind: u16, value: u64) {
        self.bytes(kind, &value.to_be_bytes());
    }

    /// Bytes without an attribute header: a family's fixed header.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The messages as they are sent.
    ///
    /// # Errors
    /// If an attribute was too long: its length field is wrong, so nothing may be sent.
    pub fn finish(self) -> Result<Vec<u8>, AttributeTooLong> {
        if self.too_long {
            Err(AttributeTooLong)
        } else {
            Ok(self.bytes)
        }
    }

    /// The first transaction of a large cluster is tens of megabytes long, and memory use peaks at that moment. So a large buffer grows by a
    /// quarter; a vector by itself would double.
    fn reserve_for_message(&mut self) {
        const LARGE: usize = 1 << 20;
        /// More than most messages take.
        const MESSAGE: usize = 128 << 10;
        let len = self.bytes.len();
        if len >= LARGE && self.bytes.capacity() - len < MESSAGE {
            self.bytes.reserve_exact((len / 4).max(MESSAGE));
        }
    }

    fn attr_with(&mut self, kind: u16, value: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.raw(&[0; ATTR_HEADER_LEN]);
        value(self);
        match u16::try_from(self.bytes.len() - start) {
            Ok(len) => self.patch(start, &len.to_ne_bytes()),
            Err(_) => self.too_long = true,
        }
        self.patch(start + 2, &kind.to_ne_bytes());
        self.pad();
    }

    fn pad(&mut self) {
        let len = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(len, 0);
    }

    fn patch(&mut self, at: usize, value: &[u8]) {
        if let Some(target) = self.bytes.get_mut(at..at + value.len()) {
            target.copy_from_slice(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uapi::netlink::{NLM_F_ACK, NLM_F_CREATE, NLM_F_REQUEST};
    use crate::{Attrs, messages};

    #[test]
    fn large_buffer_grows_by_a_quarter() {
        let header = Header {
            kind: 1,
            flags: 0,
            seq: 0,
        };
        let mut writer = Writer::with_capacity(4096);
        while writer.len() < 40 << 20 {
            writer.message(header, |w| w.raw(&[7; 32 << 10]));
            let (len, room) = (writer.len(), writer.bytes.capacity());
            assert!(len < 2 << 20 || room <= len + len / 4 + (1 << 20));
        }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn message_bytes_match_the_golden() {
        let mut writer = Writer::new();
        writer.message(
            Header {
                kind: 0x0a03,
                flags: NLM_F_REQUEST | NLM_F_CREATE,
                seq: 7,
            },
            |w| {
                w.raw(&[2, 0, 0, 0]);
                w.text(1, "tab");
                w.nested(4, |w| w.be32(1, 3));
                w.bytes(9, &[0xff]);
            },
        );
        #[rustfmt::skip]
        let expected = [
            48, 0, 0, 0,  0x03, 0x0a,  0x01, 0x04,  7, 0, 0, 0,  0, 0, 0, 0,
            2, 0, 0, 0,
            8, 0, 1, 0, b't', b'a', b'b', 0,
            12, 0, 4, 0x80,  8, 0, 1, 0, 0, 0, 0, 3,
            5, 0, 9, 0, 0xff, 0, 0, 0,
        ];
        assert_eq!(writer.finish().unwrap(), expected);
    }

    #[test]
    fn written_messages_are_read_back() {
        let mut writer = Writer::new();
        for seq in 0..3 {
            writer.message(
                Header {
                    kind: 20,
                    flags: 1,
                    seq,
                },
                |w| {
                    w.be32(1, 0xdead_beef);
                    w.nested(2, |w| {
                        w.text(3, "name");
                        w.be64(4, u64::MAX - 1);
                    });
                },
            );
        }
        writer.add_flags(0, NLM_F_ACK);
        let bytes = writer.finish().unwrap();
        let read: Vec<_> = messages(&bytes).collect();
        assert_eq!(
            read.iter()
                .map(|message| (message.seq, message.flags))
                .collect::<Vec<_>>(),
            [(0, 5), (1, 1), (2, 1)]
        );
        let attrs = Attrs::of(&read[2], 0);
        assert_eq!(attrs.get(1).unwrap().be32(), Some(0xdead_beef));
        let inner = attrs.get(2).unwrap().nested();
        assert_eq!(inner.get(3).unwrap().text(), Some("name"));
        assert_eq!(inner.get(4).unwrap().be64(), Some(u64::MAX - 1));
        assert_eq!(attrs.get(7), None);
    }

    #[test]
    fn too_long_attribute_is_an_error() {
        let mut writer = Writer::new();
        writer.nested(1, |w| w.bytes(1, &vec![0; 65_524]));
        assert!(writer.finish().is_ok());
        let mut writer = Writer::new();
        writer.nested(1, |w| w.bytes(1, &vec![0; 65_525]));
        assert_eq!(writer.finish(), Err(AttributeTooLong));
    }
}
