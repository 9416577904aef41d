//! Which manifest files a folder holds, and what must be watched to notice a change to them.
//!
//! Names with a leading dot are passed over, but links are followed wherever they lead. This is just what a
//! mounted ConfigMap needs: its `web.yaml` is a link into the hidden `..data`, itself a link that is swapped.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::decode::Format;
use super::problem::Problem;

/// As many links in one path as the kernel follows.
const MAX_LINKS: usize = 40;

/// A file whose time stamp is younger than this may change again without the stamp moving, because kernels
/// stamp with the time of the last timer tick.
const STAMP_GRANULARITY: Duration = Duration::from_millis(50);

/// Tells whether a file may have changed, without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Signature {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    /// Moves with permissions too, and cannot be set back as the modification time can.
    changed: (i64, i64),
}

impl Signature {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Of what is at this path now.
    pub(super) fn at(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().as_ref().map(Self::of)
    }

    /// Identity of the file, whatever path leads to it.
    pub(super) fn file_id(&self) -> FileId {
        FileId(self.device, self.inode)
    }

    /// Whether an equal signature later on means that nothing changed since.
    pub(super) fn is_settled(&self, now: SystemTime) -> bool {
        self.age(now).is_some_and(|age| age > STAMP_GRANULARITY)
    }

    /// Time since the last change; `None` for a stamp from the future, as a server with another clock gives it.
    pub(super) fn age(&self, now: SystemTime) -> Option<Duration> {
        let seconds = Duration::from_secs(u64::try_from(self.changed.0).unwrap_or_default());
        let nanos = Duration::from_nanos(u64::try_from(self.changed.1).unwrap_or_default());
        now.duration_since(UNIX_EPOCH + seconds + nanos).ok()
    }
}

/// Device and inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileId(u64, u64);

impl FileId {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self(metadata.dev(), metadata.ino())
    }
}

/// A manifest file that is there.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) format: Format,
    pub(super) signature: Signature,
}

/// What is of interest in a watched directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Interest {
    /// Everything: it is part of the folder.
    All,
    /// Only these names: links or their targets outside the folder.
    Names(BTreeSet<OsString>),
}

/// Directories to watch.
pub(super) type WatchPoints = BTreeMap<PathBuf, Interest>;

/// A folder as it was found.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// In the order of their paths; a file reached by two paths is there once.
    pub(super) files: Vec<Found>,
    /// What could not be looked into: nothing is known of the files below, so they keep their last state.
    pub(super) unknown: Vec<PathBuf>,
    /// Why, and what else is odd.
    pub(super) problems: Vec<Problem>,
    /// What to watch.
    pub(super) watch: WatchPoints,
    visited: HashSet<FileId>,
}

impl Tree {
    /// Looks through a folder; `root` is absolute.
    pub(super) fn walk(root: &Path) -> Self {
        let mut tree = Self::default();
        // The folder itself may go and come back, or be a link that is swapped.
        tree.watch_way_to(root);
        match fs::metadata(root) {
            Ok(metadata) if metadata.is_dir() => tree.directory(root, &metadata),
            Ok(_) => tree.unknown(root, "is not a folder"),
            Err(error) => tree.unknown(root, &format!("cannot be read: {error}")),
        }
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        let mut seen = HashSet::new();
        tree.files
            .retain(|file| seen.insert(file.signature.file_id()));
        tree
    }

    fn directory(&mut self, path: &Path, metadata: &Metadata) {
        // A link may lead back to a folder above it.
        if !self.visited.insert(FileId::of(metadata)) {
            return;
        }
        self.watch.insert(path.to_owned(), Interest::All);
        match sorted_names(path) {
            Ok(names) => {
                for name in names
                    .iter()
                    .filter(|name| !name.as_bytes().starts_with(b"."))
                {
                    self.entry(&path.join(name));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.unknown(path, &format!("cannot be read: {error}")),
        }
    }

    fn entry(&mut self, path: &Path) {
        let is_link = path.is_symlink();
        if is_link {
            self.watch_way_to(path);
        }
        let format = Format::of(path);
        match (fs::metadata(path), format) {
            (Ok(metadata), _) if metadata.is_dir() => self.directory(path, &metadata),
            (Ok(metadata), Some(format)) if metadata.is_file() => self.files.push(Found {
                path: path.to_owned(),
                format,
                signature: Signature::of(&metadata),
            }),
            // Reading a pipe or a device could block for ever.
            (Ok(_), Some(_)) => {
                self.problems.push(Problem::warning(
                    path,
                    "is not a regular file; it is left out",
                ));
            }
            (Err(error), Some(_)) if is_link && error.kind() == io::ErrorKind::NotFound => {
                self.problems
                    .push(Problem::warning(path, "is a link that leads nowhere"));
            }
            // It went while we were looking.
            (Err(error), _) if error.kind() == io::ErrorKind::NotFound => {}
            // Whatever its name: it may be a folder, of which something is in force.
            (Err(error), _) => self.unknown(path, &format!("cannot be read: {error}")),
            (Ok(_), None) => {}
        }
    }

    fn unknown(&mut self, path: &Path, why: &str) {
        let what = format!("{why}; what it held stays in force");
        self.problems.push(Problem::error(path, what));
        self.unknown.push(path.to_owned());
    }

    /// Watches every link on the way to a path, and what the last one leads to. Follows them one by one as the
    /// kernel does, since a change to any of them changes what the path means.
    fn watch_way_to(&mut self, path: &Path) {
        let mut resolved = PathBuf::from("/");
        let mut rest: VecDeque<OsString> = parts(path).collect();
        let mut links = 0;
        while let Some(part) = rest.pop_front() {
            if part == ".." {
                resolved.pop();
                continue;
            }
            let next = resolved.join(&part);
            let target = fs::read_link(&next).ok();
            if target.is_some() || rest.is_empty() {
                self.watch_name(&resolved, &part);
            }
            let Some(target) = target else {
                resolved = next;
                continue;
            };
            links += 1;
            if links > MAX_LINKS {
                return;
            }
            if target.is_absolute() {
                resolved = PathBuf::from("/");
            }
            for part in parts(&target).collect::<Vec<_>>().into_iter().rev() {
                rest.push_front(part);
            }
        }
    }

    fn watch_name(&mut self, directory: &Path, name: &OsStr) {
        let names = self.watch.entry(directory.to_owned());
        match names.or_insert_with(|| Interest::Names(BTreeSet::new())) {
            Interest::All => {}
            Interest::Names(names) => drop(names.insert(name.to_owned())),
        }
    }
}

fn parts(path: &Path) -> impl Iterator<Item = OsString> + '_ {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

fn sorted_names(directory: &Path) -> io::Result<Vec<OsString>> {
    let mut names = fs::read_dir(directory)?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}
