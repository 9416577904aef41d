//! A minimal SCTP: an INIT chunk as request, an INIT ACK with a text as response.
//!
//! The kernel under test may have no SCTP stack. Connection tracking and address translation
//! need none either: they use ports, the checksum and the type of chunk.

/// The fields of a packet that the lab needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    pub(crate) chunk: Chunk,
}

/// The two chunk types that the lab uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Chunk {
    /// A client's first packet. The answer must carry its tag.
    Init { tag: u32 },
    /// The answer, with a text where a real stack puts its cookie.
    InitAck { tag: u32, text: Vec<u8> },
}

const INIT: u8 = 1;
const INIT_ACK: u8 = 2;
/// Parameter type 7, the state cookie: opaque bytes, and present in every real INIT ACK.
const COOKIE: u16 = 7;
/// Ports, verification tag and checksum.
const COMMON_HEADER: usize = 12;
/// Chunk header, own tag, window, two stream counts, first sequence number.
const INIT_CHUNK: usize = 20;

impl Packet {
    /// The bytes on the wire, with a checksum.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (kind, verification_tag, own_tag, text): (u8, u32, u32, &[u8]) = match &self.chunk {
            // The first packet carries no tag of the peer: it is not known yet.
            Chunk::Init { tag } => (INIT, 0, *tag, &[]),
            Chunk::InitAck { tag, text } => (INIT_ACK, *tag, 1, text),
        };
        let parameter = if text.is_empty() { 0 } else { 4 + text.len() };
        let mut bytes = Vec::with_capacity(COMMON_HEADER + INIT_CHUNK + parameter + 3);
        bytes.extend(self.source_port.to_be_bytes());
        bytes.extend(self.destination_port.to_be_bytes());
        bytes.extend(verification_tag.to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend([kind, 0]);
        bytes.extend(length(INIT_CHUNK + parameter));
        bytes.extend(own_tag.to_be_bytes());
        bytes.extend(0x0001_0000_u32.to_be_bytes());
        bytes.extend([0, 1, 0, 1]);
        bytes.extend(1_u32.to_be_bytes());
        if !text.is_empty() {
            bytes.extend(COOKIE.to_be_bytes());
            bytes.extend(length(parameter));
            bytes.extend(text);
            // Chunks end on a multiple of four; the padding is not counted in the lengths.
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        let checksum = crc32c(&bytes).to_le_bytes();
        bytes.splice(8..COMMON_HEADER, checksum);
        bytes
    }

    /// Parses a packet; `None` if it has another chunk type.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let u16_at = |at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let u32_at = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let chunk = match *bytes.get(COMMON_HEADER)? {
            INIT => Chunk::Init {
                tag: u32_at(COMMON_HEADER + 4)?,
            },
            INIT_ACK => {
                let start = COMMON_HEADER + INIT_CHUNK;
                let end = start + usize::from(u16_at(start + 2)?);
                Chunk::InitAck {
                    tag: u32_at(4)?,
                    text: bytes.get(start + 4..end)?.to_vec(),
                }
            }
            _ => return None,
        };
        Some(Self {
            source_port: u16_at(0)?,
            destination_port: u16_at(2)?,
            chunk,
        })
    }
}

/// A length field. The lab's texts are a line long.
fn length(length: usize) -> [u8; 2] {
    u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes()
}

/// The checksum of SCTP: CRC-32C, reflected, bit by bit. A packet has some sixty bytes.
fn crc32c(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 {
                (crc >> 1) ^ POLYNOMIAL
            } else {
                crc >> 1
            };
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_crc32c() {
        // The standard check value of this polynomial.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn decodes_what_it_encodes() {
        for chunk in [
            Chunk::Init { tag: 0x0102_0304 },
            Chunk::InitAck {
                tag: 7,
                text: b"pod-a 10.0.0.1:80 10.0.0.2".to_vec(),
            },
        ] {
            let packet = Packet {
                source_port: 40_000,
                destination_port: 80,
                chunk,
            };
            assert_eq!(Packet::decode(&packet.encode()), Some(packet));
        }
    }

    #[test]
    fn rejects_truncated_and_foreign_packets() {
        let bytes = Packet {
            source_port: 1,
            destination_port: 2,
            chunk: Chunk::Init { tag: 3 },
        }
        .encode();
        assert_eq!(Packet::decode(bytes.get(..14).unwrap()), None);
        assert_eq!(Packet::decode(&[0; 40]), None);
    }
}
