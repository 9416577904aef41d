//! Many requests without waiting for a reply to each.
//!
//! The kernel processes the requests of a datagram in order and within the sending call. It always reports a refused request and acknowledges
//! an accepted one only with `NLM_F_ACK`. So only the last request of a datagram has that flag: its acknowledgement says that all requests
//! before it have been processed.

use crate::uapi::netlink::{NLM_F_ACK, NLM_F_REQUEST};
use crate::{Error, Header, Refusal, Socket, Writer, messages};

/// Bytes per datagram. A larger datagram saves nothing: the system call is a small part of the work by then.
const DATAGRAM_LEN: usize = 32 << 10;
/// Requests per datagram. If all are refused, the replies must fit into the receive buffer.
const MAX_REQUESTS: usize = 1024;

/// A request of [`Socket::pipeline`].
pub trait Request {
    /// `nlmsg_type`
    fn kind(&self) -> u16;
    /// Flags besides `NLM_F_REQUEST`.
    fn flags(&self) -> u16;
    /// Writes what follows the message header.
    fn write(&self, writer: &mut Writer);
}

/// The position of a request that the kernel refused, and why.
pub type RefusedRequest = (usize, Refusal);

/// The end of an error message that quotes only the first of several refusals.
pub fn and_more(others: usize) -> String {
    match others {
        0 => String::new(),
        others => format!(" (and {others} more)"),
    }
}

impl Socket {
    /// Sends all requests in order and returns those that were refused. The kernel processes the requests after a refused one.
    ///
    /// # Errors
    /// If the socket fails. It is unknown which requests have been processed by then.
    pub fn pipeline(&mut self, requests: &[impl Request]) -> Result<Vec<RefusedRequest>, Error> {
        let mut refused = Vec::new();
        let mut done = 0;
        while let Some(rest) = requests.get(done..).filter(|rest| !rest.is_empty()) {
            let first = self.next_seq();
            let (bytes, count) = datagram(rest, first)?;
            self.skip_seqs(u32::try_from(count).unwrap_or(u32::MAX));
            self.send(&bytes)?;
            self.collect_refusals(first, count, |at, refusal| {
                refused.push((done + at, refusal));
            })?;
            done += count;
        }
        Ok(refused)
    }

    /// Reads replies up to that of the last request.
    fn collect_refusals(
        &mut self,
        first: u32,
        count: usize,
        mut refused: impl FnMut(usize, Refusal),
    ) -> Result<(), Error> {
        loop {
            for reply in messages(self.receive()?) {
                // Sequence numbers of earlier requests wrap to positions beyond the end.
                let at = reply.seq.wrapping_sub(first) as usize;
                let Some(result) = Refusal::read(&reply).filter(|_| at < count) else {
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

/// A datagram with as many requests as fit, at least one, numbered from `first` on; and how many those are.
fn datagram(requests: &[impl Request], first: u32) -> Result<(Vec<u8>, usize), Error> {
    let mut writer = Writer::with_capacity(DATAGRAM_LEN);
    let mut count = 0;
    let mut last = 0;
    for (request, seq) in requests.iter().zip((0..).map(|n| first.wrapping_add(n))) {
        last = writer.len();
        let header = Header {
            kind: request.kind(),
            flags: NLM_F_REQUEST | request.flags(),
            seq,
        };
        writer.message(header, |w| request.write(w));
        count += 1;
        if count == MAX_REQUESTS || writer.len() >= DATAGRAM_LEN {
            break;
        }
    }
    writer.add_flags(last, NLM_F_ACK);
    Ok((writer.finish()?, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct RequestOfLen(usize);

    impl Request for RequestOfLen {
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
    fn only_last_request_of_a_datagram_asks_for_acknowledgement() {
        let requests: Vec<_> = (0..3).map(|_| RequestOfLen(8)).collect();
        let (bytes, count) = datagram(&requests, u32::MAX).unwrap();
        let read: Vec<_> = messages(&bytes).map(|m| (m.seq, m.flags)).collect();
        assert_eq!(count, 3);
        assert_eq!(read, [(u32::MAX, 1), (0, 1), (1, 5)]);
    }

    #[test]
    fn datagrams_are_limited_by_size_and_request_count() {
        let large: Vec<_> = (0..9).map(|_| RequestOfLen(DATAGRAM_LEN / 4)).collect();
        assert_eq!(datagram(&large, 1).unwrap().1, 4);
        let many: Vec<_> = (0..2000).map(|_| RequestOfLen(0)).collect();
        assert_eq!(datagram(&many, 1).unwrap().1, MAX_REQUESTS);
    }
}
