//! A folder of one's own among the temporary files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::namespace::succeed;

/// An empty folder that nobody else has. It goes with the value, with everything in it.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// A folder for a test, which cannot go on without one.
    ///
    /// # Panics
    /// If there can be none.
    #[allow(
        clippy::new_without_default,
        reason = "a default should cost nothing and leave nothing on the disk"
    )]
    pub fn new() -> Self {
        Self::make().expect("a temporary folder can be made")
    }

    /// The same for those who can say what it is that failed.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub fn make() -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("ferrovia-lab-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // Left by a process that was killed, and had the same number.
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        fs::create_dir_all(&path)?;
        // Who compares paths gets them without links.
        Ok(Self(path.canonicalize()?))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Where a file in it is, or would be.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file; answers with its path.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write(&self, name: impl AsRef<Path>, text: &(impl AsRef<[u8]> + ?Sized)) -> PathBuf {
        let path = self.join(name);
        fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path
    }

    /// Writes a shell script that can be run; answers with its path.
    ///
    /// Another process writes it: a program that somebody still has open for writing cannot be run, and what other tests start at the same
    /// time would inherit our descriptor for a moment.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write_program(&self, name: impl AsRef<Path>, script: &str) -> PathBuf {
        let path = self.join(name);
        let mut writer = Command::new("sh");
        writer
            .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
            .arg(&path);
        succeed(&mut writer, &format!("#!/bin/sh\n{script}\n"));
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What stays of it is a few bytes among temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_apart_and_go_with_their_contents() {
        let (one, other) = (Folder::new(), Folder::new());
        assert_ne!(one.path(), other.path());
        let file = one.write("file", "text");
        assert_eq!(fs::read_to_string(&file).unwrap(), "text");
        drop(one);
        assert!(!file.exists() && other.path().is_dir());
        let program = other.write_program("program", "echo 'says this'");
        assert_eq!(succeed(&mut Command::new(program), ""), "says this\n");
    }
}
