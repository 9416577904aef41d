//! The state of a folder of manifests: what every file gave, and what the rest of the world was told.
//!
//! A [`rescan`](Folder::rescan) looks at the folder and gives the difference since the last one. It is cheap when
//! nothing changed (one `stat` a file), never repeats an object that is the same, and takes nothing back because
//! of a file it cannot read or understand. `settle.rs` makes the difference of what was read.

mod settle;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ferrovia_core::store::Event;
use ferrovia_core::wire::Object;

use super::claims::{Claim, Claims, ObjectKey};
use super::content::{Content, ReadError};
use super::decode::Decoded;
use super::digest::Digest;
use super::file::{Caution, FileState};
use super::problem::Problem;
use super::tree::{Found, Signature, Tree, WatchPoints};

/// The biggest file that is read, unless told otherwise. A Service with its slice takes about 2 KiB of YAML.
pub(super) const SIZE_LIMIT: u64 = 64 << 20;

/// What changed since the last rescan.
#[derive(Debug, Default)]
pub struct Batch {
    /// For the store.
    pub events: Vec<Event>,
    /// For the log; every problem is told once, not at every rescan.
    pub problems: Vec<Problem>,
    /// Every file and folder there is has been read well since this process started, so what no event told of
    /// is really gone. Until then, what an earlier process got from here must not be taken back: a file that is
    /// broken, out of reach or half written may still define it. Once true, it is true in every later batch.
    pub is_complete: bool,
    /// The batch before was not complete, or there was none.
    completes: bool,
}

impl Batch {
    /// Nothing changed. That the folder is complete from now on is a change.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty() && self.problems.is_empty() && !self.completes
    }
}

/// Why a folder cannot be used from the start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It is not there, or not for us.
    #[error("cannot open the folder of manifests {path}: {cause}")]
    Unreadable {
        /// The folder.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// It is something else.
    #[error("{path} is not a folder of manifests but a file")]
    NotAFolder {
        /// The path.
        path: PathBuf,
    },
}

/// A folder of manifests and what is known of it.
#[derive(Debug)]
pub struct Folder {
    root: PathBuf,
    size_limit: u64,
    files: BTreeMap<Arc<Path>, FileState>,
    claims: Claims,
    /// Objects whose claim in force changed hands to a file that could not be read again yet.
    waiting: BTreeSet<Arc<ObjectKey>>,
    /// Problems with the tree as of the last rescan.
    standing: Vec<Problem>,
    watch: WatchPoints,
    is_loaded: bool,
    /// See [`Batch::is_complete`].
    is_complete: bool,
    has_put_off: bool,
}

/// A rescan under way.
#[derive(Default)]
struct Scan {
    batch: Batch,
    /// Objects that may have changed.
    touched: BTreeSet<Arc<ObjectKey>>,
    /// Objects decoded in this rescan, by the file that defines them.
    fresh: HashMap<(Arc<Path>, Arc<ObjectKey>), Box<Object>>,
}

impl Folder {
    /// Makes sure the folder is there. Nothing is read before the first [`rescan`](Self::rescan).
    pub fn open(root: &Path) -> Result<Self, OpenError> {
        let unreadable = |cause| OpenError::Unreadable {
            path: root.to_owned(),
            cause,
        };
        let absolute = std::path::absolute(root).map_err(unreadable)?;
        if !absolute.metadata().map_err(unreadable)?.is_dir() {
            return Err(OpenError::NotAFolder {
                path: root.to_owned(),
            });
        }
        absolute.read_dir().map_err(unreadable)?;
        Ok(Self {
            root: absolute,
            size_limit: SIZE_LIMIT,
            files: BTreeMap::new(),
            claims: Claims::default(),
            waiting: BTreeSet::new(),
            standing: Vec::new(),
            watch: WatchPoints::new(),
            is_loaded: false,
            is_complete: false,
            has_put_off: false,
        })
    }

    /// Refuses files that are bigger than this many bytes.
    #[must_use]
    pub fn with_size_limit(self, bytes: u64) -> Self {
        Self {
            size_limit: bytes,
            ..self
        }
    }

