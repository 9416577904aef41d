//! Reading one file, within limits.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use ferrovia_core::wire::Object;

use super::decode::{Format, decode};
use super::tree::Signature;

/// A file as it was read.
pub(super) struct Content {
    pub(super) bytes: Vec<u8>,
    /// From before it was read, so that a write in between shows.
    pub(super) signature: Signature,
}

impl Content {
    /// Reads a file of at most so many bytes, or says what kept us from it.
    pub(super) fn read(path: &Path, size_limit: u64) -> Result<Self, String> {
        let cannot = |error: io::Error| format!("cannot be read: {error}");
        let too_big = || format!("is bigger than the limit of {size_limit} bytes");
        let file = File::open(path).map_err(cannot)?;
        let metadata = file.metadata().map_err(cannot)?;
        if metadata.len() > size_limit {
            return Err(too_big());
        }
        let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or_default());
        // One byte more than allowed, since the file may have grown since it was measured.
        let mut limited = file.take(size_limit.saturating_add(1));
        limited.read_to_end(&mut bytes).map_err(cannot)?;
        if bytes.len() as u64 > size_limit {
            return Err(too_big());
        }
        Ok(Self {
            bytes,
            signature: Signature::of(&metadata),
        })
    }
}

/// The objects of a file; none if there is anything wrong with it.
pub(super) fn objects(path: &Path, size_limit: u64) -> Vec<Object> {
    let decoded = Format::of(path)
        .zip(Content::read(path, size_limit).ok())
        .and_then(|(format, content)| decode(&content.bytes, format).ok())
        .unwrap_or_default();
    decoded.into_iter().map(|found| found.object).collect()
}
