//! The `ferrovia` program. Everything is in the library; this file turns its answer into an exit code.

use std::process::ExitCode;

use clap::Parser;
use ferrovia::cli::Cli;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One line that names every cause, outermost first.
            eprintln!("ferrovia: {error:#}");
            ExitCode::FAILURE
        }
    }
}
