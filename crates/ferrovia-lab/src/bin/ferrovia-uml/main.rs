//! Runs a program in user-mode Linux: a kernel with IPVS, ipset and all of netfilter, booted for this program.
//!
//! `ferrovia-uml ipvsadm -Ln`, `ferrovia-uml --memory 2G -- sh -c 'ip link add d0 type dummy && ip link'`

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use ferrovia_lab::uml::{self, Job, Machine};

/// Runs a program as root in user-mode Linux, with this machine's files (read-only), and exits with its exit code.
#[derive(Parser)]
struct Options {
    /// Memory of the guest, such as 512M or 2G
    #[arg(long, default_value = "1G")]
    memory: String,
    /// Time limit of the program in seconds
    #[arg(long, default_value_t = 900)]
    limit: u64,
    /// Program to run
    program: PathBuf,
    /// Arguments of the program
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

fn main() -> anyhow::Result<ExitCode> {
    uml::become_init_if_asked();
    let options = Options::parse();
    let job = Job::new(options.program, options.arguments)?;
    let code = Machine::default()
        .memory(&options.memory)
        .limit(Duration::from_secs(options.limit))
        .run(&job, &mut io::stdout())?;
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
}
