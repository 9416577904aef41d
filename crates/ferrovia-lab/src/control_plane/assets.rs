//! The programs of a real control plane.

use std::env;
use std::path::{Path, PathBuf};

/// The environment variable with the folder, as for every test suite that uses envtest.
pub const VARIABLE: &str = "KUBEBUILDER_ASSETS";

const REQUIRED: [&str; 3] = ["kube-apiserver", "etcd", "kubectl"];

/// A folder with the programs of a control plane.
#[derive(Clone, Debug)]
pub struct Assets {
    folder: PathBuf,
}

/// Why the programs cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssetsError {
    /// The variable is not set.
    #[error("{VARIABLE} is not set\n{HOW_TO_GET_THEM}")]
    Unset,
    /// The folder lacks some programs.
    #[error("{VARIABLE}={} lacks {}\n{HOW_TO_GET_THEM}", .folder.display(), .programs.join(", "))]
    Missing {
        folder: PathBuf,
        programs: Vec<&'static str>,
    },
}

/// How to fix both errors.
const HOW_TO_GET_THEM: &str = "
It names a folder with kube-apiserver, etcd and kubectl (and kube-proxy and etcd-3.4, which some tests use). To get one:

  go install sigs.k8s.io/controller-runtime/tools/setup-envtest@latest
  export KUBEBUILDER_ASSETS=$(setup-envtest use --print path 1.36)

Or put the programs of a release there: kube-apiserver, kubectl and kube-proxy from https://dl.k8s.io/v1.36.4/bin/linux/amd64/ or built from
its sources (make WHAT=\"cmd/kube-apiserver cmd/kubectl cmd/kube-proxy\"), etcd from https://github.com/etcd-io/etcd/releases.";

impl Assets {
    /// The folder that the environment variable names.
    ///
    /// # Errors
    /// If the variable is not set, or the folder lacks a required program.
    pub fn find() -> Result<Self, AssetsError> {
        let folder = env::var_os(VARIABLE).filter(|folder| !folder.is_empty());
        Self::in_folder(PathBuf::from(folder.ok_or(AssetsError::Unset)?))
    }

    fn in_folder(folder: PathBuf) -> Result<Self, AssetsError> {
        let assets = Self { folder };
        let is_missing = |program: &&str| assets.optional(program).is_none();
        let programs: Vec<_> = REQUIRED.into_iter().filter(is_missing).collect();
        if programs.is_empty() {
            return Ok(assets);
        }
        Err(AssetsError::Missing {
            folder: assets.folder,
            programs,
        })
    }

    /// The path of a program, whether it exists or not.
    pub fn path(&self, program: impl AsRef<Path>) -> PathBuf {
        self.folder.join(program)
    }

    /// The path of a program, if it exists.
    pub fn optional(&self, program: impl AsRef<Path>) -> Option<PathBuf> {
        Some(self.path(program)).filter(|path| path.is_file())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Folder;

    #[test]
    fn names_every_missing_program_and_how_to_get_it() {
        let folder = Folder::new();
        folder.write("etcd", "");
        let error = Assets::in_folder(folder.path().to_owned()).unwrap_err();
        let message = error.to_string();
        assert!(
            message.contains("lacks kube-apiserver, kubectl\n"),
            "{message}"
        );
        assert!(message.contains("setup-envtest"), "{message}");
        for program in REQUIRED {
            folder.write(program, "");
        }
        let assets = Assets::in_folder(folder.path().to_owned()).unwrap();
        assert_eq!(assets.optional("kube-proxy"), None);
        assert!(assets.optional("kubectl").is_some());
    }
}
