//! Asking a daemon from a command: one question, one answer, no runtime.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::VERSION;
use crate::config::ADMIN_SOCKET;

/// How long the daemon may be silent.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same, where it has to look into the kernel; it gives up a little sooner itself.
const PATIENCE_WITH_WORK: Duration = Duration::from_secs(60);
/// The largest answer; a thousand services are a few hundred kilobytes.
const LARGEST: u64 = 64 * 1024 * 1024;

/// Why there is no answer, and what to try.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody answers.
    #[error(
        "no daemon answers at {}; start one, give its --admin-socket, or read objects yourself with --manifests or --kubeconfig",
        .0.display()
    )]
    NoDaemon(PathBuf),
    /// The socket is not for us.
    #[error("no permission to ask the daemon at {}; run this as the daemon's user, mostly with sudo", .0.display())]
    NoPermission(PathBuf),
    /// The daemon is of another release, so its answers may mean something else.
    #[error(
        "the daemon is ferrovia {theirs} and this command is {VERSION}; restart the daemon, or use its own program"
    )]
    OtherVersion {
        /// The daemon's.
        theirs: String,
    },
    /// The daemon cannot or will not say.
    #[error("{error}; {hint}")]
    Refused {
        /// Why.
        error: String,
        /// What to try.
        hint: String,
    },
    /// It was not the daemon that answered, or only half of it arrived.
    #[error("{} does not answer like a daemon of ours ({what}); see what listens there with ss -xlp", path.display())]
    Strange {
        /// Where.
        path: PathBuf,
        /// What is strange.
        what: String,
    },
    /// The conversation broke off.
    #[error("cannot ask the daemon at {}: {cause}; its log may say why", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What failed.
        cause: io::Error,
    },
}

/// A way to a daemon.
#[derive(Clone, Debug)]
pub struct Client {
    path: PathBuf,
    patience: Duration,
}

impl Default for Client {
    fn default() -> Self {
        Self::new(ADMIN_SOCKET)
    }
}

impl Client {
    /// The daemon at this socket. Nothing is opened yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            patience: PATIENCE,
        }
    }

    /// The same for questions that take much work.
    #[must_use]
    pub fn for_much_work(self) -> Self {
        Self {
            patience: PATIENCE_WITH_WORK,
            ..self
        }
    }

    /// Somebody listens there, whether we may speak to them or not.
    pub fn is_there(&self) -> bool {
        match UnixStream::connect(&self.path) {
            Ok(_) => true,
            Err(error) => !matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The answer to `GET /api/v1/` and this path, which must be encoded as a URL.
    ///
    /// # Errors
    /// In one line, with what to try.
    pub fn get(&self, path: &str) -> Result<Value, ClientError> {
        let (code, body) = self.exchange(path)?;
        let answer: Value = serde_json::from_slice(&body).map_err(|error| self.strange(&error))?;
        let theirs = answer["version"].as_str().unwrap_or_default();
        if theirs.is_empty() {
            return Err(self.strange(&"it does not say its version"));
        }
        if theirs != VERSION {
            return Err(ClientError::OtherVersion {
                theirs: theirs.chars().take(40).collect(),
            });
        }
        if code == 200 {
            return Ok(answer);
        }
        let text = |field: &str| answer[field].as_str().unwrap_or_default().to_owned();
        Err(ClientError::Refused {
            error: text("error"),
            hint: text("try"),
        })
    }

    fn exchange(&self, path: &str) -> Result<(u16, Vec<u8>), ClientError> {
        let failed = |source| self.failed(source);
        let mut stream = UnixStream::connect(&self.path).map_err(failed)?;
        stream
            .set_read_timeout(Some(self.patience))
            .map_err(failed)?;
        stream
            .set_write_timeout(Some(self.patience))
            .map_err(failed)?;
        let request =
            format!("GET /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).map_err(failed)?;
        let mut answer = Vec::new();
        stream
            .take(LARGEST)
            .read_to_end(&mut answer)
            .map_err(failed)?;
        read(&answer).map_err(|what| self.strange(&what))
    }

    fn failed(&self, cause: io::Error) -> ClientError {
        let path = self.path.clone();
        match cause.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                ClientError::NoDaemon(path)
            }
            io::ErrorKind::PermissionDenied => ClientError::NoPermission(path),
            _ => ClientError::Io { path, cause },
        }
    }

    /// What to say of an answer that cannot be understood.
    pub(crate) fn strange(&self, what: &impl ToString) -> ClientError {
        ClientError::Strange {
            path: self.path.clone(),
            what: what.to_string(),
        }
    }
}

/// Makes a text fit for a parameter.
pub fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/:".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// The code and the body. Our answers have a length.
fn read(answer: &[u8]) -> Result<(u16, Vec<u8>), &'static str> {
    let end = answer
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .ok_or("no head")?;
    let head = std::str::from_utf8(&answer[..end]).map_err(|_| "the head is not text")?;
    let body = &answer[end + 4..];
    let mut lines = head.split("\r\n");
    let code = lines
        .next()
        .and_then(|line| line.strip_prefix("HTTP/1.1 "))
        .and_then(|line| line.get(..3)?.parse().ok())
        .ok_or("no HTTP")?;
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse::<usize>().ok())
        .ok_or("no length")?;
    let body = body.get(..length).ok_or("it was broken off")?;
    Ok((code, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use ferrovia_lab::Folder;

    use super::*;

    /// What a client makes of an answer.
    fn answered(answer: &'static str) -> Result<Value, ClientError> {
        let folder = Folder::new();
        let path = folder.join("admin.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(answer.as_bytes());
        });
        let got = Client::new(&path).get("overview");
        server.join().unwrap();
        got
    }

    #[test]
    fn errors_are_one_line_that_says_what_to_try() {
        let nobody = Client::new("/nonexistent/admin.sock")
            .get("overview")
            .unwrap_err();
        assert!(matches!(nobody, ClientError::NoDaemon(_)));
        let other = "HTTP/1.1 200 OK\r\ncontent-length: 17\r\n\r\n{\"version\":\"0.0\"}";
        let other = answered(other).unwrap_err();
        assert!(matches!(other, ClientError::OtherVersion { .. }));
        let half = answered("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}").unwrap_err();
        assert!(matches!(half, ClientError::Strange { .. }));
        let noise = answered("SSH-2.0-x\r\n").unwrap_err();
        assert!(matches!(noise, ClientError::Strange { .. }));
        for error in [nobody, other, half, noise] {
            assert_eq!(error.to_string().lines().count(), 1);
        }
    }

    #[test]
    fn parameters_are_encoded() {
        assert_eq!(encode("a b&c=é"), "a%20b%26c%3D%C3%A9");
        assert_eq!(encode("10.96.0.10:53/udp"), "10.96.0.10:53/udp");
    }
}
