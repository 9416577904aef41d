//! The daemon's flags as typed, and how Go's flags are read: `--x=y`, `--x y`, `--x` alone for a bool, `_` for `-`, lists that repeat.
//!
//! What a flag means is in [`table`]; most set a field of the file form, so that flags and file meet in one value. What a flag's value may be
//! is in `values.rs`.

pub mod table;
mod values;

use std::collections::BTreeMap;
use std::path::PathBuf;

pub use table::{Flag, GROUPS, Kind};
pub(super) use values::split_host_port;

use super::duration::GoDuration;
use super::file::Document;

/// Everything that was typed.
#[derive(Clone, Debug, Default)]
pub struct Typed {
    /// Flags that have a field, over the defaults.
    pub(super) document: Document,
    /// `--config`.
    pub(super) config: Option<PathBuf>,
    /// `--write-config-to`.
    pub(super) write_config_to: Option<PathBuf>,
    pub(super) cleanup: bool,
    pub(super) force: bool,
    pub(super) init_only: bool,
    pub(super) once: bool,
    pub(super) master: String,
    pub(super) hostname_override: String,
    pub(super) healthz_port: Option<i32>,
    pub(super) metrics_port: Option<i32>,
    /// `--iptables-sync-period` and its like, which hold in every mode but ipvs.
    pub(crate) iptables_periods: Periods,
    /// Those of ipvs.
    pub(crate) ipvs_periods: Periods,
    /// Our own, which hold in every mode.
    pub(super) periods: Periods,
    /// For whichever mode is used.
    pub(super) masquerade_all: Option<bool>,
    pub(super) version: Version,
    pub(super) wants_help: bool,
    /// What was typed, in its order.
    given: Vec<(&'static Flag, String)>,
}

/// Two periods, where given.
#[derive(Clone, Copy, Debug, Default)]
pub struct Periods {
    pub(super) sync: Option<GoDuration>,
    pub(super) min: Option<GoDuration>,
}

/// What `--version` asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// Nothing.
    #[default]
    No,
    /// The version.
    Plain,
    /// All there is to know about it.
    Raw,
}

/// A command line that cannot be read. Worded as people of kube-proxy know it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    /// No such flag.
    #[error("unknown flag: {0}")]
    Unknown(String),
    /// No such one-letter flag.
    #[error("unknown shorthand flag: {0:?} in -{1}")]
    UnknownShort(char, String),
    /// Its value is missing.
    #[error("flag needs an argument: {0}")]
    NeedsValue(String),
    /// Its value cannot be used.
    #[error("invalid argument {value:?} for {flag:?} flag: {why}")]
    BadValue {
        /// The flag with its dashes.
        flag: String,
        /// What was given.
        value: String,
        /// Why that is no good.
        why: String,
    },
    /// Something that is no flag.
    #[error("unknown command {0:?}")]
    Positional(String),
}

/// Reads the arguments behind the program's name.
pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Typed, FlagError> {
    let mut typed = Typed::default();
    super::defaults::apply(&mut typed.document);
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        if argument == "--" {
            // Whatever follows is no flag, and there is nothing it could be.
            match arguments.find(|rest| !rest.is_empty()) {
                Some(rest) => return Err(FlagError::Positional(rest)),
                None => break,
            }
        } else if let Some(long) = argument.strip_prefix("--") {
            let (name, value) = split(long);
            let flag = find(&name).ok_or_else(|| FlagError::Unknown(format!("--{name}")))?;
            typed.take(flag, format!("--{name}"), value, &mut arguments)?;
        } else if argument.len() > 1
            && let Some(short) = argument.strip_prefix('-')
        {
            typed.take_short(short, &mut arguments)?;
        } else if !argument.is_empty() {
            return Err(FlagError::Positional(argument));
        }
    }
    Ok(typed)
}

/// `name=value`, with the name as the table spells it.
fn split(long: &str) -> (String, Option<String>) {
    let (name, value) = match long.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (long, None),
    };
    (name.replace('_', "-"), value)
}

