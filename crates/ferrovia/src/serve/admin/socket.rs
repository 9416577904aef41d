//! The socket on which commands ask the daemon. Whoever may open it is decided by its file's mode: the daemon's user alone.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::UnixListener;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::{Admin, Door};
use crate::serve::http::answer::Answer;
use crate::serve::http::pool::Pool;
use crate::serve::http::server::{Handler, serve};

/// How many clients may be connected.
const CONNECTIONS: usize = 64;
/// How many may wait to be.
const BACKLOG: i32 = 16;
/// The pause between two tries to get the socket from a daemon that is about to end.
const RETRY: Duration = Duration::from_secs(5);
/// Listeners to events stay; everybody else is done in a moment.
const LIFETIME: Duration = Duration::from_secs(3600);

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
enum SocketError {
    #[error("another daemon answers there")]
    Taken,
    #[error("there is something that is not a socket")]
    NotASocket,
    #[error("cannot make its folder: {0}")]
    Folder(io::Error),
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// The socket at work, or trying to be; its file goes when this is dropped.
#[derive(Debug)]
pub(crate) struct AdminSocket {
    task: AbortHandle,
    file: Arc<Mutex<Option<OwnFile>>>,
}

/// A file of ours, told from another's by its number.
#[derive(Debug)]
struct OwnFile {
    path: PathBuf,
    inode: u64,
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        self.task.abort();
        let file = self
            .file
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(file) = file {
            file.remove();
        }
    }
}

impl OwnFile {
    /// What is at this path, which we have just put there.
    fn at(path: &Path) -> Option<Self> {
        let inode = fs::symlink_metadata(path).ok()?.ino();
        Some(Self {
            path: path.to_owned(),
            inode,
        })
    }

    /// A successor may have put its own there.
    fn remove(&self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|it| it.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Starts to answer on a socket. If it cannot be had that is a warning, and tried again: nothing depends on it.
pub(crate) fn serve_socket(runtime: &Handle, path: &Path, admin: Arc<Admin>) -> AdminSocket {
    let file = Arc::new(Mutex::new(None));
    let first = open_own(path, &file)
        .inspect_err(|error| tracing::warn!(path = %path.display(), %error, "commands cannot ask this daemon; trying again every 5 s"))
        .ok();
    let (path, own) = (path.to_owned(), Arc::clone(&file));
    let task = runtime.spawn(async move {
        let listener = wait_for(first, &path, &own).await;
        tracing::info!(path = %path.display(), "listening for commands");
        serve(
            listener,
            Arc::new(Commands(admin)),
            Arc::new(Pool::new(CONNECTIONS)),
        )
        .await;
    });
    AdminSocket {
        task: task.abort_handle(),
        file,
    }
}

struct Commands(Arc<Admin>);

impl Handler for Commands {
    const LIFETIME: Duration = LIFETIME;

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        super::answer(&self.0, Door::Socket, request.method(), request.uri()).await
    }
}

async fn wait_for(
    first: Option<std::os::unix::net::UnixListener>,
    path: &Path,
    own: &Mutex<Option<OwnFile>>,
) -> UnixListener {
    let mut next = first;
    loop {
        match next.map(UnixListener::from_std) {
            Some(Ok(listener)) => return listener,
            Some(Err(error)) => tracing::warn!(%error, "cannot wait for commands"),
            None => {}
        }
        sleep(RETRY).await;
        // That it failed is known; the same every five seconds is no news.
        next = open_own(path, own)
            .inspect_err(|error| tracing::debug!(%error, "still no socket for commands"))
            .ok();
    }
}

/// Opens the socket, and keeps which file is to go with it.
fn open_own(
    path: &Path,
    own: &Mutex<Option<OwnFile>>,
) -> Result<std::os::unix::net::UnixListener, SocketError> {
    let listener = open(path)?;
    *own.lock().unwrap_or_else(PoisonError::into_inner) = OwnFile::at(path);
    Ok(listener)
}

/// Makes the socket under another name, closes it to others, and only then lets it be found and answer.
fn open(path: &Path) -> Result<std::os::unix::net::UnixListener, SocketError> {
    make_folder(path).map_err(SocketError::Folder)?;
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => return Err(SocketError::NotASocket),
        Ok(_) if UnixStream::connect(path).is_ok() => return Err(SocketError::Taken),
        _ => {}
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let beside = PathBuf::from(beside);
    let _ = fs::remove_file(&beside);
    let made = make(&beside).and_then(|listener| {
        fs::rename(&beside, path)?;
        Ok(listener)
    });
    if made.is_err() {
        let _ = fs::remove_file(&beside);
    }
    Ok(made?)
}

/// Nobody can connect before it listens, and it listens only once its mode is right.
fn make(path: &Path) -> io::Result<std::os::unix::net::UnixListener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Only a folder that is made here gets its mode from us.
fn make_folder(path: &Path) -> io::Result<()> {
    let Some(folder) = path.parent().filter(|folder| !folder.exists()) else {
        return Ok(());
    };
    fs::create_dir_all(folder)?;
    fs::set_permissions(folder, Permissions::from_mode(0o755))
}

#[cfg(test)]
mod tests {
    use ferrovia_lab::Folder;

    use super::super::{About, Looker};
    use super::*;
    use crate::inspect::query::diff::Kernel;
    use crate::mode::{Mode, NftablesMode};
    use crate::serve::health::{Health, State};
    use crate::sync;

    /// A place for a socket, in a folder that is not there yet.
    const SOCKET: &str = "run/admin.sock";

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn only_its_owner_may_open_it() {
        let folder = Folder::new();
        let _listener = open(&folder.join(SOCKET)).unwrap();
        assert_eq!(mode(&folder.join(SOCKET)), 0o600);
        assert_eq!(mode(folder.join(SOCKET).parent().unwrap()), 0o755);
        let beside: Vec<_> = fs::read_dir(folder.join("run")).unwrap().collect();
        assert_eq!(beside.len(), 1);
    }

    #[test]
    fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
        let folder = Folder::new();
        let listener = open(&folder.join(SOCKET)).unwrap();
        assert!(matches!(
            open(&folder.join(SOCKET)),
            Err(SocketError::Taken)
        ));
        drop(listener);
        assert!(open(&folder.join(SOCKET)).is_ok());
    }

    /// A daemon that cannot start ends before its network thread runs.
    #[test]
    fn the_file_goes_even_if_nobody_was_answered_yet() {
        let folder = Folder::new();
        let path = folder.join(SOCKET);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let socket = serve_socket(runtime.handle(), &path, Arc::new(admin()));
        assert!(path.exists());
        drop(socket);
        assert!(!path.exists());
    }

    fn admin() -> Admin {
        let mode: Arc<dyn Mode> = Arc::new(NftablesMode::default());
        let about = About {
            node: "node-1".to_owned(),
            mode: Arc::clone(&mode),
            families: Vec::new(),
            source: "manifests",
        };
        let (looker, _) = Looker::new(Kernel {
            mode,
            counters: false,
            proxies: None,
        });
        let health = Arc::new(Health::new(State::new(Duration::ZERO, false)));
        let (inputs, _) = sync::queue();
        Admin::new(about, inputs, health, Arc::default(), None, looker)
    }

    #[test]
    fn other_peoples_files_stay() {
        let folder = Folder::new();
        fs::create_dir_all(folder.join("run")).unwrap();
        fs::write(folder.join(SOCKET), "precious").unwrap();
        assert!(matches!(
            open(&folder.join(SOCKET)),
            Err(SocketError::NotASocket)
        ));
        assert_eq!(fs::read_to_string(folder.join(SOCKET)).unwrap(), "precious");
    }
}
