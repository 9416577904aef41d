//! Every flag of the daemon: its name, what it takes, its default, what it says of itself, and what it sets.

mod kernel;
mod node;
mod process;

use super::Typed;
use super::values::ip_and_port;

/// What stands behind a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing, or `=true`, `=false`.
    Bool,
    /// Nothing, or `=` and something.
    Optional(&'static str),
    /// One value.
    Value(&'static str),
    /// One value, or several with commas; may be given several times.
    List(&'static str),
}

impl Kind {
    /// It needs nothing behind it.
    pub fn stands_alone(self) -> bool {
        matches!(self, Self::Bool | Self::Optional(_))
    }
}

/// One flag.
#[derive(Debug)]
pub struct Flag {
    /// Its name without the dashes.
    pub name: &'static str,
    /// Other names that mean the same.
    pub aliases: &'static [&'static str],
    /// One letter that means the same.
    pub short: Option<char>,
    /// What it takes.
    pub kind: Kind,
    /// What holds without it, as text.
    pub default: &'static str,
    /// What it does, in a sentence.
    pub help: &'static str,
    /// It counts although there is a configuration file.
    pub beats_file: bool,
    /// The flag to use in place of this one, which is about to go.
    pub deprecated: Option<&'static str>,
    /// Sets what it sets; answers with the reason if the value is no good.
    pub(super) set: fn(&mut Typed, &str) -> Result<(), String>,
}

const fn flag(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    help: &'static str,
    set: fn(&mut Typed, &str) -> Result<(), String>,
) -> Flag {
    Flag {
        name,
        aliases: &[],
        short: None,
        kind,
        default,
        help,
        beats_file: false,
        deprecated: None,
        set,
    }
}

impl Flag {
    const fn beats_file(self) -> Self {
        Self {
            beats_file: true,
            ..self
        }
    }

    const fn aliases(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    const fn short(self, letter: char) -> Self {
        Self {
            short: Some(letter),
            ..self
        }
    }

    const fn deprecated(self, instead: &'static str) -> Self {
        Self {
            deprecated: Some(instead),
            ..self
        }
    }
}

/// All flags under their headings, in the order in which help shows them.
pub const GROUPS: [(&str, &[Flag]); 10] = [
    ("What to do", process::ACTIONS),
    ("Where Services and EndpointSlices come from", node::SOURCES),
    ("This node", node::NODE),
    ("How rules are written", kernel::RULES),
    ("The modes iptables and ipvs", kernel::OTHER_MODES),
    ("Connection tracking", kernel::CONNTRACK),
    ("Health and metrics", process::SERVERS),
    ("The page and the socket", process::VIEWS),
    ("Logging", process::LOGGING),
    ("Other", process::OTHER),
];

/// All flags.
pub fn flags() -> impl Iterator<Item = &'static Flag> {
    GROUPS.iter().flat_map(|(_, flags)| *flags)
}

/// Puts a value that was read where it belongs.
fn put<T>(place: &mut T, value: Result<T, String>) -> Result<(), String> {
    *place = value?;
    Ok(())
}

/// The same for what may be absent.
fn put_some<T>(place: &mut Option<T>, value: Result<T, String>) -> Result<(), String> {
    *place = Some(value?);
    Ok(())
}

fn text(place: &mut String, value: &str) -> Result<(), String> {
    value.clone_into(place);
    Ok(())
}

/// An empty path is none.
fn path(place: &mut Option<std::path::PathBuf>, value: &str) -> Result<(), String> {
    *place = (!value.is_empty()).then(|| value.into());
    Ok(())
}

/// An empty address turns the server off; that is written as port 0, because to a file an empty address is none given.
fn server(place: &mut String, value: &str) -> Result<(), String> {
    *place = ip_and_port(value)?;
    if place.is_empty() {
        "0.0.0.0:0".clone_into(place);
    }
    Ok(())
}
