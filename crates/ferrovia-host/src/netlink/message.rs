//! Writing messages: headers, attributes and attributes inside attributes, all into one growing
//! buffer.
//!
//! A whole transaction is one buffer, so that it costs one allocation that grows and one system
//! call.

/// Marks an attribute that holds others.
const NESTED: u16 = 1 << 15;
/// Length of an attribute's own header.
const ATTR_HEADER_LEN: usize = 4;

/// What stands at the head of a message. The length is filled in by the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the message is, numbered by its family.
    pub kind: u16,
    /// How it is meant.
    pub flags: u16,
    /// What answers will refer to.
    pub seq: u32,
}

/// An attribute holds more than its 16-bit length can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an attribute of a netlink message is too long")]
pub struct TooLong;

/// Messages being written, one behind the other.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    too_long: bool,
}

impl Writer {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Nothing yet, with room for so many bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(bytes),
            too_long: false,
        }
    }

    /// One message; `body` writes what follows the header.
    pub fn message(&mut self, header: Header, body: impl FnOnce(&mut Self)) {
        self.make_room();
        let start = self.bytes.len();
        self.raw(&[0; 4]);
        self.raw(&header.kind.to_ne_bytes());
        self.raw(&header.flags.to_ne_bytes());
        self.raw(&header.seq.to_ne_bytes());
        // The sender's port: the kernel knows it from the socket.
        self.raw(&[0; 4]);
        body(self);
        self.pad();
        // More than 4 GiB cannot be sent in one go anyway; the send fails then.
        let len = u32::try_from(self.bytes.len() - start).unwrap_or(u32::MAX);
        self.patch(start, &len.to_ne_bytes());
    }

    /// Adds flags to the message that starts at this position.
    pub(crate) fn add_flags(&mut self, start: usize, flags: u16) {
        const AT: usize = 6;
        if let Some([low, high]) = self.bytes.get(start + AT..start + AT + 2) {
            let flags = u16::from_ne_bytes([*low, *high]) | flags;
            self.patch(start + AT, &flags.to_ne_bytes());
        }
    }

    /// An attribute that holds others; `body` writes them.
    pub fn nested(&mut self, kind: u16, body: impl FnOnce(&mut Self)) {
        self.attr_with(kind | NESTED, body);
    }

    /// An attribute of plain bytes.
    pub fn bytes(&mut self, kind: u16, value: &[u8]) {
        self.attr_with(kind, |w| w.raw(value));
    }

    /// A string, with the terminating zero the kernel wants.
    pub fn text(&mut self, kind: u16, value: &str) {
        self.attr_with(kind, |w| {
            w.raw(value.as_bytes());
            w.raw(&[0]);
        });
    }

    /// A 16-bit number in the host's byte order.
    pub fn u16(&mut self, kind: u16, value: u16) {
        self.bytes(kind, &value.to_ne_bytes());
    }

    /// A 32-bit number in the host's byte order.
    pub fn u32(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_ne_bytes());
    }

    /// A 32-bit number in network byte order.
    pub fn be32(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_be_bytes());
    }

    /// A 64-bit number in network byte order.
    pub fn be64(&mut self, kind: u16, value: u64) {
        self.bytes(kind, &value.to_be_bytes());
    }

    /// Bytes as they are: a family's fixed header.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// How many bytes there are by now.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Nothing has been written.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// All of it, ready to be sent.
    ///
    /// # Errors
    /// If an attribute did not fit: the length written for it is wrong, so nothing may be sent.
    pub fn finish(self) -> Result<Vec<u8>, TooLong> {
        if self.too_long {
            Err(TooLong)
        } else {
            Ok(self.bytes)
        }
    }

    /// The first transaction of a large cluster is tens of megabytes long, at the moment when memory is scarcest. There a quarter more at a
    /// time is enough; a vector by itself would ask for twice as much.
    fn make_room(&mut self) {
        const LARGE: usize = 1 << 20;
        /// More than a message takes as a rule.
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
        if let Some(place) = self.bytes.get_mut(at..at + value.len()) {
            place.copy_from_slice(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{Attrs, flags, messages};

    #[test]
    fn a_large_transaction_does_not_ask_for_twice_its_size() {
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
    fn golden_message() {
        let mut writer = Writer::new();
        writer.message(
            Header {
                kind: 0x0a03,
                flags: flags::REQUEST | flags::CREATE,
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
    fn what_is_written_is_read_back() {
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
        writer.add_flags(0, flags::ACK);
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
    fn an_attribute_that_does_not_fit_is_not_sent() {
        let mut writer = Writer::new();
        writer.nested(1, |w| w.bytes(1, &vec![0; 65_524]));
        assert!(writer.finish().is_ok());
        let mut writer = Writer::new();
        writer.nested(1, |w| w.bytes(1, &vec![0; 65_525]));
        assert_eq!(writer.finish(), Err(TooLong));
    }
}
