//! Standard output that may be a pipe to a program that has seen enough.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

/// Prints something. A reader that has gone, as in `ferrovia plan … | head`, is no error.
pub(super) fn print(text: impl Display) -> io::Result<()> {
    match write!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}
