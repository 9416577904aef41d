//! Temporary folders.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::namespace::succeed;

/// A new temporary folder, which is removed with its contents when this is dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// A folder for a test.
    ///
    /// # Panics
    /// If it cannot be created.
    #[allow(
        clippy::new_without_default,
        reason = "a default should cost nothing and leave nothing on the disk"
    )]
    pub fn new() -> Self {
        Self::make().expect("a temporary folder can be created")
    }

    /// Like [`Self::new`], but returns an error.
    ///
    /// # Errors
    /// If the folder cannot be created.
    pub fn make() -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("ferrovia-lab-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // A killed process with the same process ID may have left it.
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        fs::create_dir_all(&path)?;
        // Without symbolic links, so that paths can be compared.
        Ok(Self(path.canonicalize()?))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of a file in it, which need not exist.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file; returns its path.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write(&self, name: impl AsRef<Path>, text: &(impl AsRef<[u8]> + ?Sized)) -> PathBuf {
        let path = self.join(name);
        fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path
    }

    /// Writes an executable shell script; returns its path.
    ///
    /// Another process writes it: a program that is open for writing cannot be executed, and processes that other tests start at the same
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
        // A failure leaves only a few bytes among temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_distinct_and_removed_with_their_contents() {
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
