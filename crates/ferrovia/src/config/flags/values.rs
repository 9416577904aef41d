//! What may stand behind a flag, as Go's flags read it.

use std::net::IpAddr;
use std::str::FromStr;

use ferrovia_core::model::parse_ip;

use super::super::file::VModule;
use super::Version;
use crate::version::KUBERNETES;

/// What a flag's value becomes, or why not.
pub(super) type Read<T> = Result<T, String>;

/// `true`, `t`, `1` and their opposites.
pub(super) fn boolean(text: &str) -> Read<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("must be true or false".to_owned()),
    }
}

/// A whole number in decimal, or with `0x`, `0o` or `0b` in front.
pub(super) fn int32(text: &str) -> Read<i32> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (radix, digits) = match digits.get(..2) {
        Some("0x" | "0X") => (16, digits.get(2..).unwrap_or_default()),
        Some("0o" | "0O") => (8, digits.get(2..).unwrap_or_default()),
        Some("0b" | "0B") => (2, digits.get(2..).unwrap_or_default()),
        _ => (10, digits),
    };
    if digits.starts_with(['+', '-']) {
        return Err("must be a whole number".to_owned());
    }
    i64::from_str_radix(digits, radix)
        .ok()
        .and_then(|number| i32::try_from(sign * number).ok())
        .ok_or_else(|| "must be a whole number of 32 bits".to_owned())
}

/// A verbosity.
pub(super) fn verbosity(text: &str) -> Read<u32> {
    let number = int32(text)?;
    u32::try_from(number).map_err(|_| "must not be negative".to_owned())
}

/// Anything that says itself why it cannot be read.
pub(super) fn any<T>(text: &str) -> Read<T>
where
    T: FromStr,
    T::Err: ToString,
{
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// An address.
pub(super) fn ip(text: &str) -> Read<IpAddr> {
    parse_ip(text).ok_or_else(|| "must be an IP address".to_owned())
}

/// An address with or without a port; empty is allowed.
pub(super) fn ip_and_port(text: &str) -> Read<String> {
    let is_good = text.is_empty()
        || parse_ip(text).is_some()
        || split_host_port(text)
            .is_some_and(|(host, port)| parse_ip(host).is_some() && port.parse::<u16>().is_ok());
    if is_good {
        Ok(text.to_owned())
    } else {
        Err(
            "must be an IP address, or one with a port such as 127.0.0.1:10249 or [::1]:10249"
                .to_owned(),
        )
    }
}

/// `host:port` or `[host]:port`.
pub(in crate::config) fn split_host_port(text: &str) -> Option<(&str, &str)> {
    let (host, port) = text.rsplit_once(':')?;
    match host.strip_prefix('[') {
        Some(inside) => Some((inside.strip_suffix(']')?, port)),
        None if host.contains(':') => None,
        None => Some((host, port)),
    }
}

/// Entries with commas between.
pub(super) fn list(text: &str) -> Vec<String> {
    if text.is_empty() {
        return Vec::new();
    }
    text.split(',').map(str::to_owned).collect()
}

/// `Name=true,Other=false`.
pub(super) fn gates(text: &str) -> Read<Vec<(String, bool)>> {
    let pairs = text.split(',').filter(|pair| !pair.trim().is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair
                .split_once('=')
                .ok_or("must be pairs of a name and true or false: Name=true,Other=false")?;
            let value = boolean(value.trim()).map_err(|why| format!("{}: {why}", name.trim()))?;
            Ok((name.trim().to_owned(), value))
        })
        .collect()
}

/// `pattern=4,other*=2`.
pub(super) fn vmodule(text: &str) -> Read<Vec<VModule>> {
    let pairs = text.split(',').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (pattern, level) = pair
                .split_once('=')
                .filter(|(pattern, _)| !pattern.is_empty())
                .ok_or("must be pairs of a file pattern and a number: engine=4,nft*=2")?;
            Ok(VModule {
                file_pattern: pattern.to_owned(),
                verbosity: verbosity(level).map_err(|why| format!("{pattern}: {why}"))?,
            })
        })
        .collect()
}

/// `--version`, or with `=raw`, or with the version that is meant, which must be the one there is.
pub(super) fn version(text: &str) -> Read<Version> {
    if text == "raw" {
        return Ok(Version::Raw);
    }
    if let Some(rest) = text.strip_prefix(KUBERNETES) {
        let is_the_same = rest.is_empty() || rest.starts_with(['-', '+']);
        return is_the_same
            .then_some(Version::No)
            .ok_or_else(|| format!("must be {KUBERNETES}"));
    }
    if text.starts_with('v') {
        return Err(format!("must be {KUBERNETES}"));
    }
    Ok(if boolean(text)? {
        Version::Plain
    } else {
        Version::No
    })
}
