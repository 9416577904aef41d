//! Errors of sockets and requests.

use std::fmt::{self, Display, Formatter};
use std::io;
use std::time::Duration;

use crate::uapi::netlink::{
    NLM_F_ACK_TLVS, NLM_F_CAPPED, NLMSG_DONE, NLMSG_ERROR, NLMSGERR_ATTR_MSG, NLMSGERR_ATTR_OFFS,
};
use crate::{AttributeTooLong, Attrs, Message};

/// A netlink request or socket failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {action}: {cause}")]
    Syscall {
        action: &'static str,
        cause: io::Error,
    },
    /// The kernel replied with an error code.
    #[error("{0}")]
    Refused(Refusal),
    #[error("the kernel did not reply within {0:?}")]
    TimedOut(Duration),
    /// `ENOBUFS`: the receive buffer was full, and the kernel dropped an unknown number of messages.
    #[error("the netlink receive buffer overflowed and messages from the kernel were lost")]
    Overrun,
    /// A datagram was longer than any the kernel should send.
    #[error("a message from the kernel was truncated")]
    Truncated,
    #[error("the kernel sent an unexpected reply")]
    UnexpectedReply,
    /// Other processes changed the data during every attempt to dump it.
    #[error("the data changed during every attempt to read it")]
    DumpInterrupted,
    #[error(transparent)]
    AttributeTooLong(#[from] AttributeTooLong),
}

impl Error {
    /// The error number of the system call or of the kernel's reply.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Syscall { cause, .. } => cause.raw_os_error(),
            Self::Refused(refusal) => Some(refusal.errno),
            _ => None,
        }
    }
}

/// The error code in the kernel's reply to one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Positive.
    pub errno: i32,
    /// `NLMSGERR_ATTR_MSG`.
    pub message: Option<String>,
    /// `NLMSGERR_ATTR_OFFS`: the offset, in the refused message, of the invalid attribute.
    pub offset: Option<usize>,
}

impl Refusal {
    /// Reads the result of a request: none if the message carries no result, `Ok` if it is an acknowledgement.
    pub fn read(message: &Message<'_>) -> Option<Result<(), Self>> {
        match message.kind {
            NLMSG_ERROR => {}
            // The end of a dump carries an error code if the dump failed half-way. Older kernels send none.
            NLMSG_DONE if message.body.len() >= 4 => {}
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
        if message.flags & NLM_F_ACK_TLVS == 0 {
            return refusal;
        }
        // The request follows the error code, complete or only its header, except at the end of a dump.
        let skipped = match (message.kind, rest.first_chunk()) {
            (NLMSG_DONE, _) => 0,
            (_, Some(len)) if message.flags & NLM_F_CAPPED == 0 => {
                (u32::from_ne_bytes(*len) as usize).next_multiple_of(4)
            }
            _ => Message::HEADER_LEN,
        };
        for attr in Attrs::new(rest.get(skipped..).unwrap_or_default()) {
            match attr.kind {
                NLMSGERR_ATTR_MSG => refusal.message = attr.text().map(str::to_owned),
                NLMSGERR_ATTR_OFFS => refusal.offset = attr.u32().map(|offset| offset as usize),
                _ => {}
            }
        }
        refusal
    }
}

impl Display for Refusal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // Without the error number that the standard library appends.
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
    use crate::{Header, Writer, messages};

    /// A reply with message and offset, with or without a copy of the request.
    fn reply(flags: u16, request_len: usize) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.message(
            Header {
                kind: NLMSG_ERROR,
                flags,
                seq: 1,
            },
            |w| {
                w.raw(&(-libc::EEXIST).to_ne_bytes());
                w.raw(&(request_len as u32).to_ne_bytes());
                let copied = if flags & NLM_F_CAPPED == 0 {
                    request_len
                } else {
                    Message::HEADER_LEN
                };
                w.raw(&vec![0; copied - 4]);
                w.text(NLMSGERR_ATTR_MSG, "already there");
                w.bytes(NLMSGERR_ATTR_OFFS, &40_u32.to_ne_bytes());
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
    fn refusal_has_the_errno_text_and_the_kernel_message() {
        let short = read(&reply(NLM_F_CAPPED | NLM_F_ACK_TLVS, 4000));
        assert_eq!(short.to_string(), "File exists (already there)");
        assert_eq!(short.offset, Some(40));
        assert_eq!(read(&reply(NLM_F_ACK_TLVS, 64)), short);
        assert_eq!(read(&reply(NLM_F_CAPPED, 64)).to_string(), "File exists");
    }

    #[test]
    fn acknowledgement_is_not_a_refusal() {
        let mut writer = Writer::new();
        writer.message(
            Header {
                kind: NLMSG_ERROR,
                flags: 0,
                seq: 1,
            },
            |w| w.raw(&[0; 20]),
        );
        writer.message(
            Header {
                kind: NLMSG_DONE,
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
