//! Pipes that flows borrow while they have bytes in them.

use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;

use crate::userspace::sys;

/// How much a pipe holds. Larger ones save wake-ups, but their bytes fall out of the processor's cache on the way.
const SIZE: usize = 1 << 20;
/// How many a thread keeps ready. Flows have one only while they move, so few are in use at once.
const KEPT: usize = 4;
/// How many may be in use at once: by flows whose receiver is slow. Others copy.
const MOST: usize = 64;

/// A pipe and how many bytes are in it.
#[derive(Debug)]
pub(super) struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    held: usize,
}

impl Pipe {
    /// Whether it holds nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Takes what a socket has.
    pub(super) fn fill(&mut self, from: &TcpStream) -> io::Result<usize> {
        let moved = sys::splice(from, &self.write, SIZE)?;
        self.held += moved;
        Ok(moved)
    }

    /// Gives what it holds to a socket, or as much as that takes.
    pub(super) fn empty(&mut self, to: &TcpStream) -> io::Result<usize> {
        let moved = sys::splice(&self.read, to, self.held)?;
        self.held = self.held.saturating_sub(moved);
        Ok(moved)
    }
}

#[derive(Debug, Default)]
pub(super) struct Pipes {
    ready: Vec<Pipe>,
    lent: usize,
}

impl Pipes {
    /// An empty pipe; none if too many are in use, or the system has none.
    pub(super) fn lend(&mut self) -> Option<Pipe> {
        if self.lent >= MOST {
            return None;
        }
        let pipe = self.ready.pop().or_else(|| {
            let (read, write) = sys::pipe(SIZE).ok()?;
            let held = 0;
            Some(Pipe { read, write, held })
        })?;
        self.lent += 1;
        Some(pipe)
    }

    /// Takes a pipe back. One that holds bytes of a connection that ended is of no more use.
    pub(super) fn take_back(&mut self, pipe: Pipe) {
        self.lent = self.lent.saturating_sub(1);
        if pipe.is_empty() && self.ready.len() < KEPT {
            self.ready.push(pipe);
        }
    }
}
