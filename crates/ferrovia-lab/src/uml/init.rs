//! The inner side: the guest's first process.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use super::job::{Job, TEMPORARY, VARIABLE};
use super::modules;
use crate::sys;

/// The terminal whose output the outer side streams. The kernel writes its own words to another.
const TERMINAL: &str = "/dev/tty0";

/// File systems that the guest has of its own: kind, where.
const MOUNTS: [(&str, &str); 3] = [("proc", "/proc"), ("sysfs", "/sys"), ("tmpfs", "/run")];

/// How many connections are tracked, and where that is said. The kernel goes by its memory, of which a guest has little: tests that call
/// without pause would fill the table in seconds, and then packets are dropped.
const TRACKED: (&str, &str) = ("/proc/sys/net/netfilter/nf_conntrack_max", "262144");

/// The program by which the kernel loads modules on demand. There is none: all that can be had is loaded (`modules`), and a question for
/// more would cost the start of a program each time.
const ON_DEMAND: (&str, &str) = ("/proc/sys/kernel/modprobe", "\n");

/// Does nothing in an ordinary process. As the first process of a guest it does the job it was booted for, ends the guest and never comes
/// back. To be called first thing in `main`.
pub fn become_init_if_asked() {
    let Some(file) = std::env::var_os(VARIABLE).filter(|_| std::process::id() == 1) else {
        return;
    };
    if let Err(error) = work(Path::new(&file)) {
        // This is the kernel's console, which the outer side shows when there is no proper end.
        eprintln!("ferrovia-uml: {error}");
    }
    sys::power_off();
}

fn work(file: &Path) -> io::Result<()> {
    let (job, token) = Job::read(file)?;
    for (kind, target) in MOUNTS {
        sys::mount(kind, target).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot mount {target}: {error}"))
        })?;
    }
    fs::create_dir(TEMPORARY)?;
    let mut terminal = OpenOptions::new().write(true).open(TERMINAL)?;
    // Bytes shall come out as they go in.
    sys::make_raw(&terminal)?;
    modules::load_wanted()?;
    for (setting, value) in [TRACKED, ON_DEMAND] {
        fs::write(setting, value)?;
    }
    sys::allow_many_open_files()?;
    writeln!(terminal, "{token} ready")?;
    let code = match run(&job, &terminal) {
        Ok(status) => code(status),
        Err(error) => {
            writeln!(terminal, "ferrovia-uml: cannot run the program: {error}")?;
            127
        }
    };
    // What the program printed last may lack an end of line, and the marker has to begin one.
    write!(terminal, "\n{token} end {code}\n")?;
    sys::drain(&terminal)
}

fn run(job: &Job, terminal: &File) -> io::Result<ExitStatus> {
    job.command()
        .stdin(Stdio::null())
        .stdout(terminal.try_clone()?)
        .stderr(terminal.try_clone()?)
        .status()
}

/// The exit code as shells count: a signal is 128 and its number.
fn code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
