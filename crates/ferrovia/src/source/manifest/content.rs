//! Reading one file, within limits.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;

use ferrovia_core::wire::Object;

use super::decode::{DecodeError, Decoded, Format, decode};
use super::tree::Signature;

/// From this size on, a file's objects are worth a thread.
const BIG: usize = 256 * 1024;

/// Why a file could not be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ReadError {
    /// It went since it was found, which is no fault: the next look will not find it.
    #[error("is no longer there")]
    Gone,
    /// Something to tell.
    #[error("{0}")]
    Unusable(String),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Gone,
            _ => Self::Unusable(format!("cannot be read: {error}")),
        }
    }
}

/// A file as it was read.
pub(super) struct Content {
    pub(super) bytes: Vec<u8>,
    /// From before it was read, so that a write in between shows.
    pub(super) signature: Signature,
}

impl Content {
    /// Reads a file of at most so many bytes, or says what kept us from it.
    pub(super) fn read(path: &Path, size_limit: u64) -> Result<Self, ReadError> {
        let too_big =
            || ReadError::Unusable(format!("is bigger than the limit of {size_limit} bytes"));
        // It may have become something else since the tree was walked. Without the flag, to open a pipe would
        // wait for its writer; with it, what we opened can be looked at before it is read.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(ReadError::Unusable("is not a regular file".to_owned()));
        }
        if metadata.len() > size_limit {
            return Err(too_big());
        }
        let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or_default());
        // One byte more than allowed, since the file may have grown since it was measured.
        let mut limited = file.take(size_limit.saturating_add(1));
        limited.read_to_end(&mut bytes)?;
        if bytes.len() as u64 > size_limit {
            return Err(too_big());
        }
        Ok(Self {
            bytes,
            signature: Signature::of(&metadata),
        })
    }

    /// The objects it holds.
    ///
    /// Those of a big file are made by a thread of their own. An allocator keeps memory apart by thread, so what is made there and soon
    /// thrown away does not lie between what stays, and goes back to the system as a whole.
    pub(super) fn decode(&self, format: Format) -> Result<Vec<Decoded>, DecodeError> {
        let decode = || decode(&self.bytes, format);
        if self.bytes.len() < BIG {
            return decode();
        }
        thread::scope(|scope| match scope.spawn(decode).join() {
            Ok(decoded) => decoded,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }
}

/// The objects of a file; none if there is anything wrong with it.
pub(super) fn objects(path: &Path, size_limit: u64) -> impl Iterator<Item = Box<Object>> {
    let decoded = Format::of(path)
        .zip(Content::read(path, size_limit).ok())
        .and_then(|(format, content)| content.decode(format).ok())
        .unwrap_or_default();
    decoded.into_iter().map(|found| found.object)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::mpsc::channel;
    use std::thread;

    use ferrovia_lab::Folder;
    use ferrovia_lab::waiting::SOON;

    use super::{Content, ReadError};

    /// Only here can a pipe be where a file was found: the tree leaves out those it sees.
    #[test]
    fn a_pipe_in_the_place_of_a_file_is_refused_and_does_not_block() {
        let folder = Folder::new();
        let path = folder.join("pipe.yaml");
        let made = Command::new("mkfifo").arg(&path).status();
        assert!(made.is_ok_and(|status| status.success()));
        let (sender, receiver) = channel();
        thread::spawn(move || sender.send(Content::read(&path, 100).err()));
        let answer = receiver.recv_timeout(SOON);
        let refusal = ReadError::Unusable("is not a regular file".to_owned());
        assert_eq!(answer, Ok(Some(refusal)));
    }
}
