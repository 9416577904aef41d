//! Cuts a stream of bytes into lines, each of bounded length.

/// A line without its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// As it came.
    Whole(&'a [u8]),
    /// Longer than allowed. Its beginning may say what it was about; the rest was thrown away as it came.
    TooLong(&'a [u8]),
}

/// Collects a line that came in pieces.
#[derive(Debug)]
pub(super) struct Lines {
    limit: usize,
    rest: Vec<u8>,
    is_overlong: bool,
}

/// What the buffer keeps of its size after a long line.
const KEPT: usize = 64 * 1024;

impl Lines {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            rest: Vec::new(),
            is_overlong: false,
        }
    }

    /// Takes in a piece and tells every line that it completes.
    pub(super) fn feed(&mut self, mut piece: &[u8], each: &mut dyn FnMut(Line<'_>)) {
        while let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = (&piece[..end], &piece[end + 1..]);
            if self.rest.is_empty() && line.len() <= self.limit {
                each(Line::Whole(line));
            } else {
                self.keep(line);
                each(if self.is_overlong {
                    Line::TooLong(&self.rest)
                } else {
                    Line::Whole(&self.rest)
                });
                self.start_anew();
            }
            piece = rest;
        }
        self.keep(piece);
    }

    /// The stream may have ended in the middle of a line.
    pub(super) fn is_half(&self) -> bool {
        !self.rest.is_empty()
    }

    fn keep(&mut self, piece: &[u8]) {
        let room = self.limit - self.rest.len();
        self.is_overlong |= piece.len() > room;
        self.rest.extend_from_slice(&piece[..piece.len().min(room)]);
    }

    fn start_anew(&mut self) {
        self.rest.clear();
        self.rest.shrink_to(KEPT);
        self.is_overlong = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(limit: usize, pieces: &[&str]) -> (Vec<String>, bool) {
        let mut lines = Lines::new(limit);
        let mut out = Vec::new();
        for piece in pieces {
            lines.feed(piece.as_bytes(), &mut |line| {
                out.push(match line {
                    Line::Whole(text) => String::from_utf8_lossy(text).into_owned(),
                    Line::TooLong(text) => format!("{}…", String::from_utf8_lossy(text)),
                });
            });
        }
        (out, lines.is_half())
    }

    #[test]
    fn lines_come_whole_however_they_were_cut() {
        let text = "one\ntwo\n\nthree\n";
        let whole = fed(100, &[text]);
        assert_eq!(whole.0, ["one", "two", "", "three"]);
        for cut in 0..=text.len() {
            let (before, after) = text.split_at(cut);
            assert_eq!(fed(100, &[before, after]), whole);
        }
        let bytes: Vec<_> = text.split("").collect();
        assert_eq!(fed(100, &bytes), whole);
    }

    #[test]
    fn an_overlong_line_costs_its_limit_and_only_itself() {
        assert_eq!(fed(4, &["four\nlonger\nok\n"]).0, ["four", "long…", "ok"]);
        assert_eq!(fed(4, &["lo", "ng", "e", "r", "\nok\n"]).0, ["long…", "ok"]);
    }

    #[test]
    fn half_a_line_is_noticed() {
        assert!(fed(10, &["one\ntw"]).1);
        assert!(!fed(10, &["one\n"]).1);
    }

    #[test]
    fn the_buffer_does_not_stay_large() {
        let mut lines = Lines::new(1 << 20);
        lines.feed(&vec![b'x'; 1 << 20], &mut |_| {});
        lines.feed(b"\n", &mut |_| {});
        assert!(lines.rest.capacity() <= KEPT);
    }
}
