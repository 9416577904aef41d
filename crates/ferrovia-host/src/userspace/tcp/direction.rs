//! One direction of a connection: bytes from one socket to the other, and the end of them.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

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
enum Held {
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
enum End {
    /// It may send more.
    #[default]
    Open,
    /// It will send no more; the receiver is yet to be told.
    Read,
    /// The receiver knows.
    Passed,
}

/// One direction.
#[derive(Debug, Default)]
pub(super) struct Direction {
    /// There may be something to read.
    readable: bool,
    /// There may be room to write.
    writable: bool,
    /// An end or an error waits behind what there is to read.
    ending: bool,
    end: End,
    full_copies: u8,
    held: Held,
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
            ..Self::default()
        }
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
        self.end == End::Passed
    }

    /// Moves what can be moved.
    pub(super) fn carry(&mut self, from: &TcpStream, to: &TcpStream, means: &mut Means) -> Moved {
        let mut moved = 0;
        let failed = self.carry_counting(from, to, means, &mut moved).err();
        if (1..SMALL).contains(&moved) && !self.readable {
            self.full_copies = 0;
        }
        Moved {
            bytes: moved,
            more: failed.is_none() && moved >= TURN && self.can_move(),
            failed,
        }
    }

    /// Gives back what was borrowed.
    pub(super) fn release(&mut self, means: &mut Means) {
        if let Held::Piped(pipe) = std::mem::take(&mut self.held) {
            means.pipes.take_back(pipe);
        }
    }

    fn can_move(&self) -> bool {
        self.writable && (self.readable || !matches!(self.held, Held::Nothing))
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
            if !matches!(self.held, Held::Nothing) || self.end == End::Passed {
                return Ok(());
            }
            if self.end == End::Read {
                self.end = End::Passed;
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
        match &mut self.held {
            Held::Nothing => Ok(0),
            _ if !self.writable => Ok(0),
            Held::Bytes { data, given } => {
                let start = *given;
                while *given < data.len() && self.writable {
                    *given += write(to, &data[*given..], &mut self.writable)?;
                }
                let count = (*given - start) as u64;
                if *given == data.len() {
                    self.held = Held::Nothing;
                }
                Ok(count)
            }
            Held::Piped(pipe) => {
                let count = empty(pipe, to, &mut self.writable)?;
                if pipe.is_empty() {
                    self.release(means);
                }
                Ok(count)
            }
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

    fn copy(&mut self, mut from: &TcpStream, to: &TcpStream, buffer: &mut [u8]) -> io::Result<u64> {
        let Some(count) = self.ask_sender(from.read(buffer))? else {
            return Ok(0);
        };
        if count == buffer.len() {
            self.full_copies = self.full_copies.saturating_add(1);
        } else if !self.ending {
            // All that was there: what comes later is told of. This saves asking in vain, once for each message.
            self.readable = false;
        }
        let data = &buffer[..count];
        let mut given = 0;
        while given < count && self.writable {
            given += write(to, &data[given..], &mut self.writable)?;
        }
        if given < count {
            self.held = Held::Bytes {
                data: data[given..].into(),
                given: 0,
            };
        }
        Ok(given as u64)
    }

    fn splice(
        &mut self,
        from: &TcpStream,
        to: &TcpStream,
        mut pipe: Pipe,
        means: &mut Means,
    ) -> io::Result<u64> {
        let filled = pipe.fill(from);
        let given = match self.ask_sender(filled) {
            Ok(Some(_)) => empty(&mut pipe, to, &mut self.writable),
            Ok(None) => Ok(0),
            Err(error) => Err(error),
        };
        if pipe.is_empty() || given.is_err() {
            means.pipes.take_back(pipe);
        } else {
            self.held = Held::Piped(pipe);
        }
        given
    }

    /// What reading gave; nothing if there was nothing, or nothing will be any more.
    fn ask_sender(&mut self, read: io::Result<usize>) -> io::Result<Option<usize>> {
        match read {
            Ok(0) => {
                self.end = End::Read;
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

fn write(mut to: &TcpStream, data: &[u8], writable: &mut bool) -> io::Result<usize> {
    match to.write(data) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            *writable = false;
            Ok(0)
        }
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(0),
        result => result,
    }
}

fn empty(pipe: &mut Pipe, to: &TcpStream, writable: &mut bool) -> io::Result<u64> {
    let mut count = 0;
    while !pipe.is_empty() && *writable {
        match pipe.empty(to) {
            Ok(moved) => count += moved as u64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => *writable = false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

/// Tells the receiver that no more will come. That it has gone is no failure of this direction: there is nothing left to lose.
fn pass_end(to: &TcpStream) -> io::Result<()> {
    match to.shutdown(Shutdown::Write) {
        Err(error) if error.kind() != ErrorKind::NotConnected => Err(error),
        _ => Ok(()),
    }
}
