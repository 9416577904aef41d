//! Cuts a watch in protobuf into its frames: four bytes of length, the highest first, then an event.

/// An event as it came.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) enum Frame<'a> {
    /// All of it.
    Whole(&'a [u8]),
    /// Longer than allowed. Its beginning may say what it was about; the rest was dropped as it came.
    TooLong(&'a [u8]),
}

/// A length that no event has, so these are no frames. There is no way to find the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a watch frame of {0} bytes")]
pub(in super::super) struct FrameTooLarge(u32);

/// Collects a frame that came in pieces.
#[derive(Debug)]
pub(in super::super) struct Frames {
    limit: usize,
    header: [u8; HEADER],
    header_length: usize,
    /// The length of the frame that is being read.
    length: Option<usize>,
    /// How much of it has come.
    seen: usize,
    taken: Vec<u8>,
}

const HEADER: usize = 4;

/// A frame of so many times the longest event is not skipped but ends the watch.
const SKIPPED: usize = 16;

/// How much is kept of a frame that is too long.
const BEGINNING: usize = 4096;

/// What the buffer keeps of its size after a long frame.
const KEPT: usize = 64 * 1024;

impl Frames {
    pub(in super::super) fn new(limit: usize) -> Self {
        Self {
            limit,
            header: [0; HEADER],
            header_length: 0,
            length: None,
            seen: 0,
            taken: Vec::new(),
        }
    }

    /// Takes in a piece and hands over every frame that it completes.
    pub(in super::super) fn feed(
        &mut self,
        mut piece: &[u8],
        each: &mut dyn FnMut(Frame<'_>),
    ) -> Result<(), FrameTooLarge> {
        loop {
            let Some(length) = self.length else {
                if piece.is_empty() {
                    return Ok(());
                }
                piece = self.read_length(piece)?;
                continue;
            };
            let missing = length - self.seen;
            if piece.len() < missing {
                self.keep(length, piece);
                self.seen += piece.len();
                return Ok(());
            }
            let (end, rest) = piece.split_at(missing);
            if self.seen == 0 && length <= self.limit {
                each(Frame::Whole(end));
            } else {
                self.keep(length, end);
                each(if length > self.limit {
                    Frame::TooLong(&self.taken)
                } else {
                    Frame::Whole(&self.taken)
                });
            }
            self.start_over();
            piece = rest;
        }
    }

    /// The stream may have ended in the middle of a frame.
    pub(in super::super) fn is_half(&self) -> bool {
        self.header_length > 0
    }

    fn read_length<'a>(&mut self, piece: &'a [u8]) -> Result<&'a [u8], FrameTooLarge> {
        let missing = (HEADER - self.header_length).min(piece.len());
        let (now, rest) = piece.split_at(missing);
        self.header[self.header_length..][..missing].copy_from_slice(now);
        self.header_length += missing;
        if self.header_length == HEADER {
            let length = u32::from_be_bytes(self.header);
            let bytes = usize::try_from(length).unwrap_or(usize::MAX);
            if bytes > self.limit.saturating_mul(SKIPPED) {
                return Err(FrameTooLarge(length));
            }
            self.length = Some(bytes);
        }
        Ok(rest)
    }

    fn keep(&mut self, length: usize, piece: &[u8]) {
        let limit = if length > self.limit {
            BEGINNING.min(self.limit)
        } else {
            length
        };
        let room = limit - self.taken.len();
        self.taken
            .extend_from_slice(&piece[..piece.len().min(room)]);
    }

    fn start_over(&mut self) {
        self.header_length = 0;
        self.length = None;
        self.seen = 0;
        self.taken.clear();
        self.taken.shrink_to(KEPT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(limit: usize, pieces: &[&[u8]]) -> Result<(Vec<String>, bool), FrameTooLarge> {
        let mut frames = Frames::new(limit);
        let mut out = Vec::new();
        for piece in pieces {
            frames.feed(piece, &mut |frame| {
                out.push(match frame {
                    Frame::Whole(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                    Frame::TooLong(bytes) => format!("{}…", String::from_utf8_lossy(bytes)),
                });
            })?;
        }
        Ok((out, frames.is_half()))
    }

    const STREAM: &[u8] = b"\0\0\0\x03one\0\0\0\0\0\0\0\x06longer\0\0\0\x02ok";

    #[test]
    fn frames_are_whole_however_they_were_cut() {
        let whole = fed(100, &[STREAM]).unwrap();
        assert_eq!(whole.0, ["one", "", "longer", "ok"]);
        for cut in 0..=STREAM.len() {
            let (before, after) = STREAM.split_at(cut);
            assert_eq!(fed(100, &[before, after]).unwrap(), whole);
        }
        let bytes: Vec<_> = STREAM.chunks(1).collect();
        assert_eq!(fed(100, &bytes).unwrap(), whole);
    }

    #[test]
    fn an_overlong_frame_costs_its_limit_and_only_itself() {
        let expected = ["one", "", "long…", "ok"];
        assert_eq!(fed(4, &[STREAM]).unwrap().0, expected);
        let bytes: Vec<_> = STREAM.chunks(1).collect();
        assert_eq!(fed(4, &bytes).unwrap().0, expected);
    }

    #[test]
    fn a_length_that_no_event_has_is_no_frame() {
        assert_eq!(
            fed(4, &[b"\xff\xff\xff\xffx"]),
            Err(FrameTooLarge(u32::MAX))
        );
        assert_eq!(fed(4, &[b"\0\0\0\x41"]), Err(FrameTooLarge(65)));
        assert!(fed(4, &[b"\0\0\0\x40"]).is_ok());
    }

    #[test]
    fn half_a_frame_is_noticed() {
        for end in 0..STREAM.len() {
            let is_boundary = [0, 7, 11, 21].contains(&end);
            assert_eq!(
                fed(100, &[&STREAM[..end]]).unwrap().1,
                !is_boundary,
                "cut at {end}"
            );
        }
    }

    #[test]
    fn the_buffer_does_not_stay_large() {
        let mut frames = Frames::new(1 << 20);
        frames.feed(&[0, 0x10, 0, 0], &mut |_| {}).unwrap();
        frames
            .feed(&vec![b'x'; (1 << 20) - 1], &mut |_| {})
            .unwrap();
        frames.feed(b"x", &mut |_| {}).unwrap();
        assert!(!frames.is_half());
        assert!(frames.taken.capacity() <= KEPT);
    }
}
