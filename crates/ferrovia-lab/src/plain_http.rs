//! A minimal HTTP/1.1 client that returns responses unmodified.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longer than any response takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct HttpResponse {
    pub code: u16,
    /// Header names (lower case) and values.
    headers: Vec<(String, String)>,
    pub body: String,
}

impl HttpResponse {
    /// The value of a header; empty if it is missing.
    pub fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }
}

/// Sends a GET request.
///
/// # Panics
/// If there is no response.
pub fn get(address: SocketAddr, path: &str) -> HttpResponse {
    request(address, "GET", path, &[], "")
}

/// Sends a request.
///
/// # Panics
/// If there is no response.
pub fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> HttpResponse {
    try_request(address, method, path, headers, body)
        .unwrap_or_else(|error| panic!("{method} {path} of {address}: {error}"))
}

/// Like [`request`], but returns an error if there is no response.
///
/// # Errors
/// If the connection is refused, or the response is incomplete.
pub fn try_request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> std::io::Result<HttpResponse> {
    let mut stream = connect(address)?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("host"))
    {
        head += &format!("Host: {address}\r\n");
    }
    if !body.is_empty() {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all(format!("{head}\r\n{body}").as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    parse(&answer).ok_or_else(|| std::io::Error::other(format!("not an HTTP response: {answer:?}")))
}

/// Connects, with time-outs for reads and writes.
///
/// # Errors
/// If the connection fails.
pub fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn parse(answer: &str) -> Option<HttpResponse> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    let code = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let mut reply = HttpResponse {
        code,
        headers,
        body: body.to_owned(),
    };
    if reply.header("transfer-encoding") == "chunked" {
        reply.body = unchunk(body)?;
    }
    Some(reply)
}

/// Joins the chunks; `None` if the last one is missing, because the response was truncated.
fn unchunk(mut rest: &str) -> Option<String> {
    let mut whole = String::new();
    loop {
        let (size, more) = rest.split_once("\r\n")?;
        let size = usize::from_str_radix(size, 16).ok()?;
        if size == 0 {
            return Some(whole);
        }
        whole += more.get(..size)?;
        rest = more.get(size..)?.strip_prefix("\r\n")?;
    }
}
