//! The outside of protobuf messages: keys and lengths. What is inside objects is for the library to decode.

/// Bytes that are not protobuf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed protobuf")]
pub(super) struct Malformed;

/// A number of variable length while its bytes arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Varint {
    value: u64,
    bits: u32,
}

impl Varint {
    /// Takes the next byte, and gives the number once it is complete. Starts over then.
    pub(super) fn push(&mut self, byte: u8) -> Result<Option<u64>, Malformed> {
        let digits = u64::from(byte & 0x7f);
        // The tenth byte has room for one bit.
        if self.bits == 63 && byte > 1 {
            return Err(Malformed);
        }
        self.value |= digits << self.bits;
        if byte & 0x80 == 0 {
            return Ok(Some(std::mem::take(self).value));
        }
        self.bits += 7;
        Ok(None)
    }

    /// Whether some of its bytes have arrived, but not all.
    pub(super) fn is_half(self) -> bool {
        self.bits > 0
    }
}

/// What stands before a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// The field's number.
    pub(super) field: u64,
    /// How its value is written.
    pub(super) value: Encoded,
}

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoded {
    Varint,
    /// So many bytes.
    Fixed(usize),
    /// A length, then so many bytes.
    Delimited,
}

impl Key {
    /// Takes a key apart.
    pub(super) fn of(number: u64) -> Result<Self, Malformed> {
        let value = match number & 7 {
            0 => Encoded::Varint,
            1 => Encoded::Fixed(8),
            2 => Encoded::Delimited,
            5 => Encoded::Fixed(4),
            _ => return Err(Malformed),
        };
        let field = number >> 3;
        if field == 0 || field >= 1 << 29 {
            return Err(Malformed);
        }
        Ok(Self { field, value })
    }
}

/// The first field of this number that has a length, without it.
pub(super) fn field(message: &[u8], number: u64) -> Result<Option<&[u8]>, Malformed> {
    match find(message, number)? {
        Some((content, length)) if content.len() < length => Err(Malformed),
        found => Ok(found.map(|(content, _)| content)),
    }
}

/// The same in the beginning of a message, of which the rest is missing: as much of the field as there is.
pub(super) fn beginning(message: &[u8], number: u64) -> Option<&[u8]> {
    find(message, number).ok()?.map(|(content, _)| content)
}

/// A field's content as far as it is there, and its length.
fn find(mut rest: &[u8], number: u64) -> Result<Option<(&[u8], usize)>, Malformed> {
    while !rest.is_empty() {
        let key = Key::of(varint(&mut rest)?)?;
        let length = match key.value {
            Encoded::Varint => {
                varint(&mut rest)?;
                continue;
            }
            Encoded::Fixed(length) => length,
            Encoded::Delimited => usize::try_from(varint(&mut rest)?).map_err(|_| Malformed)?,
        };
        if key.field == number && key.value == Encoded::Delimited {
            return Ok(Some((&rest[..length.min(rest.len())], length)));
        }
        rest = rest.get(length..).ok_or(Malformed)?;
    }
    Ok(None)
}

fn varint(rest: &mut &[u8]) -> Result<u64, Malformed> {
    let mut number = Varint::default();
    while let Some((&byte, after)) = rest.split_first() {
        *rest = after;
        if let Some(number) = number.push(byte)? {
            return Ok(number);
        }
    }
    Err(Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_length_are_read() {
        let read = |mut bytes: &[u8]| varint(&mut bytes);
        assert_eq!(read(&[0]), Ok(0));
        assert_eq!(read(&[0x96, 0x01]), Ok(150));
        let mut largest = [0xff; 10];
        largest[9] = 1;
        assert_eq!(read(&largest), Ok(u64::MAX));
        largest[9] = 2;
        assert_eq!(read(&largest), Err(Malformed), "more than 64 bits");
        assert_eq!(read(&[0x80; 11]), Err(Malformed), "no end");
        assert_eq!(read(&[0x80]), Err(Malformed), "cut off");
        assert_eq!(read(&[]), Err(Malformed));
    }

    #[test]
    fn a_field_is_found_behind_others() {
        // 1: 150, 5: fixed32, 3: fixed64, 2: "ab"
        let message =
            b"\x08\x96\x01\x2d\x01\x02\x03\x04\x19\x01\x02\x03\x04\x05\x06\x07\x08\x12\x02ab";
        assert_eq!(field(message, 2), Ok(Some(&b"ab"[..])));
        assert_eq!(field(message, 1), Ok(None), "it has no length");
        assert_eq!(field(message, 7), Ok(None));
        for end in 1..message.len() {
            let _ = field(&message[..end], 2);
        }
    }

    #[test]
    fn a_field_that_was_cut_off_is_there_only_for_those_who_expect_it() {
        let message = b"\x12\x05ab";
        assert_eq!(field(message, 2), Err(Malformed));
        assert_eq!(beginning(message, 2), Some(&b"ab"[..]));
        assert_eq!(beginning(b"\x0a\x05ab", 2), None);
        // A length that no memory has.
        let huge = b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01ab";
        assert_eq!(field(huge, 2), Err(Malformed));
        assert_eq!(beginning(huge, 2), Some(&b"ab"[..]));
    }

    #[test]
    fn groups_and_field_zero_are_refused() {
        for key in [0x0b, 0x0c, 0x0e, 0x0f, 0x02] {
            assert_eq!(field(&[key, 0], 1), Err(Malformed), "{key:#x}");
        }
    }
}
