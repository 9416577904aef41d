//! One direction of a connection: bytes from one socket to the other, and the end of them.

use std::io::{self, ErrorKind, Read};
use std::net::{Shutdown, TcpStream};

use socket2::SockRef;

use super::pipes::{Pipe, Pipes};
use crate::userspace::sys::Ready;

/// What is copied at once.
const COPY: usize = 64 << 10;
/// After so many copies in a row that filled the buffer a flow is a big one.
const BIG_AFTER: u8 = 4;
/// A big flow of which less than this was to be had in one go is a big one no longer.
const SMALL: u64 = 16 << 10;
/// What one flow moves before others have their turn.
const TURN: u64 = 4 << 20;

/// What a thread has for moving bytes, for all of its connections.
pub(super) struct Means {
    buffer: Box<[u8]>,
    pub(super) pipes: Pipes,
}

impl Means {
    pub(super) fn new() -> Self {
        Self {
            buffer: vec![0; COPY].into_boxed_slice(),
            pipes: Pipes::default(),
        }
    }
}

/// Bytes that were taken from the sender and not yet given to the receiver. While there are any nothing is read, which is what slows the
/// sender down.
#[derive(Debug, Default)]
enum BufferedData {
    #[default]
    Nothing,
    Bytes {
        data: Box<[u8]>,
        given: usize,
    },
    Piped(Pipe),
}

/// How the sender stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SenderState {
    /// It may send more.
    #[default]
    Open,
    /// It has shut down its side; the receiver's socket is not shut down yet.
    Read,
    Passed,
}

#[derive(Debug, Default)]
pub(super) struct Direction {
    /// There may be something to read.
    readable: bool,
    /// There may be room to write.
    writable: bool,
    /// An end or an error waits behind what there is to read.
    ending: bool,
    end: SenderState,
    full_copies: u8,
    /// Nothing has reached the receiver yet, not even an end.
    fresh: bool,
    held: BufferedData,
}

/// What came of moving.
#[derive(Debug)]
pub(super) struct Moved {
    /// How many bytes reached the receiver.
    pub(super) bytes: u64,
    /// The direction has more to move and had its turn.
    pub(super) more: bool,
    /// Why nothing more can be moved, ever.
    pub(super) failed: Option<io::Error>,
}

impl Direction {
    /// A direction in which both sockets have yet to be asked.
    pub(super) fn open() -> Self {
        Self {
            readable: true,
            writable: true,
            fresh: true,
            ..Self::default()
        }
    }

    /// Nothing has reached the receiver yet, not even an end.
    pub(super) fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// Something happened at the sender.
    pub(super) fn note_sender(&mut self, ready: Ready) {
        self.readable |= ready.readable();
        self.ending |= ready.ended();
    }

    /// Something happened at the receiver.
    pub(super) fn note_receiver(&mut self, ready: Ready) {
        self.writable |= ready.writable() || ready.failed();
    }

    /// All was moved, and the receiver knows that it was.
    pub(super) fn is_done(&self) -> bool {
        self.end == SenderState::Passed
    }

    /// Moves what can be moved.
    pub(super) fn carry(&mut self, from: &TcpStream, to: &TcpStream, means: &mut Means) -> Moved {
        let mut moved = 0;
        let failed = self.carry_counting(from, to, means, &mut moved).err();
        if (1..SMALL).contains(&moved) && !self.readable {
            self.full_copies = 0;
        }
        self.fresh &= moved == 0 && self.end != SenderState::Passed;
        Moved {
            bytes: moved,
            more: failed.is_none() && moved >= TURN && self.can_move(),
            failed,
        }
    }

    /// Gives back what was borrowed.
    pub(super) fn release(&mut self, means: &mut Means) {
        if let BufferedData::Piped(pipe) = std::mem::take(&mut self.held) {
            means.pipes.take_back(pipe);
        }
    }

    fn can_move(&self) -> bool {
        self.writable && (self.readable || !matches!(self.held, BufferedData::Nothing))
    }

    fn carry_counting(
        &mut self,
        from: &TcpStream,
        to: &TcpStream,
        means: &mut Means,
        moved: &mut u64,
    ) -> io::Result<()> {
        while *moved < TURN {
            *moved += self.give(to, means)?;
            if !matches!(self.held, BufferedData::Nothing) || self.end == SenderState::Passed {
                return Ok(());
            }
            if self.end == SenderState::Read {
                self.end = SenderState::Passed;
                return pass_end(to);
            }
            if !self.readable || !self.writable {
                return Ok(());
            }
            *moved += self.take(from, to, means)?;
        }
        Ok(())
    }

