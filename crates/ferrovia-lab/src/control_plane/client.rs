//! A client that does as little as possible: HTTP/1.1 over TLS, blocking, every header in view.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

use super::pki::Identity;

/// Longer than any answer takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// How a client proves who it is.
#[derive(Clone, Debug)]
pub enum Credentials {
    /// Not at all.
    None,
    /// By a bearer token.
    Token(String),
    /// By a certificate.
    Certificate(Identity),
}

/// Where to ask, and as whom.
#[derive(Clone, Debug)]
pub struct Client {
    address: SocketAddr,
    config: Arc<ClientConfig>,
    token: Option<String>,
}

/// A connection that is used for one request after the other.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<StreamOwned<ClientConnection, TcpStream>>,
    address: SocketAddr,
    token: Option<String>,
}

/// The head of an answer.
#[derive(Clone, Debug)]
pub struct Head {
    /// The code.
    pub code: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
}

/// An answer that has come whole.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Its head.
    pub head: Head,
    /// Its body.
    pub body: Vec<u8>,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The method.
    pub method: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// What is accepted.
    pub accept: &'a str,
    /// The kind of the body.
    pub content_type: &'a str,
    /// The body; empty for none.
    pub body: &'a [u8],
}

impl<'a> Ask<'a> {
    /// Asks for something in JSON.
    pub fn get(target: &'a str) -> Self {
        Self {
            method: "GET",
            target,
            accept: "application/json",
            content_type: "application/json",
            body: &[],
        }
    }

    /// Sends something in JSON.
    pub fn send(method: &'a str, target: &'a str, body: &'a [u8]) -> Self {
        Self {
            method,
            body,
            ..Self::get(target)
        }
    }
}

impl Head {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

impl Reply {
    /// The body as JSON; null if it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

impl Client {
    /// A client that trusts an authority (PEM).
    ///
    /// # Errors
    /// If a certificate cannot be used.
    pub fn new(
        address: SocketAddr,
        authority: &str,
        credentials: Credentials,
    ) -> Result<Self, rustls::Error> {
        let other =
            |error: rustls::pki_types::pem::Error| rustls::Error::General(error.to_string());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).map_err(other)?)?;
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let (config, token) = match credentials {
            Credentials::None => (builder.with_no_client_auth(), None),
            Credentials::Token(token) => (builder.with_no_client_auth(), Some(token)),
            Credentials::Certificate(Identity { certificate, key }) => {
                let chain = CertificateDer::from_pem_slice(certificate.as_bytes());
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(other)?;
                let chain = vec![chain.map_err(other)?];
                (builder.with_client_auth_cert(chain, key)?, None)
            }
        };
        Ok(Self {
            address,
            config: Arc::new(config),
            token,
        })
    }

    /// The same client with another bearer token.
    pub fn with_token(&self, token: &str) -> Self {
        Self {
            token: Some(token.to_owned()),
            ..self.clone()
        }
    }

    /// Connects, from the network namespace of the calling thread.
    ///
    /// # Errors
    /// If there is no server, or it is not one that the authority knows.
    pub fn connect(&self) -> io::Result<Connection> {
        let tcp = TcpStream::connect_timeout(&self.address, PATIENCE)?;
        tcp.set_read_timeout(Some(PATIENCE))?;
        tcp.set_write_timeout(Some(PATIENCE))?;
        tcp.set_nodelay(true)?;
        let name = ServerName::from(self.address.ip());
        let tls =
            ClientConnection::new(Arc::clone(&self.config), name).map_err(io::Error::other)?;
        Ok(Connection {
            stream: BufReader::new(StreamOwned::new(tls, tcp)),
            address: self.address,
            token: self.token.clone(),
        })
    }

    /// Asks once, over a connection of its own.
    ///
    /// # Errors
    /// If no whole answer comes.
    pub fn ask(&self, ask: &Ask<'_>) -> io::Result<Reply> {
        self.connect()?.ask(ask)
    }
}

impl Connection {
    /// Asks, and reads the whole answer.
    ///
    /// # Errors
    /// If no whole answer comes.
    pub fn ask(&mut self, ask: &Ask<'_>) -> io::Result<Reply> {
        let head = self.begin(ask)?;
        let mut body = Vec::new();
        if head.header("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = self.chunk()? {
                body.extend_from_slice(&chunk);
            }
        } else {
            let length = head.header("content-length").unwrap_or("0");
            body.resize(length.parse().map_err(io::Error::other)?, 0);
            self.stream.read_exact(&mut body)?;
        }
        Ok(Reply { head, body })
    }

    /// Asks, and reads the head of the answer only. The body follows with [`Connection::chunk`] if it is chunked, as watches are.
    ///
    /// # Errors
    /// If no answer comes.
    pub fn begin(&mut self, ask: &Ask<'_>) -> io::Result<Head> {
        let mut head = format!(
            "{} {} HTTP/1.1\r\nHost: {}\r\nAccept: {}\r\n",
            ask.method, ask.target, self.address, ask.accept
        );
        if let Some(token) = &self.token {
            head += &format!("Authorization: Bearer {token}\r\n");
        }
        if !ask.body.is_empty() {
            let length = ask.body.len();
            head += &format!(
                "Content-Type: {}\r\nContent-Length: {length}\r\n",
                ask.content_type
            );
        }
        let mut request = format!("{head}\r\n").into_bytes();
        request.extend_from_slice(ask.body);
        let stream = self.stream.get_mut();
        stream.write_all(&request)?;
        stream.flush()?;
        self.head()
    }

    fn head(&mut self) -> io::Result<Head> {
        let first = self.line()?;
        let code = first.split(' ').nth(1).and_then(|code| code.parse().ok());
        let mut headers = Vec::new();
        while let Some((name, value)) = self.line()?.split_once(": ") {
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let code = code.ok_or_else(|| io::Error::other(format!("not an answer: {first:?}")))?;
        Ok(Head { code, headers })
    }

    /// The next piece of a chunked body; nothing at its end.
    ///
    /// # Errors
    /// If the answer breaks off.
    pub fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let size = usize::from_str_radix(&self.line()?, 16).map_err(io::Error::other)?;
        let mut chunk = vec![0; size];
        self.stream.read_exact(&mut chunk)?;
        self.line()?;
        Ok((size > 0).then_some(chunk))
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}