fn find(name: &str) -> Option<&'static Flag> {
    table::flags().find(|flag| flag.name == name || flag.aliases.contains(&name))
}

impl Typed {
    /// `-v 4`, `-v=4`, `-v4`, `-h`.
    fn take_short(
        &mut self,
        short: &str,
        rest: &mut impl Iterator<Item = String>,
    ) -> Result<(), FlagError> {
        let mut characters = short.chars();
        let letter = characters.next().unwrap_or_default();
        let flag = table::flags()
            .find(|flag| flag.short == Some(letter))
            .ok_or_else(|| FlagError::UnknownShort(letter, short.to_owned()))?;
        let behind = characters.as_str();
        let value = match behind.strip_prefix('=') {
            Some(value) => Some(value.to_owned()),
            None if behind.is_empty() || flag.kind == Kind::Bool => None,
            None => Some(behind.to_owned()),
        };
        self.take(flag, format!("-{letter}"), value, rest)
    }

    fn take(
        &mut self,
        flag: &'static Flag,
        spelled: String,
        value: Option<String>,
        rest: &mut impl Iterator<Item = String>,
    ) -> Result<(), FlagError> {
        let value = match value {
            Some(value) => value,
            None if flag.kind.stands_alone() => "true".to_owned(),
            None => rest
                .next()
                .ok_or_else(|| FlagError::NeedsValue(spelled.clone()))?,
        };
        (flag.set)(self, &value).map_err(|why| FlagError::BadValue {
            flag: spelled,
            value: value.chars().take(100).collect(),
            why,
        })?;
        self.given.push((flag, value));
        Ok(())
    }

    /// Whether `--help` was given.
    pub fn wants_help(&self) -> bool {
        self.wants_help
    }

    /// What `--version` asks for.
    pub fn version(&self) -> Version {
        self.version
    }

    /// A line for each flag that is about to go, for standard error.
    pub fn deprecations(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .given
            .iter()
            .filter_map(|(flag, _)| {
                let instead = flag.deprecated?;
                Some(format!(
                    "Flag --{} has been deprecated; use --{instead} instead",
                    flag.name
                ))
            })
            .collect();
        lines.dedup();
        lines
    }

    /// Whether a flag was typed, under whichever of its names.
    pub(super) fn is_given(&self, name: &str) -> bool {
        self.given.iter().any(|(flag, _)| flag.name == name)
    }

    /// The flags that a configuration file makes void.
    pub(super) fn ignored_with_file(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self
            .given
            .iter()
            .filter(|(flag, _)| !flag.beats_file)
            .map(|(flag, _)| flag.name)
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Puts a file's content where the flags were folded into, then those flags over it that go before a file.
    pub(super) fn put_over(&mut self, file: Document) {
        self.document = file;
        let from_file = std::mem::take(&mut self.document.logging.vmodule);
        for (flag, value) in self.given.clone() {
            if flag.beats_file {
                // It was accepted before, when it was typed.
                let _ = (flag.set)(self, &value);
            }
        }
        // Of the flag's and the file's patterns the flag's come first, and the first that fits counts.
        self.document.logging.vmodule.extend(from_file);
    }

    /// Every flag with its value, by name.
    pub(super) fn values(&self) -> BTreeMap<String, String> {
        let value = |flag: &Flag| {
            let given: Vec<&str> = self
                .given
                .iter()
                .filter(|(given, _)| given.name == flag.name)
                .map(|(_, value)| value.as_str())
                .collect();
            match (given.last(), flag.kind) {
                (None, _) => flag.default.to_owned(),
                (Some(_), Kind::List(_)) => given.join(","),
                (Some(last), _) => (*last).to_owned(),
            }
        };
        table::flags()
            .filter(|flag| flag.name != "help")
            .map(|flag| (flag.name.to_owned(), value(flag)))
            .collect()
    }
}
