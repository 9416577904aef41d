//! How answers are printed: for people or for programs, on a terminal or into a pipe.

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal as _, Write};

use clap::ValueEnum;

/// For whom an answer is printed: people, or programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Text,
    Json,
}

/// Prints something. A reader that has gone, as in `ferrovia plan … | head`, is no error.
pub(super) fn print(text: impl Display) -> io::Result<()> {
    match write!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Colours are for terminals, and for those who have not asked for none.
pub(super) fn is_coloured() -> bool {
    let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stdout().is_terminal() && !is_unwanted
}
