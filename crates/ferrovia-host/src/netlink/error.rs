//! What can go wrong between us and the kernel.

use std::fmt::{self, Display, Formatter};
use std::io;
use std::time::Duration;

use super::{Message, TooLong, control, flags};

/// A conversation with the kernel failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("cannot {action}: {cause}")]
    Call {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        cause: io::Error,
    },
    /// The kernel understood and said no.
    #[error("{0}")]
    Refused(Refusal),
    /// The kernel should have answered by now.
    #[error("the kernel did not answer within {0:?}")]
    TimedOut(Duration),
    /// More was sent to us than we could hold; what it was is unknown.
    #[error("messages of the kernel were lost")]
    Lost,
    /// A datagram was longer than any the kernel should send.
    #[error("a message of the kernel was cut short")]
    Truncated,
    /// An answer came, but not one to the question.
    #[error("the kernel's answer makes no sense")]
    Senseless,
    /// What is being read was changed by someone else every time we tried.
    #[error("it kept changing while it was read")]
    KeepsChanging,
    /// What was to be sent cannot be put into a message.
    #[error(transparent)]
    TooLong(#[from] TooLong),
}

impl Error {
    /// The system's error number, if there is one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Call { cause, .. } => cause.raw_os_error(),
            Self::Refused(refusal) => Some(refusal.errno),
            _ => None,
        }
    }
}

/// The kernel's "no" to one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The error number, positive.
    pub errno: i32,
    /// The kernel's own words, where it has any.
    pub message: Option<String>,
    /// Where in the refused message the attribute stands that the kernel did not like.
    pub offset: Option<usize>,
}

impl Refusal {
    /// Attributes of an answer.
    const MESSAGE: u16 = 1;
    const OFFSET: u16 = 2;

    /// Reads an answer: none if the message is not one, `Ok` if it is an acknowledgement.
    pub fn read(message: &Message<'_>) -> Option<Result<(), Self>> {
        match message.kind {
            control::ERROR => {}
            // A dump that fails half-way says so at its end; older kernels send no number at all.
            control::DONE if message.body.len() >= 4 => {}
            _ => return None,
        }
        let (code, rest) = message.body.split_first_chunk()?;
        let errno = i32::from_ne_bytes(*code)
            .checked_neg()
            .filter(|&errno| errno != 0);
        Some(errno.map_or(Ok(()), |errno| {
            Err(Self::with_attributes(errno, message, rest))
        }))
    }

    fn with_attributes(errno: i32, message: &Message<'_>, rest: &[u8]) -> Self {
        let mut refusal = Self {
            errno,
            message: None,
            offset: None,
        };
        if message.flags & flags::ACK_TLVS == 0 {
            return refusal;
        }
        // Behind the number stands the request, whole or only its header, except at the end of a
        // dump.
        let skipped = match (message.kind, rest.first_chunk()) {
            (control::DONE, _) => 0,
            (_, Some(len)) if message.flags & flags::CAPPED == 0 => {
                (u32::from_ne_bytes(*len) as usize).next_multiple_of(4)
            }
            _ => Message::HEADER_LEN,
        };
        for attr in super::Attrs::new(rest.get(skipped..).unwrap_or_default()) {
            match attr.kind {
                Self::MESSAGE => refusal.message = attr.text().map(str::to_owned),
                Self::OFFSET => refusal.offset = attr.u32().map(|offset| offset as usize),
                _ => {}
            }
        }
        refusal
    }
}

impl Display for Refusal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // The standard library appends the number in brackets, which would only be noise here.
        let text = io::Error::from_raw_os_error(self.errno).to_string();
        f.write_str(text.split(" (os error").next().unwrap_or(&text))?;
        match &self.message {
            Some(message) => write!(f, " ({message})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{Header, Writer, messages};

    /// An answer with the kernel's words and an offset, as it is with or without a copy of the
    /// request.
    fn answer(flags: u16, request_len: usize) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.message(
            Header {
                kind: control::ERROR,
                flags,
                seq: 1,
            },
            |w| {
                w.raw(&(-libc::EEXIST).to_ne_bytes());
                w.raw(&(request_len as u32).to_ne_bytes());
                let copied = if flags & flags::CAPPED == 0 {
                    request_len
                } else {
                    Message::HEADER_LEN
                };
                w.raw(&vec![0; copied - 4]);
                w.text(Refusal::MESSAGE, "already there");
                w.bytes(Refusal::OFFSET, &40_u32.to_ne_bytes());
            },
        );
        writer.finish().unwrap()
    }

    fn read(bytes: &[u8]) -> Refusal {
        Refusal::read(&messages(bytes).next().unwrap())
            .unwrap()
            .unwrap_err()
    }

    #[test]
    fn a_refusal_reads_as_a_sentence() {
        let short = read(&answer(flags::CAPPED | flags::ACK_TLVS, 4000));
        assert_eq!(short.to_string(), "File exists (already there)");
        assert_eq!(short.offset, Some(40));
        assert_eq!(read(&answer(flags::ACK_TLVS, 64)), short);
        assert_eq!(read(&answer(flags::CAPPED, 64)).to_string(), "File exists");
    }

    #[test]
    fn an_acknowledgement_is_no_refusal() {
        let mut writer = Writer::new();
        writer.message(
            Header {
                kind: control::ERROR,
                flags: 0,
                seq: 1,
            },
            |w| w.raw(&[0; 20]),
        );
        writer.message(
            Header {
                kind: control::DONE,
                flags: 0,
                seq: 1,
            },
            |_| {},
        );
        let bytes = writer.finish().unwrap();
        let read: Vec<_> = messages(&bytes)
            .map(|message| Refusal::read(&message))
            .collect();
        assert_eq!(read, [Some(Ok(())), None]);
    }
}
