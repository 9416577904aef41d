//! Many requests, one behind the other, without waiting for an answer to each.
//!
//! The kernel works on the requests of a datagram in order and within the sending call. It answers a refused request in any case and an
//! accepted one only if asked to, so it is asked only with the last of a datagram: that answer says that all before it have been dealt
//! with.

use super::{Error, Header, Refusal, Socket, Writer, flags, messages};

/// How many bytes go into one datagram. A larger one would save nothing: the system call is a small part of the work by then.
const DATAGRAM: usize = 32 << 10;
/// How many requests at most. If each is refused, the answers must find room.
const REQUESTS: usize = 1024;

/// Something the kernel is asked to do.
pub(crate) trait Request {
    /// What kind of message it is.
    fn kind(&self) -> u16;
    /// Flags besides those that every request has.
    fn flags(&self) -> u16;
    /// Writes what follows the message's header.
    fn write(&self, writer: &mut Writer);
}

/// A request, by its position, that the kernel refused.
pub(crate) type Refused = (usize, Refusal);

/// What an error about the first of several refusals says of the others.
pub(crate) fn and_more(others: usize) -> String {
    match others {
        0 => String::new(),
        others => format!(" (and {others} more)"),
    }
}

impl Socket {
    /// Makes all requests in their order. A refused one does not keep the kernel from the following ones; the answer is which were refused.
    ///
    /// # Errors
    /// If the conversation breaks. What has been done by then is unknown.
    pub(crate) fn pipeline(&mut self, requests: &[impl Request]) -> Result<Vec<Refused>, Error> {
        let mut refused = Vec::new();
        let mut done = 0;
        while let Some(rest) = requests.get(done..).filter(|rest| !rest.is_empty()) {
            let first = self.next_seq();
            let (bytes, count) = datagram(rest, first)?;
            self.skip_seqs(u32::try_from(count).unwrap_or(u32::MAX));
            self.send(&bytes)?;
            self.collect(first, count, |at, refusal| {
                refused.push((done + at, refusal));
            })?;
            done += count;
        }
        Ok(refused)
    }

    /// Reads answers up to that of the last request.
    fn collect(
        &mut self,
        first: u32,
        count: usize,
        mut refused: impl FnMut(usize, Refusal),
    ) -> Result<(), Error> {
        loop {
            for answer in messages(self.receive()?) {
                // Numbers of earlier requests are beyond the end, by wrapping.
                let at = answer.seq.wrapping_sub(first) as usize;
                let Some(result) = Refusal::read(&answer).filter(|_| at < count) else {
                    continue;
                };
                if let Err(refusal) = result {
                    refused(at, refusal);
                }
                if at + 1 == count {
                    return Ok(());
                }
            }
        }
    }
}

/// As many requests as fit into a datagram, numbered from `first` on, and how many those are: at least one.
fn datagram(requests: &[impl Request], first: u32) -> Result<(Vec<u8>, usize), Error> {
    let mut writer = Writer::with_capacity(DATAGRAM);
    let mut count = 0;
    let mut last = 0;
    for (request, seq) in requests.iter().zip((0..).map(|n| first.wrapping_add(n))) {
        last = writer.len();
        let header = Header {
            kind: request.kind(),
            flags: flags::REQUEST | request.flags(),
            seq,
        };
        writer.message(header, |w| request.write(w));
        count += 1;
        if count == REQUESTS || writer.len() >= DATAGRAM {
            break;
        }
    }
    writer.add_flags(last, flags::ACK);
    Ok((writer.finish()?, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sized(usize);

    impl Request for Sized {
        fn kind(&self) -> u16 {
            20
        }
        fn flags(&self) -> u16 {
            0
        }
        fn write(&self, writer: &mut Writer) {
            writer.bytes(1, &vec![0; self.0]);
        }
    }

    #[test]
    fn only_the_last_of_a_datagram_asks_for_an_answer() {
        let requests: Vec<_> = (0..3).map(|_| Sized(8)).collect();
        let (bytes, count) = datagram(&requests, u32::MAX).unwrap();
        let read: Vec<_> = messages(&bytes).map(|m| (m.seq, m.flags)).collect();
        assert_eq!(count, 3);
        assert_eq!(read, [(u32::MAX, 1), (0, 1), (1, 5)]);
    }

    #[test]
    fn datagrams_are_cut_by_size_and_number() {
        let large: Vec<_> = (0..9).map(|_| Sized(DATAGRAM / 4)).collect();
        assert_eq!(datagram(&large, 1).unwrap().1, 4);
        let many: Vec<_> = (0..2000).map(|_| Sized(0)).collect();
        assert_eq!(datagram(&many, 1).unwrap().1, REQUESTS);
    }
}
