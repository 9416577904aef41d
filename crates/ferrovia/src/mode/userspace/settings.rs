//! The settings that only the userspace mode has.

use std::ops::RangeInclusive;
use std::time::Duration;

use ferrovia_core::trace;

use crate::config::duration::GoDuration;
use crate::config::file::Document;
use crate::config::validate::Checks;

/// As long as the kernel remembers a flow without an answer. kube-proxy's 250 ms were shorter than many answers take.
pub(in crate::mode) const UDP_IDLE: Duration = Duration::from_secs(30);
/// The longest name an interface can have.
const LONGEST_INTERFACE: usize = 15;

/// What only the userspace mode has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserspaceSettings {
    /// How clients' packets come to the proxy.
    pub portals: PortalSetting,
    /// The interface that service addresses are put on; none for one of our own.
    pub interface: Option<String>,
    /// How long a flow of UDP lives without any datagram.
    pub udp_idle: Duration,
    /// The ports to proxy by; none leaves them to the kernel.
    pub ports: Option<RangeInclusive<u16>>,
}

/// How clients' packets come to the proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PortalSetting {
    /// By iptables rules.
    #[default]
    Rules,
    /// By service addresses on an interface: bind portals.
    Bind,
}

pub(super) const DEFAULT: UserspaceSettings = UserspaceSettings {
    portals: PortalSetting::Rules,
    interface: None,
    udp_idle: UDP_IDLE,
    ports: None,
};

impl Default for UserspaceSettings {
    fn default() -> Self {
        DEFAULT
    }
}

impl UserspaceSettings {
    /// What the file and the flags say. In other modes it is not checked.
    pub(in crate::mode) fn of(checks: &mut Checks, document: &Document) -> Self {
        if document.mode != trace::USERSPACE.mode {
            return Self::default();
        }
        let given = &document.ferrovia.userspace;
        let words = [
            ("", PortalSetting::Rules),
            ("iptables", PortalSetting::Rules),
            ("bind", PortalSetting::Bind),
        ];
        let portals = checks.word("ferrovia.userspace.portals", &given.portals, &words);
        Self {
            portals: portals.unwrap_or_default(),
            interface: interface(checks, &given.interface),
            udp_idle: if given.udp_idle_timeout == GoDuration::ZERO {
                UDP_IDLE
            } else {
                checks.positive_time("ferrovia.userspace.udpIdleTimeout", given.udp_idle_timeout)
            },
            ports: ports(checks, &document.port_range),
        }
    }
}

fn interface(checks: &mut Checks, name: &str) -> Option<String> {
    let is_name = |c: char| c.is_ascii_graphic() && c != '/';
    if name.len() > LONGEST_INTERFACE || !name.chars().all(is_name) {
        checks.invalid_text(
            "ferrovia.userspace.interface",
            name,
            "must be the name of an interface, of at most 15 characters",
        );
        return None;
    }
    (!name.is_empty()).then(|| name.to_owned())
}

fn ports(checks: &mut Checks, text: &str) -> Option<RangeInclusive<u16>> {
    match parse_ports(text) {
        Some(ports) if *ports.end() == 0 => None,
        Some(ports) => Some(ports),
        None => {
            checks.invalid_text(
                "portRange",
                text,
                "must be first-last, first+number, or one port, up to 65535",
            );
            None
        }
    }
}

/// `first-last`, `first+number` or one port, as Kubernetes has it; empty is 0, which leaves the choice to the kernel.
fn parse_ports(text: &str) -> Option<RangeInclusive<u16>> {
    let text = text.trim();
    if text.is_empty() {
        return Some(0..=0);
    }
    let (first, last) = if let Some((first, last)) = text.split_once('-') {
        (first.parse().ok()?, last.parse().ok()?)
    } else if let Some((first, number)) = text.split_once('+') {
        let first: u16 = first.parse().ok()?;
        (first, first.checked_add(number.parse().ok()?)?)
    } else {
        let port = text.parse().ok()?;
        (port, port)
    };
    let is_range = first <= last && (first > 0 || last == 0);
    is_range.then_some(first..=last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_spelled_in_three_ways() {
        for (text, expected) in [
            ("", Some(0..=0)),
            ("0-0", Some(0..=0)),
            ("40000-40010", Some(40000..=40010)),
            ("40000+10", Some(40000..=40010)),
            ("40000", Some(40000..=40000)),
            ("40010-40000", None),
            ("0-10", None),
            ("65530+10", None),
            ("70000", None),
            ("a-b", None),
        ] {
            assert_eq!(parse_ports(text), expected, "{text}");
        }
    }
}
