//! The inner side: the guest's first process.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use super::job::{Job, TEMPORARY, VARIABLE};
use super::modules;
use crate::sys;

/// The terminal whose output the outer side streams. The kernel's console is another one.
const TERMINAL: &str = "/dev/tty0";

/// The guest's own file systems: type and mount point.
const MOUNTS: [(&str, &str); 3] = [("proc", "/proc"), ("sysfs", "/sys"), ("tmpfs", "/run")];

/// The conntrack table size and its sysctl. The kernel's default depends on memory, of which a guest has little: tests that call without
/// pause would fill the table in seconds, and packets would be dropped.
const TRACKED: (&str, &str) = ("/proc/sys/net/netfilter/nf_conntrack_max", "262144");

/// The program that the kernel starts to load modules on demand. It is disabled: all available modules are loaded already (`modules`), and
/// each request would start a program.
const ON_DEMAND: (&str, &str) = ("/proc/sys/kernel/modprobe", "\n");

/// Does nothing in an ordinary process. As the first process of a guest it runs the job, powers the guest off and never returns. Call this
/// at the beginning of `main`.
pub fn become_init_if_asked() {
    let Some(file) = std::env::var_os(VARIABLE).filter(|_| std::process::id() == 1) else {
        return;
    };
    if let Err(error) = work(Path::new(&file)) {
        // This is the kernel's console, which the outer side shows if the guest fails.
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
    // Raw mode: the terminal must not change the bytes.
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
    // The program's last line may lack a line ending, and the marker must begin a line.
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

/// The exit code as shells report it: 128 plus the number of a signal.
fn code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
