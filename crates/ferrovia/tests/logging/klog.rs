//! Takes a line of klog's text apart, and refuses whatever klog could not have written.

use std::iter::Peekable;
use std::str::Chars;

/// What a line says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) severity: char,
    /// `mmdd hh:mm:ss.uuuuuu`.
    pub(crate) time: String,
    pub(crate) pid: u32,
    pub(crate) file: String,
    pub(crate) message: String,
    pub(crate) fields: Vec<(String, Value)>,
}

/// The right side of a field.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Quoted(String),
    Bare(String),
}

impl Line {
    /// A line without its end, or what is wrong with it.
    pub(crate) fn parse(line: &str) -> Result<Self, String> {
        let wrong = |what: &str| Err(format!("{what}: {line:?}"));
        if line.chars().any(char::is_control) {
            return wrong("a control character");
        }
        let (header, body) = line
            .split_once("] ")
            .ok_or(format!("no header: {line:?}"))?;
        let (Some(severity), Some(time), Some(" "), Some(pid)) = (
            header.get(..1),
            header.get(1..21),
            header.get(21..22),
            header.get(22..29),
        ) else {
            return wrong("a short header");
        };
        if !"IWE".contains(severity) || !is_time(time) {
            return wrong("no severity or time");
        }
        let Ok(pid) = pid.trim_start().parse() else {
            return wrong("no process number in seven characters");
        };
        let Some((file, number)) = header[29..]
            .strip_prefix(' ')
            .and_then(|at| at.split_once(':'))
        else {
            return wrong("no place");
        };
        if file.is_empty() || file.contains(' ') || number.parse::<u32>().is_err() {
            return wrong("a strange place");
        }
        let (message, fields) = parse_body(body).ok_or(format!("a strange body: {line:?}"))?;
        Ok(Self {
            severity: severity.chars().next().unwrap(),
            time: time.to_owned(),
            pid,
            file: file.to_owned(),
            message,
            fields,
        })
    }

    /// A field's value.
    pub(crate) fn field(&self, key: &str) -> Option<&Value> {
        let mut fields = self.fields.iter().filter(|(name, _)| name == key);
        fields.next().map(|(_, value)| value)
    }
}

/// `mmdd hh:mm:ss.uuuuuu`, in range.
fn is_time(text: &str) -> bool {
    let shape = "dddd dd:dd:dd.dddddd";
    let fits = text.len() == shape.len()
        && text.chars().zip(shape.chars()).all(|(c, s)| match s {
            'd' => c.is_ascii_digit(),
            s => c == s,
        });
    let in_range = |from: usize, range: std::ops::Range<u32>| {
        text[from..from + 2]
            .parse()
            .is_ok_and(|n| range.contains(&n))
    };
    fits && in_range(0, 1..13)
        && in_range(2, 1..32)
        && in_range(5, 0..24)
        && in_range(8, 0..60)
        && in_range(11, 0..60)
}

fn parse_body(body: &str) -> Option<(String, Vec<(String, Value)>)> {
    let mut rest = body.chars().peekable();
    let message = unquote(&mut rest)?;
    let mut fields = Vec::new();
    while let Some(c) = rest.next() {
        if c != ' ' {
            return None;
        }
        let mut key = String::new();
        loop {
            match rest.next()? {
                '=' => break,
                c if c.is_ascii_alphanumeric() || c == '_' || c == '.' => key.push(c),
                _ => return None,
            }
        }
        let value = if rest.peek() == Some(&'"') {
            Value::Quoted(unquote(&mut rest)?)
        } else {
            Value::Bare(bare(&mut rest)?)
        };
        fields.push((key, value));
    }
    Some((message, fields))
}

/// A number or a truth value.
fn bare(rest: &mut Peekable<Chars<'_>>) -> Option<String> {
    let mut text = String::new();
    while let Some(c) = rest.next_if(|&c| c != ' ') {
        text.push(c);
    }
    (text.parse::<f64>().is_ok() || text.parse::<bool>().is_ok()).then_some(text)
}

/// A string as Go quotes it.
fn unquote(rest: &mut Peekable<Chars<'_>>) -> Option<String> {
    if rest.next()? != '"' {
        return None;
    }
    let mut text = String::new();
    loop {
        match rest.next()? {
            '"' => return Some(text),
            '\\' => text.push(unescape(rest)?),
            c => text.push(c),
        }
    }
}

fn unescape(rest: &mut Peekable<Chars<'_>>) -> Option<char> {
    match rest.next()? {
        'a' => Some('\x07'),
        'b' => Some('\x08'),
        'f' => Some('\x0c'),
        'n' => Some('\n'),
        'r' => Some('\r'),
        't' => Some('\t'),
        'v' => Some('\x0b'),
        c @ ('\\' | '"') => Some(c),
        'x' => code(rest, 2).filter(char::is_ascii),
        'u' => code(rest, 4),
        'U' => code(rest, 8),
        _ => None,
    }
}

/// The character of a number with so many digits.
fn code(rest: &mut Peekable<Chars<'_>>, digits: usize) -> Option<char> {
    let hex: String = rest.by_ref().take(digits).collect();
    let number = u32::from_str_radix(&hex, 16).ok()?;
    char::from_u32(number).filter(|_| hex.len() == digits)
}

/// The reader would notice.
#[test]
fn what_klog_does_not_write_is_refused() {
    let good = r#"E1102 03:04:05.000678    4242 sync/run.rs:140] "no \"rules\"" err="\n\x1b\u0085" tries=3 last=true"#;
    let line = Line::parse(good).unwrap();
    assert_eq!(
        (line.severity, line.pid, line.message.as_str()),
        ('E', 4242, "no \"rules\"")
    );
    assert_eq!(
        line.field("err"),
        Some(&Value::Quoted("\n\x1b\u{85}".into()))
    );
    assert_eq!(line.field("tries"), Some(&Value::Bare("3".into())));
    for (from, to) in [
        ("E1102", "X1102"),
        ("E1102", "E1302"),
        ("03:04", "3:04"),
        ("   4242", " 4242"),
        ("sync/run.rs:140", "sync/run.rs"),
        ("] ", "]"),
        ("\\n", "\n"),
        ("\\n", "\\q"),
        ("tries=3", "tries=three"),
        ("tries=3", "tries = 3"),
        ("last=true", "last=\"true"),
        ("\" err", " err"),
    ] {
        let bad = good.replace(from, to);
        assert_ne!(bad, good);
        Line::parse(&bad).unwrap_err();
    }
}