    /// Looks at the folder and gives what changed. The first call gives everything and then says, for every
    /// kind, that its list is complete.
    pub fn rescan(&mut self) -> Batch {
        self.rescan_with(&Caution {
            is_busy: &|_| false,
            patience: Duration::ZERO,
            patience_with_empty: Duration::ZERO,
        })
    }

    /// A rescan while others may be writing.
    pub(super) fn rescan_with(&mut self, caution: &Caution<'_>) -> Batch {
        self.has_put_off = false;
        let tree = Tree::walk(&self.root);
        let mut scan = Scan {
            touched: std::mem::take(&mut self.waiting),
            ..Scan::default()
        };
        self.report_tree(tree.problems, &mut scan.batch);
        self.forget_gone(&tree.files, &tree.unknown, &mut scan);
        for found in &tree.files {
            self.look_at(found, caution, &mut scan);
        }
        self.watch = tree.watch;
        let mut batch = self.settle(scan);
        self.judge_completeness(&tree.unknown, &mut batch);
        batch
    }

    /// The directories in which a change matters, as of the last rescan.
    pub(super) fn watch_points(&self) -> &WatchPoints {
        &self.watch
    }

    /// The last rescan left something for a later one, which should come soon.
    pub(super) fn has_put_off(&self) -> bool {
        self.has_put_off
    }

    /// Tells what is new about the tree's problems, in both directions.
    fn report_tree(&mut self, problems: Vec<Problem>, batch: &mut Batch) {
        let known: HashSet<&Problem> = self.standing.iter().collect();
        let new = problems.iter().filter(|problem| !known.contains(problem));
        batch.problems.extend(new.cloned());
        let troubled: HashSet<&Path> = problems.iter().map(|now| now.path.as_path()).collect();
        let mended = self
            .standing
            .iter()
            .filter(|old| !troubled.contains(old.path.as_path()));
        batch
            .problems
            .extend(mended.map(|old| Problem::info(&old.path, "the problem here is gone")));
        self.standing = problems;
    }

    fn forget_gone(&mut self, found: &[Found], unknown: &[PathBuf], scan: &mut Scan) {
        let found: HashSet<&Path> = found.iter().map(|file| file.path.as_path()).collect();
        let unknown: HashSet<&Path> = unknown.iter().map(PathBuf::as_path).collect();
        let is_unknown = |path: &Path| path.ancestors().any(|above| unknown.contains(above));
        let is_gone = |path: &Path| !found.contains(path) && !is_unknown(path);
        let gone: Vec<Arc<Path>> = self
            .files
            .keys()
            .filter(|path| is_gone(path))
            .cloned()
            .collect();
        for path in gone {
            for key in self.files.remove(&path).unwrap_or_default().keys {
                self.claims.withdraw(&key, &path);
                scan.touched.insert(key);
            }
        }
    }

    /// Reads a file if it may have changed. Only a file that is good as a whole changes anything.
    fn look_at(&mut self, found: &Found, caution: &Caution<'_>, scan: &mut Scan) {
        let known = self.files.get_key_value(found.path.as_path());
        if known.is_some_and(|(_, state)| state.signature == Some(found.signature)) {
            return;
        }
        let path = known.map_or_else(|| found.path.as_path().into(), |(path, _)| Arc::clone(path));
        let state = self.files.entry(Arc::clone(&path)).or_default();
        let content = match Content::read(&path, self.size_limit) {
            Ok(content) => content,
            Err(ReadError::Gone) => {
                self.has_put_off = true;
                return;
            }
            Err(ReadError::Unusable(what)) => {
                // Not remembered as read: whatever kept us from it may pass without the file changing.
                (state.signature, state.content) = (None, None);
                let what = format!("{what}; its last good state stays in force");
                return state.set_fault(Problem::error(&path, what), &mut scan.batch);
            }
        };
        let now = SystemTime::now();
        let digest = Digest::of_bytes(&content.bytes);
        let signature = Some(content.signature).filter(|signature| signature.is_settled(now));
        if state.content == Some(digest) {
            state.signature = signature;
            if !self.is_complete && state.fault.is_none() {
                self.has_put_off |= state.prove(&content, caution, now);
            }
            return;
        }
        // Asked after reading and in this order: a writer that is busy no more has left its mark on the signature.
        if (caution.is_busy)(content.signature.file_id()) {
            return;
        }
        let has_moved = Signature::at(&path) != Some(content.signature);
        let decoded = content.decode(found.format);
        if has_moved || (caution.doubts(&content, now) && state.loses_by(&decoded)) {
            self.has_put_off = true;
            return;
        }
        (state.signature, state.content) = (signature, Some(digest));
        match decoded {
            Ok(objects) => {
                if state.fault.take().is_some() {
                    scan.batch
                        .problems
                        .push(Problem::info(&path, "is right again"));
                }
                if !self.is_complete {
                    self.has_put_off |= state.prove(&content, caution, now);
                }
                self.adopt(&path, objects, scan);
            }
            Err(error) => state.set_fault(Problem::undecodable(&path, error), &mut scan.batch),
        }
    }

