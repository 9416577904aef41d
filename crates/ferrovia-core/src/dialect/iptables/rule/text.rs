//! A rule's one spelling, which is that of `iptables-save`.

use std::fmt::{self, Write as _};
use std::net::IpAddr;

use super::{IptablesMatch, IptablesRule, IptablesTarget, Selected};
use crate::family::Family;
use crate::model::Protocol;

impl fmt::Display for IptablesRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = RuleWords { f, first: true };
        words.selected("-s", self.source.as_ref())?;
        words.selected("-d", self.destination.as_ref())?;
        words.selected("-i", self.input.as_ref())?;
        if let Some(protocol) = self.protocol {
            words.write(format_args!("-p {protocol}"))?;
        }
        for one in &self.matches {
            words.one(one, self.protocol)?;
        }
        if let Some(target) = &self.target {
            words.write(format_args!("-j {target}"))?;
        }
        Ok(())
    }
}

/// Writes words with a space between.
struct RuleWords<'a, 'f> {
    f: &'a mut fmt::Formatter<'f>,
    first: bool,
}

impl RuleWords<'_, '_> {
    fn write(&mut self, words: fmt::Arguments<'_>) -> fmt::Result {
        if !std::mem::replace(&mut self.first, false) {
            self.f.write_char(' ')?;
        }
        self.f.write_fmt(words)
    }

    fn selected<T: fmt::Display>(
        &mut self,
        option: &str,
        selected: Option<&Selected<T>>,
    ) -> fmt::Result {
        match selected {
            None => Ok(()),
            Some(Selected { negated, value }) => {
                let not = if *negated { "! " } else { "" };
                self.write(format_args!("{not}{option} {value}"))
            }
        }
    }

    fn one(&mut self, one: &IptablesMatch, protocol: Option<Protocol>) -> fmt::Result {
        // A rule without a protocol has no port to match; the planner never makes one.
        let module = protocol.unwrap_or(Protocol::Tcp);
        match one {
            IptablesMatch::Comment(text) => {
                self.write(format_args!("-m comment --comment {}", Quoted(text)))
            }
            IptablesMatch::ProtocolOnly => self.write(format_args!("-m {module}")),
            IptablesMatch::DestinationPort(port) => {
                self.write(format_args!("-m {module} --dport {port}"))
            }
            IptablesMatch::DestinationPortOf(port) => {
                self.write(format_args!("-m {module} --dport {port}"))
            }
            IptablesMatch::OldState(states) => {
                self.write(format_args!("-m state --state {states}"))
            }
            IptablesMatch::State(states) => {
                self.write(format_args!("-m conntrack --ctstate {states}"))
            }
            IptablesMatch::NotState(states) => {
                self.write(format_args!("-m conntrack ! --ctstate {states}"))
            }
            IptablesMatch::Marked(bit) => {
                self.write(format_args!("-m mark --mark {bit:#x}/{bit:#x}"))
            }
            IptablesMatch::NotMarked(bit) => {
                self.write(format_args!("-m mark ! --mark {bit:#x}/{bit:#x}"))
            }
            IptablesMatch::SourceIsLocal => {
                self.write(format_args!("-m addrtype --src-type LOCAL"))
            }
            IptablesMatch::SourceIsNotLocal => {
                self.write(format_args!("-m addrtype ! --src-type LOCAL"))
            }
            IptablesMatch::NotFromBridge => {
                self.write(format_args!("-m physdev ! --physdev-is-in"))
            }
            IptablesMatch::InSet(set, places) => {
                self.write(format_args!("-m set --match-set {set} {places}"))
            }
            IptablesMatch::Virtual(ip, protocol, port) => self.write(format_args!(
                "-m ipvs --vproto {} --vaddr {ip} --vport {port}",
                protocol.number()
            )),
            IptablesMatch::DestinationIsLocal => {
                self.write(format_args!("-m addrtype --dst-type LOCAL"))
            }
            IptablesMatch::Account(name) => {
                self.write(format_args!("-m nfacct --nfacct-name {name}"))
            }
            IptablesMatch::Random(probability) => self.write(format_args!(
                "-m statistic --mode random --probability {probability}"
            )),
            IptablesMatch::SeenRecently {
                list,
                seconds,
                family,
            } => self.write(format_args!(
                "-m recent --rcheck --seconds {seconds} --reap --name {list} --mask {} --rsource",
                whole_mask(*family)
            )),
            IptablesMatch::Remember { list, family } => self.write(format_args!(
                "-m recent --set --name {list} --mask {} --rsource",
                whole_mask(*family)
            )),
        }
    }
}

fn whole_mask(family: Family) -> &'static str {
    match family {
        Family::V4 => "255.255.255.255",
        Family::V6 => "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    }
}

impl fmt::Display for IptablesTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Jump(chain) => f.write_str(chain),
            Self::Accept => f.write_str("ACCEPT"),
            Self::Drop => f.write_str("DROP"),
            Self::Return => f.write_str("RETURN"),
            Self::Reject(Family::V4) => f.write_str("REJECT --reject-with icmp-port-unreachable"),
            Self::Reject(Family::V6) => f.write_str("REJECT --reject-with icmp6-port-unreachable"),
            Self::Masquerade => f.write_str("MASQUERADE --random-fully"),
            Self::MasqueradeKeepingPort => f.write_str("MASQUERADE"),
            Self::Mark(bit) => write!(f, "MARK --set-xmark {bit:#x}/{bit:#x}"),
            Self::InvertMark(bit) => write!(f, "MARK --set-xmark {bit:#x}/0x0"),
            Self::Dnat(endpoint) => write!(f, "DNAT --to-destination {endpoint}"),
            Self::Redirect(port) => write!(f, "REDIRECT --to-ports {port}"),
            Self::DnatToPort(IpAddr::V4(ip), port) => {
                write!(f, "DNAT --to-destination {ip}:{port}")
            }
            Self::DnatToPort(IpAddr::V6(ip), port) => {
                write!(f, "DNAT --to-destination [{ip}]:{port}")
            }
        }
    }
}

/// A text as one word. A line break would end the rule and begin another, so control characters become question marks; the names that get
/// here have none.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' | '\'' => write!(f, "\\{c}")?,
                c if c.is_control() => f.write_char('?')?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}
