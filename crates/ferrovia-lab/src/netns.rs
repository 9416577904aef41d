//! Network namespaces that have names, as `ip netns` keeps them, so that people can look into a world with `ip -n`.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::sys;

/// Where the names are.
pub(crate) const FOLDER: &str = "/run/netns";

/// Where a namespace's name is.
pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// Makes a namespace for each name.
pub(crate) fn add(names: &[String]) -> io::Result<()> {
    make_folder()?;
    // A namespace is made by going there, so a thread of its own goes.
    let make_all = || names.iter().try_for_each(|name| make(&path(name)));
    std::thread::scope(|scope| scope.spawn(make_all).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Takes a namespace's name away, after which it lasts as long as it is in use. That it has none is no failure.
pub(crate) fn remove(name: &str) -> io::Result<()> {
    let path = path(name);
    // One that was never mounted is a plain file.
    if let Err(error) = sys::unmount(&path)
        && !matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOENT))
    {
        return Err(error);
    }
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn make(path: &Path) -> io::Result<()> {
    File::create_new(path)?;
    sys::enter_new_network()?;
    sys::bind(Path::new("/proc/thread-self/ns/net"), path)
}

/// Makes the folder a mount that is shared with all mount namespaces, as `ip netns add` does and under the same lock: what one of them
/// unmounts shall not be kept by another.
fn make_folder() -> io::Result<()> {
    let folder = Path::new(FOLDER);
    fs::create_dir_all(folder)?;
    let lock = File::open(folder)?;
    lock.lock()?;
    match sys::share_mounts(folder) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            sys::bind(folder, folder)?;
            sys::share_mounts(folder)
        }
        shared => shared,
    }
}
