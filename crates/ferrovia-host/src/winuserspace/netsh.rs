//! An interface whose addresses `netsh` reads and changes.

use std::collections::BTreeSet;
use std::env;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::thread;
use std::time::{Duration, Instant};

use ferrovia_core::family::Family;
use ferrovia_core::plan::userspace::windows::{
    INTERFACE_VARIABLE, NetshArguments, NetshChange, interface, show, shown,
};

use crate::exec::{self, Limits};

#[cfg(test)]
pub(super) mod tests;

/// How much of what `netsh` said a message repeats.
const MOST_SAID: usize = 300;

/// `netsh` did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not be run, or not to its end.
    #[error("cannot run `{call}`: {cause}")]
    Run { call: String, cause: exec::Error },
    #[error(
        "cannot run `{call}` ({status}): {said}; check that the interface exists ({INTERFACE_VARIABLE} names it) and that an administrator runs this"
    )]
    Refused {
        call: String,
        status: ExitStatus,
        /// What it printed, or the beginning of it.
        said: String,
    },
}

/// How `netsh` is run.
#[derive(Debug)]
struct Netsh {
    program: PathBuf,
    limits: Limits,
    /// How long an address that was added may take to be shown, and how often that is looked for.
    patience: Duration,
    pause: Duration,
}

/// An interface whose addresses of one family we change.
#[derive(Debug)]
pub struct Interface {
    netsh: Netsh,
    name: String,
    family: Family,
    /// The addresses that this process put there. Nothing marks them as ours, so those of an earlier process stay.
    added: BTreeSet<IpAddr>,
}

impl Interface {
    /// The interface of the configuration, or of the environment, or the usual one, which must be there.
    ///
    /// # Errors
    /// If its addresses cannot be read.
    pub fn open(family: Family, configured: Option<&str>) -> Result<Self, Error> {
        let environment = env::var(INTERFACE_VARIABLE).ok();
        let name = interface(configured, environment.as_deref());
        let opened = Self::with(Netsh::installed(), name, family);
        opened.shown()?;
        Ok(opened)
    }

    fn with(netsh: Netsh, name: &str, family: Family) -> Self {
        Self {
            netsh,
            name: name.to_owned(),
            family,
            added: BTreeSet::new(),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The addresses that are ours to remove.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn addresses(&self) -> Result<Vec<IpAddr>, Error> {
        let there = self.shown()?;
        Ok(there.intersection(&self.added).copied().collect())
    }

    /// Puts addresses on it and waits until they are shown. One that is there already stays, and stays another process's if it was.
    ///
    /// # Errors
    /// With the first that is refused, after the others were added; or if `netsh` cannot be run, at once.
    pub fn add(&mut self, changes: &[NetshChange]) -> Result<(), Error> {
        if changes.is_empty() {
            return Ok(());
        }
        let there = self.shown()?;
        let mut refused = Ok(());
        let mut fresh = BTreeSet::new();
        for change in changes.iter().filter(|change| !there.contains(&change.ip)) {
            // Whatever comes of it: if it is there afterwards, it is by us.
            self.added.insert(change.ip);
            match self.netsh.run(&change.arguments) {
                Ok(_) => drop(fresh.insert(change.ip)),
                Err(error @ Error::Refused { .. }) => {
                    self.added.remove(&change.ip);
                    refused = refused.and(Err(error));
                }
                Err(error) => return Err(error),
            }
        }
        self.wait_until_shown(fresh)?;
        refused
    }

    /// Takes addresses off it, of those that this process put there. One that is gone already is no failure.
    ///
    /// # Errors
    /// With the first that is refused, after the others were removed; or if `netsh` cannot be run, at once.
    pub fn remove(&mut self, changes: &[NetshChange]) -> Result<(), Error> {
        let mut refused = Ok(());
        for change in changes {
            if !self.added.contains(&change.ip) {
                continue;
            }
            match self.netsh.run(&change.arguments) {
                Err(error @ Error::Refused { .. }) if self.shown()?.contains(&change.ip) => {
                    refused = refused.and(Err(error));
                }
                Ok(_) | Err(Error::Refused { .. }) => drop(self.added.remove(&change.ip)),
                Err(error) => return Err(error),
            }
        }
        refused
    }

    /// `netsh` is done before an address can be listened on. One that does not come keeps only its own proxies waiting.
    fn wait_until_shown(&self, mut awaited: BTreeSet<IpAddr>) -> Result<(), Error> {
        let end = Instant::now() + self.netsh.patience;
        while !awaited.is_empty() {
            let there = self.shown()?;
            awaited.retain(|ip| !there.contains(ip));
            if Instant::now() > end {
                for ip in awaited {
                    tracing::warn!(address = %ip, interface = self.name, "Added address that netsh does not list yet");
                }
                return Ok(());
            }
            if !awaited.is_empty() {
                thread::sleep(self.netsh.pause);
            }
        }
        Ok(())
    }

    fn shown(&self) -> Result<BTreeSet<IpAddr>, Error> {
        let printed = self.netsh.run(&show(&self.name, self.family))?;
        Ok(shown(&printed, self.family).into_iter().collect())
    }
}

impl Netsh {
    /// The one that comes with Windows, whatever else of that name is about.
    fn installed() -> Self {
        let root = env::var_os("SystemRoot").unwrap_or_else(|| r"C:\Windows".into());
        Self {
            program: PathBuf::from(root).join("System32").join("netsh.exe"),
            limits: Limits {
                time: Duration::from_secs(30),
                bytes: 16 << 20,
            },
            patience: Duration::from_secs(10),
            pause: Duration::from_millis(500),
        }
    }

    /// What it prints. It complains there, too, and in the language and the characters of the machine.
    fn run(&self, arguments: &NetshArguments) -> Result<String, Error> {
        let call = || format!("netsh {}", arguments.join(" "));
        let output = exec::output(&self.program, arguments, String::new(), self.limits).map_err(
            |cause| Error::Run {
                call: call(),
                cause,
            },
        )?;
        let printed = String::from_utf8_lossy(&output.stdout);
        if output.status.success() {
            return Ok(printed.into_owned());
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        let words: Vec<&str> = (printed.split_whitespace())
            .chain(stderr.split_whitespace())
            .collect();
        Err(Error::Refused {
            call: call(),
            status: output.status,
            said: words.join(" ").chars().take(MOST_SAID).collect(),
        })
    }
}