    /// Gives the receiver what is held.
    fn give(&mut self, to: &TcpStream, means: &mut Means) -> io::Result<u64> {
        if !self.writable {
            return Ok(0);
        }
        match std::mem::take(&mut self.held) {
            BufferedData::Nothing => Ok(0),
            BufferedData::Bytes { data, given } => {
                let count = self.write(to, &data[given..])?;
                let given = given + count;
                if given < data.len() {
                    self.held = BufferedData::Bytes { data, given };
                }
                Ok(count as u64)
            }
            BufferedData::Piped(pipe) => self.drain(pipe, to, means),
        }
    }

    /// Takes from the sender and gives to the receiver.
    fn take(&mut self, from: &TcpStream, to: &TcpStream, means: &mut Means) -> io::Result<u64> {
        if self.full_copies >= BIG_AFTER
            && let Some(pipe) = means.pipes.lend()
        {
            return self.splice(from, to, pipe, means);
        }
        self.copy(from, to, &mut means.buffer)
    }

    fn copy(&mut self, from: &TcpStream, to: &TcpStream, buffer: &mut [u8]) -> io::Result<u64> {
        let Some(mut count) = self.ask_sender((&*from).read(buffer))? else {
            return Ok(0);
        };
        let mut failed = Ok(());
        if count == buffer.len() {
            self.full_copies = self.full_copies.saturating_add(1);
        } else if self.ending {
            // The end mostly comes with the last bytes. Seen at once, it can travel with them.
            match self.ask_sender((&*from).read(&mut buffer[count..])) {
                Ok(more) => count += more.unwrap_or(0),
                Err(error) => failed = Err(error),
            }
        } else {
            // All available data was read, and epoll reports later data. This saves a futile read for each message.
            self.readable = false;
        }
        let data = &buffer[..count];
        let given = self.write(to, data)?;
        if given < count {
            self.held = BufferedData::Bytes {
                data: data[given..].into(),
                given: 0,
            };
        }
        // What was said before a failure has been passed on.
        failed.map(|()| given as u64)
    }

    /// Writes as much as there is room for. If nothing comes after it the last packet waits for the end, which follows at once: a packet less,
    /// and a receiver that is woken once.
    fn write(&mut self, to: &TcpStream, data: &[u8]) -> io::Result<usize> {
        let flags = match self.end {
            SenderState::Read => libc::MSG_MORE,
            SenderState::Open | SenderState::Passed => 0,
        };
        let mut given = 0;
        while given < data.len() && self.writable {
            match SockRef::from(to).send_with_flags(&data[given..], flags | libc::MSG_NOSIGNAL) {
                Ok(count) => given += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(given)
    }

    fn splice(
        &mut self,
        from: &TcpStream,
        to: &TcpStream,
        mut pipe: Pipe,
        means: &mut Means,
    ) -> io::Result<u64> {
        match self.ask_sender(pipe.fill(from)) {
            Ok(Some(_)) => self.drain(pipe, to, means),
            nothing => {
                means.pipes.take_back(pipe);
                nothing.map(|_| 0)
            }
        }
    }

    /// Gives the receiver what is in a pipe. One that is empty then goes back; one that is not is held.
    fn drain(&mut self, mut pipe: Pipe, to: &TcpStream, means: &mut Means) -> io::Result<u64> {
        let mut count = 0;
        while !pipe.is_empty() && self.writable {
            match pipe.empty(to) {
                Ok(moved) => count += moved as u64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    means.pipes.take_back(pipe);
                    return Err(error);
                }
            }
        }
        if pipe.is_empty() {
            means.pipes.take_back(pipe);
        } else {
            self.held = BufferedData::Piped(pipe);
        }
        Ok(count)
    }

    /// What reading gave; nothing if there was nothing, or nothing will be any more.
    fn ask_sender(&mut self, read: io::Result<usize>) -> io::Result<Option<usize>> {
        match read {
            Ok(0) => {
                self.end = SenderState::Read;
                Ok(None)
            }
            Ok(count) => Ok(Some(count)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                Ok(None)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Shuts the receiver's socket down for writing. If the receiver has disconnected, that is no failure of this direction.
fn pass_end(to: &TcpStream) -> io::Result<()> {
    match to.shutdown(Shutdown::Write) {
        Err(error) if error.kind() != ErrorKind::NotConnected => Err(error),
        _ => Ok(()),
    }
}
