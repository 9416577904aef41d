//! A minimal blocking client: HTTP/1.1 over TLS, with access to all headers.

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

/// Longer than any response takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// How a client authenticates.
#[derive(Clone, Debug)]
pub enum Credentials {
    /// Not authenticated.
    None,
    Token(String),
    Certificate(Identity),
}

/// The address of a server and credentials.
#[derive(Clone, Debug)]
pub struct ApiClient {
    address: SocketAddr,
    config: Arc<ClientConfig>,
    token: Option<String>,
}

/// A connection for consecutive requests.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<StreamOwned<ClientConnection, TcpStream>>,
    address: SocketAddr,
    token: Option<String>,
}

/// The status line and headers of a response.
#[derive(Clone, Debug)]
pub struct ResponseHead {
    pub code: u16,
    /// Header names (lower case) and values.
    pub headers: Vec<(String, String)>,
}

/// A complete response.
#[derive(Clone, Debug)]
pub struct ApiResponse {
    /// Status line and headers.
    pub head: ResponseHead,
    pub body: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
pub struct ApiRequest<'a> {
    pub method: &'a str,
    pub target: &'a str,
    /// The `Accept` header.
    pub accept: &'a str,
    /// The `Content-Type` header.
    pub content_type: &'a str,
    /// The body; may be empty.
    pub body: &'a [u8],
}

impl<'a> ApiRequest<'a> {
    /// A GET request that accepts JSON.
    pub fn get(target: &'a str) -> Self {
        Self {
            method: "GET",
            target,
            accept: "application/json",
            content_type: "application/json",
            body: &[],
        }
    }

    /// A request with a JSON body.
    pub fn send(method: &'a str, target: &'a str, body: &'a [u8]) -> Self {
        Self {
            method,
            body,
            ..Self::get(target)
        }
    }
}

impl ResponseHead {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

impl ApiResponse {
    /// The body as JSON; null if it is not valid.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

impl ApiClient {
    /// A client that trusts a certificate authority (PEM).
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
    /// If the connection fails, or the server's certificate is not valid.
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

    /// Sends a request over a new connection.
    ///
    /// # Errors
    /// If the response is not complete.
    pub fn ask(&self, ask: &ApiRequest<'_>) -> io::Result<ApiResponse> {
        self.connect()?.ask(ask)
    }
}

impl Connection {
    /// Sends a request and reads the complete response.
    ///
    /// # Errors
    /// If the response is not complete.
    pub fn ask(&mut self, ask: &ApiRequest<'_>) -> io::Result<ApiResponse> {
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
        Ok(ApiResponse { head, body })
    }

    /// Sends a request and reads only the head of the response. [`Connection::chunk`] reads the body if it is chunked, as of watches.
    ///
    /// # Errors
    /// If there is no response.
    pub fn begin(&mut self, ask: &ApiRequest<'_>) -> io::Result<ResponseHead> {
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

    fn head(&mut self) -> io::Result<ResponseHead> {
        let first = self.line()?;
        let code = first.split(' ').nth(1).and_then(|code| code.parse().ok());
        let mut headers = Vec::new();
        while let Some((name, value)) = self.line()?.split_once(": ") {
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let code =
            code.ok_or_else(|| io::Error::other(format!("not an HTTP response: {first:?}")))?;
        Ok(ResponseHead { code, headers })
    }

    /// The next chunk of the body; `None` at its end.
    ///
    /// # Errors
    /// If the response is truncated.
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
