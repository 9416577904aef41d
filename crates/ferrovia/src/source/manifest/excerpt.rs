//! Some objects of a folder, without decoding the others: for a question about one Service among thousands.
//!
//! Finding words in a text is a hundred times faster than understanding it as YAML. So all files are read and cut into documents, and only
//! those are decoded that whoever asks wants by their text. Which of several definitions of an object counts is decided as
//! [`Folder`](super::Folder) does it when it reads a folder for the first time.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use ferrovia_core::store::Event;
use ferrovia_core::wire::Kind;

use super::claims::ObjectKey;
use super::content::Content;
use super::decode::{Format, decode};
use super::folder::SIZE_LIMIT;
use super::tree::{Found, Tree};

/// The text of a folder, cut into documents.
#[derive(Debug)]
pub struct Excerpt(Vec<File>);

#[derive(Debug)]
struct File {
    text: String,
    format: Format,
    documents: Vec<Range<usize>>,
}

impl Excerpt {
    /// Reads all files. None if anything is odd about the folder or a file: then all of it has to be understood.
    pub fn read(root: &Path) -> Option<Self> {
        let tree = Tree::walk(&std::path::absolute(root).ok()?);
        if !tree.problems.is_empty() || !tree.unknown.is_empty() {
            return None;
        }
        let (files, next) = (&tree.files, AtomicUsize::new(0));
        let workers = thread::available_parallelism().map_or(1, usize::from);
        // Each takes the next file that nobody has taken, so that one big file does not hold up the others.
        let work = || {
            let mut read = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                match files.get(at) {
                    Some(found) => read.push((at, File::read(found)?)),
                    None => return Some(read),
                }
            }
        };
        let read: Option<Vec<_>> = thread::scope(|scope| {
            let started: Vec<_> = (1..workers.min(files.len()))
                .map(|_| scope.spawn(work))
                .collect();
            let own = work();
            let others = started.into_iter().map(|worker| worker.join().ok()?);
            std::iter::once(own).chain(others).collect()
        });
        let mut read: Vec<(usize, File)> = read?.into_iter().flatten().collect();
        read.sort_unstable_by_key(|(at, _)| *at);
        Some(Self(read.into_iter().map(|(_, file)| file).collect()))
    }

    /// The objects of all documents that are wanted by their text, and that all lists are complete. None if one cannot be decoded.
    pub fn events(&self, is_wanted: impl Fn(&str) -> bool) -> Option<Vec<Event>> {
        let mut objects = BTreeMap::new();
        for file in &self.0 {
            for document in file.documents() {
                if is_wanted(document) {
                    for found in decode(document.as_bytes(), file.format).ok()? {
                        // The first definition counts.
                        let key = ObjectKey::of(&found.object);
                        objects.entry(key).or_insert(found.object);
                    }
                }
            }
        }
        let applied = objects.into_values().map(Event::Applied);
        Some(applied.chain(Kind::ALL.map(Event::Listed)).collect())
    }
}

impl File {
    fn read(found: &Found) -> Option<Self> {
        let content = Content::read(&found.path, SIZE_LIMIT).ok()?;
        let text = String::from_utf8(content.bytes).ok()?;
        // Directives hold for the documents after them, which a cut would take from them.
        let has_directives = text.starts_with('%') || text.contains("\n%");
        let documents = match found.format {
            Format::Yaml if !has_directives => cut(&text),
            Format::Yaml | Format::Json => std::iter::once(0..text.len()).collect(),
        };
        Some(Self {
            text,
            format: found.format,
            documents,
        })
    }

    fn documents(&self) -> impl Iterator<Item = &str> {
        let ranges = self.documents.iter().cloned();
        ranges.filter_map(|range| self.text.get(range))
    }
}

/// Cuts a text at its `---` lines, which belong to what follows.
fn cut(text: &str) -> Vec<Range<usize>> {
    let ends = |rest: &str| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']);
    let marks = text.match_indices("\n---");
    let marks = marks.filter(|(at, mark)| text.get(at + mark.len()..).is_some_and(ends));
    let mut start = 0;
    let mut documents = Vec::new();
    for (at, _) in marks {
        documents.push(start..at + 1);
        start = at + 1;
    }
    documents.push(start..text.len());
    documents
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_where_documents_begin() {
        let text = "a: 1\n---\nb: |\n  ---\n  ----\n--- # c\nc: 3\n----\n---";
        let parts: Vec<&str> = cut(text).into_iter().map(|range| &text[range]).collect();
        assert_eq!(
            parts,
            [
                "a: 1\n",
                "---\nb: |\n  ---\n  ----\n",
                "--- # c\nc: 3\n----\n",
                "---"
            ]
        );
        assert_eq!(cut("").len(), 1);
    }
}
