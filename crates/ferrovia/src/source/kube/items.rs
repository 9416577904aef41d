//! Cuts a list, as the API server answers it, into its items while it comes, so that no more than one item is ever held.
//!
//! This looks only at brackets, strings and the keys of the outermost object; the items themselves are for the decoder to judge.

/// A part of a list.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    /// One entry of `items`.
    Item(&'a [u8]),
    /// An entry longer than allowed; its beginning.
    TooLong(&'a [u8]),
    /// The list's own `metadata`.
    Metadata(&'a [u8]),
}

/// The answer is no list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer is not a list")]
pub(super) struct NoList;

/// Where we are in the document.
#[derive(Debug)]
pub(super) struct Items {
    limit: usize,
    depth: usize,
    string: InString,
    /// The last string seen directly inside the outermost object: the key, once its value begins.
    key: Vec<u8>,
    /// What is being collected, and at what depth it ends.
    taking: Option<(Taking, usize)>,
    taken: Vec<u8>,
    is_overlong: bool,
    is_in_items: bool,
    is_done: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InString {
    No,
    Yes,
    Escape,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taking {
    Item,
    Metadata,
}

/// Keys that matter are shorter.
const LONGEST_KEY: usize = 16;

/// What the buffer keeps of its size after a long item.
const KEPT: usize = 64 * 1024;

impl Items {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            depth: 0,
            string: InString::No,
            key: Vec::new(),
            taking: None,
            taken: Vec::new(),
            is_overlong: false,
            is_in_items: false,
            is_done: false,
        }
    }

    /// The outermost object was closed: all has come.
    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Takes in a piece and tells the parts that it completes.
    pub(super) fn feed(
        &mut self,
        piece: &[u8],
        each: &mut dyn FnMut(Part<'_>),
    ) -> Result<(), NoList> {
        // Where in this piece the part that is being taken begins.
        let mut start = 0;
        for (at, &byte) in piece.iter().enumerate() {
            if self.string != InString::No {
                self.string_byte(byte);
                continue;
            }
            match byte {
                b'"' => {
                    self.string = InString::Yes;
                    if self.depth == 1 {
                        self.key.clear();
                    }
                }
                b'{' | b'[' => {
                    self.open(byte)?;
                    if self.taking.is_none() && self.begins(byte) {
                        start = at;
                    }
                }
                b'}' | b']' => {
                    self.depth = self.depth.checked_sub(1).ok_or(NoList)?;
                    if self.taking.is_some_and(|(_, ends)| ends == self.depth) {
                        self.keep(&piece[start..=at]);
                        self.tell(each);
                    }
                    self.is_in_items &= self.depth > 1;
                    self.is_done |= self.depth == 0;
                }
                _ if self.depth == 0 && !byte.is_ascii_whitespace() => return Err(NoList),
                _ => {}
            }
        }
        if self.taking.is_some() {
            self.keep(&piece[start..]);
        }
        Ok(())
    }

    fn string_byte(&mut self, byte: u8) {
        self.string = match (self.string, byte) {
            (InString::Yes, b'"') => InString::No,
            (InString::Yes, b'\\') => InString::Escape,
            _ => InString::Yes,
        };
        if self.depth == 1 && self.string != InString::No && self.key.len() < LONGEST_KEY {
            self.key.push(byte);
        }
    }

    fn open(&mut self, bracket: u8) -> Result<(), NoList> {
        if self.depth == 0 && (bracket != b'{' || self.is_done) {
            return Err(NoList);
        }
        self.depth += 1;
        if self.depth == 2 && bracket == b'[' && self.key == b"items" {
            self.is_in_items = true;
        }
        Ok(())
    }

    /// Whether the bracket that was just opened begins a part worth taking.
    fn begins(&mut self, bracket: u8) -> bool {
        let taking = match self.depth {
            3 if self.is_in_items => Taking::Item,
            2 if bracket == b'{' && self.key == b"metadata" => Taking::Metadata,
            _ => return false,
        };
        self.taking = Some((taking, self.depth - 1));
        true
    }

    fn keep(&mut self, piece: &[u8]) {
        let room = self.limit - self.taken.len();
        self.is_overlong |= piece.len() > room;
        self.taken
            .extend_from_slice(&piece[..piece.len().min(room)]);
    }

    fn tell(&mut self, each: &mut dyn FnMut(Part<'_>)) {
        match self.taking.take() {
            Some((Taking::Item, _)) if self.is_overlong => each(Part::TooLong(&self.taken)),
            Some((Taking::Item, _)) => each(Part::Item(&self.taken)),
            Some((Taking::Metadata, _)) => each(Part::Metadata(&self.taken)),
            None => {}
        }
        self.taken.clear();
        self.taken.shrink_to(KEPT);
        self.is_overlong = false;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_text_means_the_same_however_it_was_cut(
            words in prop::collection::vec(
                prop::sample::select(vec![
                    "{", "}", "[", "]", "\"", ":", ",", "\\", " ", "1", "\"items\":[", "\"metadata\":{", "{\"a\":1}",
                ]),
                0..40,
            ),
            size in 1_usize..8,
        ) {
            let text = format!("{{{}", words.concat());
            let cut: Vec<_> = text.as_bytes().chunks(size).collect();
            prop_assert_eq!(parts(6, &cut), parts(6, &[text.as_bytes()]));
        }
    }

    fn parts(limit: usize, pieces: &[&[u8]]) -> Result<(Vec<String>, bool), NoList> {
        let mut items = Items::new(limit);
        let mut out = Vec::new();
        for piece in pieces {
            items.feed(piece, &mut |part| {
                out.push(match part {
                    Part::Item(text) => format!("item {}", String::from_utf8_lossy(text)),
                    Part::TooLong(text) => format!("long {}", String::from_utf8_lossy(text)),
                    Part::Metadata(text) => format!("meta {}", String::from_utf8_lossy(text)),
                });
            })?;
        }
        Ok((out, items.is_done()))
    }

    const LIST: &str = r#"{"kind":"ServiceList","apiVersion":"v1",
        "metadata":{"resourceVersion":"7","x":{}},"extra":[{"items":[{}]}],
        "items":[{"a":"}]\"{\\"}, {"b":[{"c":[]}]} ,{}]}
"#;

    #[test]
    fn parts_come_whole_however_they_were_cut() {
        let whole = parts(100, &[LIST.as_bytes()]).unwrap();
        let expected = [
            r#"meta {"resourceVersion":"7","x":{}}"#,
            r#"item {"a":"}]\"{\\"}"#,
            r#"item {"b":[{"c":[]}]}"#,
            "item {}",
        ];
        assert_eq!(whole, (expected.map(str::to_owned).to_vec(), true));
        for cut in 0..=LIST.len() {
            let (before, after) = LIST.as_bytes().split_at(cut);
            assert_eq!(parts(100, &[before, after]).unwrap(), whole, "cut at {cut}");
        }
        let bytes: Vec<_> = LIST.as_bytes().chunks(1).collect();
        assert_eq!(parts(100, &bytes).unwrap(), whole);
    }

    #[test]
    fn keys_in_any_order_and_no_items_at_all() {
        let text = br#"{"items":[{"a":1}],"metadata":{"resourceVersion":"7"}}"#;
        let found = parts(100, &[text]).unwrap();
        assert_eq!(
            found.0,
            [r#"item {"a":1}"#, r#"meta {"resourceVersion":"7"}"#]
        );
        assert_eq!(parts(100, &[br#"{"items":null}"#]).unwrap(), (vec![], true));
        assert_eq!(parts(100, &[br#"{"items":[]}"#]).unwrap(), (vec![], true));
    }

    #[test]
    fn an_overlong_item_costs_its_limit_and_only_itself() {
        let text = br#"{"items":[{"a":"0123456789"},{"b":1}]}"#;
        assert_eq!(
            parts(8, &[text]).unwrap().0,
            [r#"long {"a":"01"#, r#"item {"b":1}"#]
        );
    }

    #[test]
    fn a_list_that_was_cut_off_is_not_done() {
        for end in 0..LIST.trim_end().len() {
            let cut = &LIST.as_bytes()[..end];
            assert!(!parts(100, &[cut]).unwrap().1, "cut at {end}");
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let bad: [&[u8]; 5] = [b"<html>", b"[]", b"null", b"{}}", b"{}{}"];
        for text in bad {
            assert_eq!(parts(100, &[text]), Err(NoList));
        }
    }
}
