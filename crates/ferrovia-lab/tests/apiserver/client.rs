//! A minimal client: HTTP/1.1 over a plain socket, with access to every byte.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use ferrovia_lab::apiserver::ApiServer;
use serde_json::Value;

/// How long a read may take, even on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The head of a response, and its body as a stream.
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    body: Body,
}

/// A body as its lines.
struct Body {
    stream: BufReader<TcpStream>,
    chunked: bool,
    /// The remaining bytes, if the length is known.
    left: Option<usize>,
    /// Received bytes of an incomplete line.
    pending: Vec<u8>,
}

/// Sends a GET request and reads the head of the response.
pub(crate) fn get(server: &ApiServer, target: &str) -> Answer {
    send(
        server,
        &format!("GET {target} HTTP/1.1\r\nHost: lab\r\n\r\n"),
    )
    .unwrap()
}

/// Sends a request and reads the head of the response.
pub(crate) fn send(server: &ApiServer, request: &str) -> io::Result<Answer> {
    let mut stream = TcpStream::connect(server.address())?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    let mut stream = BufReader::new(stream);
    let status = read_line(&mut stream)?;
    let status = status.split(' ').nth(1).and_then(|code| code.parse().ok());
    let mut headers = vec![];
    loop {
        let line = read_line(&mut stream)?;
        let Some((name, value)) = line.split_once(": ") else {
            break;
        };
        headers.push((name.to_lowercase(), value.to_owned()));
    }
    let header = |name: &str| {
        headers
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, v)| v.as_str())
    };
    let body = Body {
        stream,
        chunked: header("transfer-encoding") == Some("chunked"),
        left: header("content-length").and_then(|length| length.parse().ok()),
        pending: vec![],
    };
    Ok(Answer {
        status: status.ok_or(io::ErrorKind::InvalidData)?,
        headers,
        body,
    })
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(n, _)| n == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The whole body as JSON.
    pub(crate) fn json(mut self) -> Value {
        while self.body.fill().unwrap() {}
        serde_json::from_slice(&self.body.pending).unwrap()
    }

    /// The next line of the body; `None` at its end.
    pub(crate) fn line(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(end) = self.body.pending.iter().position(|byte| *byte == b'\n') {
                let line = self.body.pending.drain(..=end).collect();
                return Ok(Some(String::from_utf8(line).map_err(io::Error::other)?));
            }
            if !self.body.fill()? {
                return Ok(None);
            }
        }
    }

    /// The next event of a watch as its type and its object.
    pub(crate) fn event(&mut self) -> (String, Value) {
        let line = self.line().unwrap().expect("the watch has ended");
        let mut event: Value = serde_json::from_str(&line).unwrap();
        (
            event["type"].as_str().unwrap().to_owned(),
            event["object"].take(),
        )
    }

    /// The next event as its type, and the name and revision of its object.
    pub(crate) fn short_event(&mut self) -> (String, String, u64) {
        let (kind, object) = self.event();
        let metadata = &object["metadata"];
        let revision = metadata["resourceVersion"].as_str().unwrap();
        let name = metadata["name"].as_str().unwrap_or_default();
        (kind, name.to_owned(), revision.parse().unwrap())
    }

    /// The received part of a line, after the connection was reset.
    pub(crate) fn half_line(&self) -> &[u8] {
        &self.body.pending
    }
}

impl Body {
    /// Reads more; false at the end.
    fn fill(&mut self) -> io::Result<bool> {
        if !self.chunked {
            let left = self.left.ok_or(io::ErrorKind::InvalidData)?;
            return self.take(left);
        }
        let size = read_line(&mut self.stream)?;
        let size = usize::from_str_radix(&size, 16).map_err(io::Error::other)?;
        let more = self.take(size)?;
        read_line(&mut self.stream)?;
        Ok(more)
    }

    /// Reads this many bytes, and keeps those before an error.
    fn take(&mut self, bytes: usize) -> io::Result<bool> {
        let mut limited = (&mut self.stream).take(bytes as u64);
        let read = limited.read_to_end(&mut self.pending)?;
        self.left = self.left.map(|left| left - read);
        match read == bytes {
            true => Ok(bytes > 0),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

fn read_line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end().to_owned())
}
