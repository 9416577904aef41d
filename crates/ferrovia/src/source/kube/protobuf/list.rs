//! Cuts a list in protobuf into its items while it comes, so that no more than one item is ever held.
//!
//! ```text
//! k8s\0 ─▶ envelope { 1: type, 2: raw, … } ─▶ list { 1: metadata, 2: item, 2: item, … }
//! ```
//!
//! This looks only at keys and lengths; the items themselves are for the decoder to judge.

use ferrovia_core::wire::protobuf::MAGIC;

use super::super::items::{NoList, Part};
use super::fields::{Encoded, Key, Malformed, Varint};

/// Where we are in the list.
#[derive(Debug)]
pub(in super::super) struct List {
    limit: usize,
    state: State,
    number: Varint,
    /// How much of the list itself is still to come; nothing before it begins.
    left: Option<u64>,
    taken: Vec<u8>,
    is_done: bool,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The bytes of [`MAGIC`] from here on.
    Magic(usize),
    Key,
    /// The length of this field.
    Length(u64),
    /// A number that is not needed.
    Number,
    /// So many bytes that are not needed.
    Skipped(u64),
    Taken(Taken),
}

/// A part that is worth taking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Taken {
    is_item: bool,
    length: u64,
    seen: u64,
}

/// The list within its envelope.
const RAW: u64 = 2;

/// Of every list.
const METADATA: u64 = 1;
const ITEM: u64 = 2;

/// How much is kept of an item that is too long.
const BEGINNING: usize = 4096;

/// What the buffer keeps of its size after a long item.
const KEPT: usize = 64 * 1024;

impl From<Malformed> for NoList {
    fn from(Malformed: Malformed) -> Self {
        Self
    }
}

impl List {
    pub(in super::super) fn new(limit: usize) -> Self {
        Self {
            limit,
            state: State::Magic(0),
            number: Varint::default(),
            left: None,
            taken: Vec::new(),
            is_done: false,
        }
    }