    /// Replaces what a file defines.
    fn adopt(&mut self, path: &Arc<Path>, objects: Vec<Decoded>, scan: &mut Scan) {
        let mut lines = HashMap::with_capacity(objects.len());
        let mut keys = Vec::with_capacity(objects.len());
        for Decoded { object, line } in objects {
            let key = self.claims.intern(ObjectKey::of(&object));
            if let Some(first) = lines.get(&key) {
                let what = format!("{key} is already defined in line {first}; this one is ignored");
                scan.batch
                    .problems
                    .push(Problem::warning(path, what).at_line(line));
                continue;
            }
            let claim = Claim {
                file: Arc::clone(path),
                line,
                digest: Digest::of_object(&object),
            };
            if let Some(first) = self.claims.stake(&key, claim) {
                let place = format!("{}:{}", first.file.display(), first.line);
                let what =
                    format!("{key} is already defined in {place}; this one waits until that goes");
                scan.batch
                    .problems
                    .push(Problem::warning(path, what).at_line(line));
            }
            lines.insert(Arc::clone(&key), line);
            scan.touched.insert(Arc::clone(&key));
            scan.fresh
                .insert((Arc::clone(path), Arc::clone(&key)), object);
            keys.push(key);
        }
        let state = self.files.entry(Arc::clone(path)).or_default();
        for key in std::mem::replace(&mut state.keys, keys) {
            if !lines.contains_key(&key) {
                self.claims.withdraw(&key, path);
                scan.touched.insert(key);
            }
        }
    }

    /// Notes whether the folder has been read in full. A path out of reach counts as unread even if it was read
    /// earlier: what is below it now may be more than what was.
    fn judge_completeness(&mut self, unknown: &[PathBuf], batch: &mut Batch) {
        let was_complete = self.is_complete;
        self.is_complete |= unknown.is_empty()
            && !self.has_put_off
            && self.files.values().all(|file| file.is_proven);
        batch.is_complete = self.is_complete;
        batch.completes = self.is_complete && !was_complete;
    }
}

#[cfg(test)]
mod tests {
    use super::super::decode::Format;
    use super::{Caution, Duration, Folder, Found, Scan, Signature};

    /// No test from outside can take a file away between the walk and the reading.
    #[test]
    fn a_file_that_goes_while_we_look_is_no_problem() {
        let root = ferrovia_lab::Folder::new();
        let mut folder = Folder::open(root.path()).unwrap();
        let found = Found {
            path: root.join("a.yaml"),
            format: Format::Yaml,
            signature: Signature::of(&root.path().metadata().unwrap()),
        };
        drop(root);
        let caution = Caution {
            is_busy: &|_| false,
            patience: Duration::ZERO,
            patience_with_empty: Duration::ZERO,
        };
        let mut scan = Scan::default();
        folder.look_at(&found, &caution, &mut scan);
        assert!(scan.batch.problems.is_empty(), "{:?}", scan.batch.problems);
        assert!(folder.has_put_off());
    }
}
