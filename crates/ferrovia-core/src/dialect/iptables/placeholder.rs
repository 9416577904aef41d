//! Ports in rules that are known by a name until the rule is written.
//!
//! In userspace mode rules lead to sockets of our own, and the kernel chooses their ports when they are opened, which is after the plan was
//! made. So a plan names them, and prints as text with the names in it.

use std::borrow::Cow;
use std::fmt;

/// Stands on both sides of a name. No rule of ours has one otherwise: names of objects cannot hold it.
const SIGN: char = '%';

/// A port whose number is not known yet. Prints as `%name%`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortName(Box<str>);

impl PortName {
    /// The port of this name.
    pub fn new(name: impl fmt::Display) -> Self {
        Self(name.to_string().replace(SIGN, "?").into())
    }
}

impl fmt::Display for PortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SIGN}{}{SIGN}", self.0)
    }
}

/// A line with numbers in the place of names; `None` if one of the names has no number.
pub(crate) fn fill_in<'a>(
    line: &'a str,
    number: impl Fn(&str) -> Option<u16>,
) -> Option<Cow<'a, str>> {
    if !line.contains(SIGN) {
        return Some(Cow::Borrowed(line));
    }
    let mut text = String::with_capacity(line.len());
    for (place, part) in line.split(SIGN).enumerate() {
        if place % 2 == 0 {
            text.push_str(part);
        } else {
            text.push_str(&number(part)?.to_string());
        }
    }
    Some(Cow::Owned(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(name: &str) -> Option<u16> {
        (name == "demo/web/tcp").then_some(40000)
    }

    #[test]
    fn names_become_numbers() {
        let port = PortName::new("demo/web/tcp");
        let line = format!("-A X -m tcp --dport {port} -j DNAT --to-destination 192.0.2.1:{port}");
        assert_eq!(
            fill_in(&line, numbers).unwrap(),
            "-A X -m tcp --dport 40000 -j DNAT --to-destination 192.0.2.1:40000"
        );
        assert_eq!(fill_in("-A X -j Y", numbers).unwrap(), "-A X -j Y");
    }

    #[test]
    fn a_line_with_an_unknown_name_is_none() {
        let line = format!(
            "-A X -j REDIRECT --to-ports {}",
            PortName::new("demo/other")
        );
        assert_eq!(fill_in(&line, numbers), None);
    }

    #[test]
    fn a_name_cannot_end_early() {
        assert_eq!(PortName::new("a%b").to_string(), "%a?b%");
    }
}
