//! The `ferrovia` program. Everything is in the library; this file turns its answer into an exit code.

use std::process::ExitCode;

use ferrovia::cli::{self, UsageError};

fn main() -> ExitCode {
    match cli::main(std::env::args_os()) {
        Ok(code) => code,
        Err(error) => {
            if error.is::<UsageError>() {
                eprintln!("Error: {error}");
            } else {
                // One line that names every cause, outermost first.
                eprintln!("ferrovia: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}
