//! The program to run inside, passed from the outer to the inner side in a file.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// The parameter on the kernel's command line with the job's file. The kernel passes unknown parameters to the first process as environment
/// variables.
pub(super) const VARIABLE: &str = "ferrovia_job";
/// The folder of temporary files inside: the root is read-only.
pub(super) const TEMPORARY: &str = "/run/tmp";

/// A program to run inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    program: PathBuf,
    args: Vec<String>,
    env: Vec<(String, String)>,
    folder: PathBuf,
}

impl Job {
    /// This program with these arguments, in the caller's working directory and with the caller's environment, as far as that is UTF-8.
    ///
    /// # Errors
    /// If the caller's working directory does not exist.
    pub fn new(
        program: impl Into<PathBuf>,
        args: impl IntoIterator<Item = String>,
    ) -> io::Result<Self> {
        let text = |(name, value): (OsString, OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Ok(Self {
            program: program.into(),
            args: args.into_iter().collect(),
            env: std::env::vars_os().filter_map(text).collect(),
            folder: std::env::current_dir()?,
        })
    }

    /// Adds an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The command, for the inner side.
    pub(super) fn command(&self) -> std::process::Command {
        let mut command = std::process::Command::new(&self.program);
        command
            .args(&self.args)
            .current_dir(&self.folder)
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .env("TMPDIR", TEMPORARY);
        command
    }

    /// Writes the file, with the token by which the outer side recognises the inner one.
    pub(super) fn write(&self, file: &Path, token: &str) -> io::Result<()> {
        let text = json!({
            "token": token,
            "program": self.program.to_string_lossy(),
            "args": self.args,
            "env": self.env,
            "folder": self.folder.to_string_lossy(),
        });
        std::fs::write(file, text.to_string())
    }

    pub(super) fn read(file: &Path) -> io::Result<(Self, String)> {
        let value: Value = serde_json::from_slice(&std::fs::read(file)?)?;
        Self::from_value(&value).ok_or_else(|| io::Error::other("the job's file is not valid"))
    }

    fn from_value(value: &Value) -> Option<(Self, String)> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let pair = |pair: &Value| Some((text(pair.get(0)?)?, text(pair.get(1)?)?));
        let job = Self {
            program: text(&value["program"])?.into(),
            args: value["args"].as_array()?.iter().filter_map(text).collect(),
            env: value["env"].as_array()?.iter().filter_map(pair).collect(),
            folder: text(&value["folder"])?.into(),
        };
        Some((job, text(&value["token"])?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::Folder;

    #[test]
    fn a_job_is_read_as_it_was_written() {
        let folder = Folder::new();
        let file = folder.join("job");
        let args = ["a b", "", "\"\n"].map(str::to_owned);
        let job = Job::new("/bin/true", args).unwrap().env("A", "=b\n");
        job.write(&file, "word").unwrap();
        assert_eq!(Job::read(&file).unwrap(), (job, "word".to_owned()));
    }

    #[test]
    fn nonsense_is_no_job() {
        assert_eq!(Job::from_value(&json!({"program": 1})), None);
    }
}
