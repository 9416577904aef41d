//! What is remembered of one file, and when its content is believed.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::claims::ObjectKey;
use super::content::Content;
use super::decode::{DecodeError, Decoded};
use super::digest::Digest;
use super::folder::Batch;
use super::problem::Problem;
use super::tree::{FileId, Signature};

/// How far a rescan trusts files that may be half written.
pub(super) struct Caution<'a> {
    /// Whether a file is known to be open and written to. Its content waits until it is closed, which is notified.
    pub(super) is_busy: &'a dyn Fn(FileId) -> bool,
    /// Bad news, an error or an object less, from a file changed less than this ago is put off.
    pub(super) patience: Duration,
    /// The same for a file that is empty. On a busy disk, files being overwritten were seen empty for 200 ms
    /// before there was any notification of it.
    pub(super) patience_with_empty: Duration,
}

impl Caution<'_> {
    /// Whether bad news from this content should be heard again before it is believed.
    pub(super) fn doubts(&self, content: &Content, now: SystemTime) -> bool {
        let is_empty = content.bytes.is_empty();
        let patience = if is_empty {
            self.patience_with_empty
        } else {
            self.patience
        };
        content.signature.age(now).is_some_and(|age| age < patience)
    }
}

/// What we remember of a file.
#[derive(Debug, Default)]
pub(super) struct FileState {
    /// `None` when it has to be read again in any case.
    pub(super) signature: Option<Signature>,
    /// Of what was decoded last, well or not.
    pub(super) content: Option<Digest>,
    /// What it defined when it was last good.
    pub(super) keys: Vec<Arc<ObjectKey>>,
    /// Why its present content is not in force.
    pub(super) fault: Option<Problem>,
    /// It was good at least once, and not only as what may have been half a file. Kept up to date only until the
    /// folder is complete; nobody asks afterwards.
    pub(super) is_proven: bool,
}

impl FileState {
    /// Whether the file's new content would be bad news.
    pub(super) fn loses_by(&self, decoded: &Result<Vec<Decoded>, DecodeError>) -> bool {
        let Ok(objects) = decoded else {
            return true;
        };
        let defined: HashSet<ObjectKey> = objects
            .iter()
            .map(|found| ObjectKey::of(&found.object))
            .collect();
        self.keys.iter().any(|key| !defined.contains(&**key))
    }

    /// Notes that this content of the file is good, and whether it can be taken for the whole file. Half a file is
    /// often good too, and of one never seen before nobody can tell what it lacks. True when that takes another
    /// look soon; of a busy file we hear when it is closed.
    pub(super) fn prove(
        &mut self,
        content: &Content,
        caution: &Caution<'_>,
        now: SystemTime,
    ) -> bool {
        if self.is_proven {
            return false;
        }
        let is_young = caution.doubts(content, now);
        self.is_proven = !is_young && !(caution.is_busy)(content.signature.file_id());
        if !self.is_proven {
            self.signature = None;
        }
        is_young
    }

    /// Notes why the file is not good, and tells it unless that is known.
    pub(super) fn set_fault(&mut self, fault: Problem, batch: &mut Batch) {
        if self.fault.as_ref() != Some(&fault) {
            batch.problems.push(fault.clone());
            self.fault = Some(fault);
        }
    }
}
