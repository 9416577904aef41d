//! The outcome of a call, from the server's answer or the socket's error.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Answer(Answer),
    /// The call was refused: by a reset, or by an ICMP port unreachable.
    Refused,
    /// No packet came back in time.
    TimedOut,
    /// The network reported that the host is unreachable, with this errno.
    Unreachable(i32),
    /// Anything else, as text.
    Other(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer(answer) => answer.fmt(f),
            Self::Refused => f.write_str("refused"),
            Self::TimedOut => f.write_str("dropped"),
            Self::Unreachable(errno) => {
                write!(f, "unreachable ({})", io::Error::from_raw_os_error(*errno))
            }
            Self::Other(text) => f.write_str(text),
        }
    }
}

/// A pod's answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Answer {
    /// The name of the pod.
    pub pod: String,
    /// The address and port on which it received the call.
    pub endpoint: SocketAddr,
    /// The source address the pod saw.
    pub seen_source: IpAddr,
    /// The source address the client had.
    pub own_source: IpAddr,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} saw {} (client {})",
            self.endpoint, self.seen_source, self.own_source
        )
    }
}

/// The outcome that a socket error means.
pub(crate) fn outcome_of(error: &io::Error) -> Outcome {
    match (error.kind(), error.raw_os_error()) {
        (io::ErrorKind::TimedOut, _) => Outcome::TimedOut,
        // A userspace proxy can reject a client only after accepting the connection.
        (io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset, _) => Outcome::Refused,
        (
            _,
            Some(
                errno @ (libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::EACCES
                | libc::ENOPROTOOPT
                | libc::EINVAL),
            ),
        ) => Outcome::Unreachable(errno),
        _ => Outcome::Other(error.to_string()),
    }
}

/// Parses a server's line, `<pod> <local ip>:<port> <peer ip>`.
pub(super) fn parse_answer(line: &str, own_source: IpAddr) -> Option<Answer> {
    let mut words = line.split_whitespace();
    let (pod, endpoint, seen) = (words.next()?, words.next()?, words.next()?);
    Some(Answer {
        pod: pod.to_owned(),
        endpoint: endpoint.parse().ok()?,
        seen_source: seen.parse().ok()?,
        own_source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_answer_of_a_server() {
        let own = "192.0.2.9".parse().unwrap();
        let answer = parse_answer("pod-a [fd00::1]:80 2001:db8::1\n", own).unwrap();
        assert_eq!(answer.pod, "pod-a");
        assert_eq!(answer.endpoint, "[fd00::1]:80".parse().unwrap());
        assert_eq!(answer.seen_source, "2001:db8::1".parse::<IpAddr>().unwrap());
        assert_eq!(parse_answer("pod-a 10.0.0.1:80", own), None);
        assert_eq!(parse_answer("pod-a nowhere 10.0.0.1", own), None);
    }

    #[test]
    fn maps_socket_errors_to_outcomes() {
        let outcome = |errno| outcome_of(&io::Error::from_raw_os_error(errno));
        assert_eq!(outcome(libc::ECONNREFUSED), Outcome::Refused);
        assert_eq!(
            outcome(libc::EHOSTUNREACH),
            Outcome::Unreachable(libc::EHOSTUNREACH)
        );
        assert_eq!(outcome(libc::ECONNRESET), Outcome::Refused);
        assert!(matches!(outcome(libc::EPIPE), Outcome::Other(_)));
    }
}
