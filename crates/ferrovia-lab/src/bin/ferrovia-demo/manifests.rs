//! A copy of the manifests that scenes edit, so that the original folder does not change.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use ferrovia_lab::Folder;

/// A temporary copy of the manifests. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct ManifestCopy {
    root: Folder,
}

impl ManifestCopy {
    /// Copies the manifests of a folder.
    pub(crate) fn copy_of(folder: &Path) -> anyhow::Result<Self> {
        let root =
            Folder::make().context("cannot create a folder for the copy of the manifests")?;
        let scratch = Self { root };
        fs::create_dir(scratch.manifests())
            .with_context(|| format!("cannot create {}", scratch.manifests().display()))?;
        let entries = fs::read_dir(folder)
            .with_context(|| format!("cannot read the folder {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|ending| ending == "yaml")
                && let Some(name) = path.file_name()
            {
                fs::copy(&path, scratch.manifests().join(name))
                    .with_context(|| format!("cannot copy {}", path.display()))?;
            }
        }
        Ok(scratch)
    }

    /// The folder of manifests that the proxy watches.
    pub(crate) fn manifests(&self) -> PathBuf {
        self.root.join("manifests")
    }

    /// The folder of files that are not manifests.
    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    /// Removes the lines of a file that contain a text; returns the previous contents.
    pub(crate) fn remove_lines(&self, file: &str, text: &str) -> anyhow::Result<String> {
        let path = self.manifests().join(file);
        let before =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let after: String = before
            .split_inclusive('\n')
            .filter(|line| !line.contains(text))
            .collect();
        ensure!(before != after, "{file} has no line with {text}");
        self.replace(file, &after)?;
        Ok(before)
    }

    /// Replaces a file atomically by renaming, as editors do.
    pub(crate) fn replace(&self, file: &str, content: &str) -> anyhow::Result<()> {
        let (draft, path) = (self.root.join("draft"), self.manifests().join(file));
        fs::write(&draft, content)
            .and_then(|()| fs::rename(&draft, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_the_copy_and_not_the_original_folder() {
        let folder = Folder::new();
        folder.write("web.yaml", "a\nb 1\nc\n");
        folder.write("README.md", "not a manifest");
        let scratch = ManifestCopy::copy_of(folder.path()).unwrap();
        let copy = scratch.manifests().join("web.yaml");
        assert!(!scratch.manifests().join("README.md").exists());

        let before = scratch.remove_lines("web.yaml", "b 1").unwrap();
        assert_eq!(fs::read_to_string(&copy).unwrap(), "a\nc\n");
        assert!(scratch.remove_lines("web.yaml", "b 1").is_err());
        scratch.replace("web.yaml", &before).unwrap();
        assert_eq!(fs::read_to_string(&copy).unwrap(), "a\nb 1\nc\n");

        let root = scratch.root().to_owned();
        drop(scratch);
        assert!(!root.exists());
    }
}
