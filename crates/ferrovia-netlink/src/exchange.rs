//! Requests and their replies over a [`Socket`].

use crate::uapi::netlink::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR,
};
use crate::{Error, Header, Message, Refusal, Socket, Writer, messages};

/// How often a dump is attempted while the data changes.
const DUMP_ATTEMPTS: usize = 8;

/// The outcome of one attempt to dump.
enum Dump<T> {
    Consistent(T),
    /// Complete, but some object of the subsystem changed during the dump.
    Interrupted(T),
    /// The kernel aborted the dump.
    Aborted,
}

impl Socket {
    /// Sends a request that the kernel answers with one message, which `read` decodes.
    ///
    /// # Errors
    /// If the kernel refuses, or `read` cannot decode the reply.
    pub fn query<T>(
        &mut self,
        kind: u16,
        body: impl FnOnce(&mut Writer),
        read: impl Fn(&Message<'_>) -> Option<T>,
    ) -> Result<T, Error> {
        let seq = self.send_message(
            Header {
                kind,
                flags: NLM_F_REQUEST,
                seq: 0,
            },
            body,
        )?;
        loop {
            // Replies to an earlier request that was given up may still arrive.
            let Some(reply) = messages(self.receive()?).find(|message| message.seq == seq) else {
                continue;
            };
            if let Some(Err(refusal)) = Refusal::read(&reply) {
                return Err(Error::Refused(refusal));
            }
            return read(&reply).ok_or(Error::UnexpectedReply);
        }
    }

    /// Sends a request and waits until the kernel acknowledges it.
    ///
    /// # Errors
    /// If the kernel refuses, or the socket fails.
    pub fn request(
        &mut self,
        kind: u16,
        flags: u16,
        body: impl FnOnce(&mut Writer),
    ) -> Result<(), Error> {
        let header = Header {
            kind,
            flags: NLM_F_REQUEST | NLM_F_ACK | flags,
            seq: 0,
        };
        let seq = self.send_message(header, body)?;
        loop {
            let reply = messages(self.receive()?).find(|message| message.seq == seq);
            if let Some(result) = reply.and_then(|reply| Refusal::read(&reply)) {
                return result.map_err(Error::Refused);
            }
        }
    }

    /// Sends a request that the kernel answers with any number of messages, which `each` folds into a value, and then with an
    /// acknowledgement or a refusal. Messages before a refusal count.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn query_each<T: Default>(
        &mut self,
        kind: u16,
        body: impl FnOnce(&mut Writer),
        mut each: impl FnMut(&mut T, &Message<'_>),
    ) -> Result<(T, Result<(), Refusal>), Error> {
        let header = Header {
            kind,
            flags: NLM_F_REQUEST | NLM_F_ACK,
            seq: 0,
        };
        let seq = self.send_message(header, body)?;
        let mut all = T::default();
        loop {
            for message in messages(self.receive()?).filter(|message| message.seq == seq) {
                match Refusal::read(&message) {
                    Some(end) => return Ok((all, end)),
                    None => each(&mut all, &message),
                }
            }
        }
    }

    /// Dumps all objects of a kind; `each` folds the messages into a value.
    ///
    /// The kernel marks a dump during which *anything* of the subsystem changed (`NLM_F_DUMP_INTR`). Such a dump is repeated a few times. If
    /// other processes never stop writing, the last one is returned as it is: objects that did not change are correct in it.
    ///
    /// # Errors
    /// If the kernel refuses, or aborts every attempt.
    pub fn dump<T: Default>(
        &mut self,
        kind: u16,
        body: impl Fn(&mut Writer),
        mut each: impl FnMut(&mut T, &Message<'_>),
    ) -> Result<T, Error> {
        let mut last = None;
        for _ in 0..DUMP_ATTEMPTS {
            match self.dump_once(kind, &body, &mut each)? {
                Dump::Consistent(all) => return Ok(all),
                Dump::Interrupted(all) => last = Some(all),
                Dump::Aborted => {}
            }
        }
        last.ok_or(Error::DumpInterrupted)
    }

    /// Like [`Self::dump`] with a single attempt that may be inconsistent, for large dumps during which something nearly always changes.
    /// It stops early when `enough` says so; the socket cannot be used after that.
    ///
    /// # Errors
    /// If the kernel refuses, or aborts the dump.
    pub fn dump_inconsistent<T: Default>(
        &mut self,
        kind: u16,
        body: impl FnOnce(&mut Writer),
        mut each: impl FnMut(&mut T, &Message<'_>),
        enough: impl Fn(&T) -> bool,
    ) -> Result<T, Error> {
        match self.dump_until(kind, body, &mut each, enough)? {
            Dump::Consistent(all) | Dump::Interrupted(all) => Ok(all),
            Dump::Aborted => Err(Error::DumpInterrupted),
        }
    }

    fn dump_once<T: Default>(
        &mut self,
        kind: u16,
        body: impl FnOnce(&mut Writer),
        each: &mut impl FnMut(&mut T, &Message<'_>),
    ) -> Result<Dump<T>, Error> {
        self.dump_until(kind, body, each, |_| false)
    }

    fn dump_until<T: Default>(
        &mut self,
        kind: u16,
        body: impl FnOnce(&mut Writer),
        each: &mut impl FnMut(&mut T, &Message<'_>),
        enough: impl Fn(&T) -> bool,
    ) -> Result<Dump<T>, Error> {
        let seq = self.send_message(
            Header {
                kind,
                flags: NLM_F_REQUEST | NLM_F_DUMP,
                seq: 0,
            },
            body,
        )?;
        let mut all = T::default();
        let mut interrupted = false;
        loop {
            for message in messages(self.receive()?).filter(|message| message.seq == seq) {
                interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
                if let Some(Err(refusal)) = Refusal::read(&message) {
                    return match refusal.errno {
                        libc::EINTR => Ok(Dump::Aborted),
                        _ => Err(Error::Refused(refusal)),
                    };
                }
                match message.kind {
                    NLMSG_DONE if interrupted => return Ok(Dump::Interrupted(all)),
                    NLMSG_DONE => return Ok(Dump::Consistent(all)),
                    NLMSG_ERROR => {}
                    _ => each(&mut all, &message),
                }
            }
            if enough(&all) {
                return Ok(Dump::Interrupted(all));
            }
        }
    }

    /// Sends one message and returns its sequence number.
    fn send_message(
        &mut self,
        header: Header,
        body: impl FnOnce(&mut Writer),
    ) -> Result<u32, Error> {
        let seq = self.next_seq();
        self.skip_seqs(1);
        let mut writer = Writer::with_capacity(256);
        writer.message(Header { seq, ..header }, body);
        self.send(&writer.finish()?)?;
        Ok(seq)
    }
}
