//! Unpacks what the server compressed.

use std::io::{self, Write as _};

use flate2::write::GzDecoder;
use http::HeaderMap;
use http::header::CONTENT_ENCODING;

/// The encoding that is asked for, the only one that API servers know.
pub(super) const GZIP: &str = "gzip";

/// So much is unpacked at once. It becomes a thousand times as much at most, and ten times as much in practice.
const STEP: usize = 1024;

/// From the bytes of a body to those that the server compressed.
#[derive(Debug)]
pub(super) enum Unpacker {
    /// It did not compress them.
    None,
    /// The decoder, and what it has unpacked.
    Gzip(Box<GzDecoder<Vec<u8>>>),
}

impl Unpacker {
    /// As the headers of an answer say.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let encoding = headers.get(CONTENT_ENCODING);
        if encoding.is_some_and(|encoding| encoding == GZIP) {
            Self::Gzip(Box::new(GzDecoder::new(Vec::new())))
        } else {
            Self::None
        }
    }

    /// How many of these bytes to feed at once.
    pub(super) fn step(&self, available: usize) -> usize {
        match self {
            Self::None => available,
            Self::Gzip(_) => available.min(STEP),
        }
    }

    /// Hands over what these bytes mean; answers with its length.
    pub(super) fn feed(
        &mut self,
        piece: &[u8],
        each: &mut (dyn FnMut(&[u8]) + Send),
    ) -> io::Result<usize> {
        match self {
            Self::None => {
                each(piece);
                Ok(piece.len())
            }
            Self::Gzip(decoder) => {
                decoder.write_all(piece)?;
                Ok(take(decoder, each))
            }
        }
    }

    /// The body has ended: hands over what is left.
    pub(super) fn finish(&mut self, each: &mut (dyn FnMut(&[u8]) + Send)) -> io::Result<()> {
        if let Self::Gzip(decoder) = self {
            decoder.try_finish()?;
            take(decoder, each);
        }
        Ok(())
    }
}

fn take(decoder: &mut GzDecoder<Vec<u8>>, each: &mut (dyn FnMut(&[u8]) + Send)) -> usize {
    let unpacked = decoder.get_mut();
    let length = unpacked.len();
    if length > 0 {
        each(unpacked);
        unpacked.clear();
    }
    length
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn packed(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn gzip() -> Unpacker {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, GZIP.parse().unwrap());
        Unpacker::of(&headers)
    }

    #[test]
    fn what_was_packed_comes_out_however_it_was_cut() {
        let text: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        let packed = packed(&text);
        for length in [1, 7, 1024, packed.len()] {
            let (mut unpacker, mut unpacked) = (gzip(), Vec::new());
            let mut each = |piece: &[u8]| unpacked.extend_from_slice(piece);
            for piece in packed.chunks(length) {
                unpacker.feed(piece, &mut each).unwrap();
            }
            unpacker.finish(&mut each).unwrap();
            assert!(unpacked == text, "{length}");
        }
    }

    #[test]
    fn a_step_of_a_bomb_is_bounded() {
        let packed = packed(&vec![0; 64 << 20]);
        let mut unpacker = gzip();
        for piece in packed.chunks(unpacker.step(packed.len())) {
            let length = unpacker.feed(piece, &mut |_| {}).unwrap();
            assert!(length <= 2 << 20, "{length}");
        }
    }

    #[test]
    fn a_half_and_garbage_are_errors() {
        let packed = packed(&[7; 10_000]);
        let mut unpacker = gzip();
        let half = &packed[..packed.len() / 2];
        assert!(unpacker.feed(half, &mut |_| {}).is_ok());
        assert!(unpacker.finish(&mut |_| {}).is_err());
        assert!(gzip().feed(b"not compressed", &mut |_| {}).is_err());
    }
}
