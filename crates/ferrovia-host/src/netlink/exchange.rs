//! Questions and answers over a [`Socket`].

use super::{Error, Header, Message, Refusal, Socket, Writer, control, flags, messages};

/// How often a dump is started anew because something changed under it.
const ATTEMPTS: usize = 8;

/// What came of a dump.
enum Dump<T> {
    /// All of it belongs together.
    Consistent(T),
    /// Something, perhaps something else, changed meanwhile.
    Interrupted(T),
    /// The kernel gave up in the middle.
    Broken,
}

impl Socket {
    /// Asks one question that is answered by one message, which `read` looks at.
    ///
    /// # Errors
    /// If the kernel refuses, or the answer is not one.
    pub fn ask<T>(
        &mut self,
        kind: u16,
        body: impl FnOnce(&mut Writer),
        read: impl Fn(&Message<'_>) -> Option<T>,
    ) -> Result<T, Error> {
        let seq = self.put(
            Header {
                kind,
                flags: flags::REQUEST,
                seq: 0,
            },
            body,
        )?;
        loop {
            // An earlier question that was given up may still be answered; that is not for us.
            let Some(answer) = messages(self.receive()?).find(|message| message.seq == seq) else {
                continue;
            };
            if let Some(Err(refusal)) = Refusal::read(&answer) {
                return Err(Error::Refused(refusal));
            }
            return read(&answer).ok_or(Error::Senseless);
        }
    }

    /// Asks for one change and waits for the kernel's word on it.
    ///
    /// # Errors
    /// If the kernel refuses, or the conversation breaks.
    pub(crate) fn request(
        &mut self,
        kind: u16,
        how: u16,
        body: impl FnOnce(&mut Writer),
    ) -> Result<(), Error> {
        let header = Header {
            kind,
            flags: flags::REQUEST | flags::ACK | how,
            seq: 0,
        };
        let seq = self.put(header, body)?;
        loop {
            let answer = messages(self.receive()?).find(|message| message.seq == seq);
            if let Some(word) = answer.and_then(|answer| Refusal::read(&answer)) {
                return word.map_err(Error::Refused);
            }
        }
    }

    /// Asks one question that is answered by any number of messages, which `each` folds into a value, and then by an end or a refusal. What
    /// was answered before a refusal stands.
    ///
    /// # Errors
    /// If the conversation breaks.
    pub fn ask_each<T: Default>(
        &mut self,
        kind: u16,
        body: impl FnOnce(&mut Writer),
        mut each: impl FnMut(&mut T, &Message<'_>),
    ) -> Result<(T, Result<(), Refusal>), Error> {
        let header = Header {
            kind,
            flags: flags::REQUEST | flags::ACK,
            seq: 0,
        };
        let seq = self.put(header, body)?;
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

    /// Asks for all there is of something; `each` folds the messages into a value.
    ///
    /// The kernel marks an answer during which *anything* of the subsystem changed. Such a dump is started anew a few times; where others
    /// never stop writing, the last answer is taken as it is, because what nobody touched is right all the same.
    ///
    /// # Errors
    /// If the kernel refuses, or cannot give a whole answer.
    pub fn dump<T: Default>(
        &mut self,
        kind: u16,
        body: impl Fn(&mut Writer),
        mut each: impl FnMut(&mut T, &Message<'_>),
    ) -> Result<T, Error> {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            match self.dump_once(kind, &body, &mut each)? {
                Dump::Consistent(all) => return Ok(all),
                Dump::Interrupted(all) => last = Some(all),
                Dump::Broken => {}
            }
        }
        last.ok_or(Error::KeepsChanging)
    }

    /// The same, taken as it comes: for large answers that need not belong together, under which something nearly always changes.
    /// `enough` can end it early; the socket is of no use after that.
    ///
    /// # Errors
    /// If the kernel refuses, or gives up in the middle.
    pub fn dump_loosely<T: Default>(
        &mut self,
        kind: u16,
        body: impl FnOnce(&mut Writer),
        mut each: impl FnMut(&mut T, &Message<'_>),
        enough: impl Fn(&T) -> bool,
    ) -> Result<T, Error> {
        match self.dump_until(kind, body, &mut each, enough)? {
            Dump::Consistent(all) | Dump::Interrupted(all) => Ok(all),
            Dump::Broken => Err(Error::KeepsChanging),
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
        let seq = self.put(
            Header {
                kind,
                flags: flags::REQUEST | flags::DUMP,
                seq: 0,
            },
            body,
        )?;
        let mut all = T::default();
        let mut interrupted = false;
        loop {
            for message in messages(self.receive()?).filter(|message| message.seq == seq) {
                interrupted |= message.flags & flags::DUMP_INTR != 0;
                if let Some(Err(refusal)) = Refusal::read(&message) {
                    return match refusal.errno {
                        libc::EINTR => Ok(Dump::Broken),
                        _ => Err(Error::Refused(refusal)),
                    };
                }
                match message.kind {
                    control::DONE if interrupted => return Ok(Dump::Interrupted(all)),
                    control::DONE => return Ok(Dump::Consistent(all)),
                    control::ERROR => {}
                    _ => each(&mut all, &message),
                }
            }
            if enough(&all) {
                return Ok(Dump::Interrupted(all));
            }
        }
    }

    /// Sends one message under a fresh sequence number, which is returned.
    fn put(&mut self, header: Header, body: impl FnOnce(&mut Writer)) -> Result<u32, Error> {
        let seq = self.next_seq();
        self.skip_seqs(1);
        let mut writer = Writer::with_capacity(256);
        writer.message(Header { seq, ..header }, body);
        self.send(&writer.finish()?)?;
        Ok(seq)
    }
}