    /// All of the list has come.
    pub(in super::super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Takes in a piece and hands over the parts that it completes.
    pub(in super::super) fn feed(
        &mut self,
        mut piece: &[u8],
        each: &mut dyn FnMut(Part<'_>),
    ) -> Result<(), NoList> {
        // What follows the list in its envelope means nothing to us.
        while !piece.is_empty() && !self.is_done {
            let wanted = match self.state {
                State::Skipped(left) => left,
                State::Taken(part) => part.length - part.seen,
                _ => 1,
            };
            let available = wanted.min(piece.len() as u64);
            self.left = match self.left {
                Some(left) => Some(left.checked_sub(available).ok_or(NoList)?),
                None => None,
            };
            // It fits: it is not longer than the piece.
            let (now, rest) = piece.split_at(available as usize);
            self.take(now, each)?;
            self.end()?;
            piece = rest;
        }
        Ok(())
    }

    fn take(&mut self, now: &[u8], each: &mut dyn FnMut(Part<'_>)) -> Result<(), NoList> {
        match (self.state, now) {
            (State::Skipped(left), _) => self.state = skipped(left - now.len() as u64),
            (State::Taken(part), _) => self.take_part(part, now, each),
            (State::Magic(at), [byte]) if MAGIC.get(at) == Some(byte) => {
                let is_last = at + 1 == MAGIC.len();
                self.state = if is_last {
                    State::Key
                } else {
                    State::Magic(at + 1)
                };
            }
            (State::Magic(_), _) => return Err(NoList),
            (_, bytes) => {
                for byte in bytes {
                    if let Some(number) = self.number.push(*byte)? {
                        self.take_number(number, each)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn take_number(&mut self, number: u64, each: &mut dyn FnMut(Part<'_>)) -> Result<(), NoList> {
        self.state = match self.state {
            State::Length(field) => return self.begin(field, number, each),
            State::Key => {
                let Key { field, value } = Key::of(number)?;
                match value {
                    Encoded::Delimited => State::Length(field),
                    Encoded::Varint => State::Number,
                    Encoded::Fixed(length) => State::Skipped(length as u64),
                }
            }
            _ => State::Key,
        };
        Ok(())
    }

    /// A field of this length begins.
    fn begin(
        &mut self,
        field: u64,
        length: u64,
        each: &mut dyn FnMut(Part<'_>),
    ) -> Result<(), NoList> {
        let is_wanted = match self.left {
            None if field == RAW => {
                self.left = Some(length);
                self.state = State::Key;
                return Ok(());
            }
            None => false,
            Some(left) if length > left => return Err(NoList),
            Some(_) => matches!(field, METADATA | ITEM),
        };
        if !is_wanted {
            self.state = skipped(length);
            return Ok(());
        }
        let part = Taken {
            is_item: field == ITEM,
            length,
            seen: 0,
        };
        self.state = State::Taken(part);
        if length == 0 {
            self.take_part(part, &[], each);
        }
        Ok(())
    }

    fn take_part(&mut self, part: Taken, now: &[u8], each: &mut dyn FnMut(Part<'_>)) {
        let seen = part.seen + now.len() as u64;
        let is_overlong = part.length > self.limit as u64;
        if seen < part.length || part.seen > 0 || is_overlong {
            let limit = if is_overlong {
                BEGINNING.min(self.limit)
            } else {
                self.limit
            };
            let room = limit - self.taken.len();
            self.taken.extend_from_slice(&now[..now.len().min(room)]);
        }
        if seen < part.length {
            self.state = State::Taken(Taken { seen, ..part });
            return;
        }
        // A part that came in one piece is not copied.
        let content = if self.taken.is_empty() {
            now
        } else {
            &self.taken
        };
        match part.is_item {
            true if is_overlong => each(Part::TooLong(content)),
            true => each(Part::Item(content)),
            false if is_overlong => {}
            false => each(Part::Metadata(content)),
        }
        self.taken.clear();
        self.taken.shrink_to(KEPT);
        self.state = State::Key;
    }

    /// The list ends where its length says, and there only between two fields.
    fn end(&mut self) -> Result<(), NoList> {
        if self.left == Some(0) {
            if self.state != State::Key || self.number.is_half() {
                return Err(NoList);
            }
            self.is_done = true;
        }
        Ok(())
    }
}

fn skipped(left: u64) -> State {
    if left == 0 {
        State::Key
    } else {
        State::Skipped(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Parts = Result<(Vec<String>, bool), NoList>;

    fn parts(limit: usize, pieces: &[&[u8]]) -> Parts {
        let mut list = List::new(limit);
        let mut out = Vec::new();
        for piece in pieces {
            list.feed(piece, &mut |part| {
                out.push(match part {
                    Part::Item(bytes) => format!("item {}", String::from_utf8_lossy(bytes)),
                    Part::TooLong(bytes) => format!("long {}", String::from_utf8_lossy(bytes)),
                    Part::Metadata(bytes) => format!("meta {}", String::from_utf8_lossy(bytes)),
                });
            })?;
        }
        Ok((out, list.is_done()))
    }

    /// With fields of every kind that are not read, in the envelope and in the list.
    const LIST: &[u8] = b"k8s\0\x0a\x02ty\x48\x96\x01\x12\x28\
        \x0a\x03ver\x12\x03one\x28\x96\x01\x12\x00\x1a\x02xx\x35abcd\x39abcdefgh\x12\x05three\
        \x1a\x00\x22\x00";

    #[test]
    fn parts_are_whole_however_they_were_cut() {
        let whole = parts(100, &[LIST]).unwrap();
        let expected = ["meta ver", "item one", "item ", "item three"];
        assert_eq!(whole, (expected.map(str::to_owned).to_vec(), true));
        for cut in 0..=LIST.len() {
            let (before, after) = LIST.split_at(cut);
            assert_eq!(parts(100, &[before, after]).unwrap(), whole, "cut at {cut}");
        }
        let bytes: Vec<_> = LIST.chunks(1).collect();
        assert_eq!(parts(100, &bytes).unwrap(), whole);
    }

    #[test]
    fn an_overlong_item_costs_its_limit_and_only_itself() {
        let expected = ["meta ver", "item one", "item ", "long thre"];
        assert_eq!(parts(4, &[LIST]).unwrap().0, expected);
        let bytes: Vec<_> = LIST.chunks(1).collect();
        assert_eq!(parts(4, &bytes).unwrap().0, expected);
    }

    #[test]
    fn a_list_that_was_cut_off_is_not_done() {
        for end in 0..LIST.len() - 4 {
            assert!(!parts(100, &[&LIST[..end]]).unwrap().1, "cut at {end}");
        }
    }

    #[test]
    fn an_empty_list_is_one() {
        assert_eq!(parts(9, &[b"k8s\0\x12\x00"]), Ok((vec![], true)));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let bad: [(&str, &[u8]); 8] = [
            ("JSON", b"{}"),
            ("magic that stops", b"k8s\x01"),
            ("an item longer than the list", b"k8s\0\x12\x04\x12\x03ab"),
            ("a key that the list cuts off", b"k8s\0\x12\x01\x92"),
            ("a length that the list cuts off", b"k8s\0\x12\x02\x12\x83"),
            ("a group", b"k8s\0\x0b"),
            ("field zero", b"k8s\0\x02"),
            (
                "a number without an end",
                b"k8s\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            ),
        ];
        for (what, bytes) in bad {
            assert_eq!(parts(100, &[bytes]), Err(NoList), "{what}");
        }
    }

    #[test]
    fn a_long_item_leaves_no_large_buffer() {
        let mut list = List::new(1 << 20);
        // An item of a MiB within a list of a MiB and four bytes.
        let head = b"k8s\0\x12\x84\x80\x40\x12\x80\x80\x40";
        list.feed(head, &mut |_| {}).unwrap();
        list.feed(&vec![b'x'; (1 << 20) - 1], &mut |_| {}).unwrap();
        let mut items = 0;
        list.feed(b"x", &mut |part| {
            items += usize::from(matches!(part, Part::Item(_)));
        })
        .unwrap();
        assert_eq!((items, list.is_done()), (1, true));
        assert!(list.taken.capacity() <= KEPT);
    }
}
