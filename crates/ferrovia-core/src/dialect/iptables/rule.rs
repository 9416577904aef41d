//! A rule as a value; `text.rs` prints it the way `iptables-save` does.
//!
//! The restoring tool takes what the saving tool prints, so there is one spelling for both directions: whether the kernel holds a rule of ours
//! is seen by comparing texts. Addresses, numbers and names of chains cannot hold anything but what they are; the one free text, a
//! comment, is quoted here whatever it holds.

mod text;

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use super::placeholder::PortName;
use crate::dialect::ipset::IpsetName;
use crate::family::Family;
use crate::model::Protocol;

/// A rule without its chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IptablesRule {
    source: Option<Selected<IpNet>>,
    destination: Option<Selected<IpNet>>,
    input: Option<Selected<Box<str>>>,
    protocol: Option<Protocol>,
    matches: Vec<IptablesMatch>,
    target: Option<IptablesTarget>,
}

/// What packets must have, or must not have.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Selected<T> {
    negated: bool,
    value: T,
}

/// A match of an extension. The kernel keeps their order, so it is part of a rule's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IptablesMatch {
    /// No match at all: a text for people.
    Comment(Box<str>),
    /// The protocol's own module without any condition, as kube-proxy writes it.
    ProtocolOnly,
    /// The destination port, by the protocol's own module.
    DestinationPort(u16),
    /// The destination port, whose number is not known yet.
    DestinationPortOf(PortName),
    /// The connection's state is one of these.
    State(&'static str),
    /// The same by the module's old name, as kube-proxy's userspace mode has it.
    OldState(&'static str),
    /// The connection's state is none of these.
    NotState(&'static str),
    /// The mark has this bit.
    Marked(u32),
    /// The mark lacks this bit.
    NotMarked(u32),
    /// The source is an address of this machine.
    SourceIsLocal,
    /// The source is no address of this machine.
    SourceIsNotLocal,
    /// The destination is an address of this machine.
    DestinationIsLocal,
    /// The packet did not come in by a port of a bridge.
    NotFromBridge,
    /// A set has what the packet has in these places: `dst,dst` is its destination address and port.
    InSet(IpsetName, &'static str),
    /// The packet belongs to a connection that IPVS took at this address and port.
    Virtual(IpAddr, Protocol, u16),
    /// Counts packets under a name.
    Account(&'static str),
    /// Holds now and then.
    Random(Probability),
    /// The client used this list in the last seconds.
    SeenRecently {
        list: Box<str>,
        /// How far back "recently" goes.
        seconds: u32,
        /// Whose addresses the list holds.
        family: Family,
    },
    /// Puts the client on a list.
    Remember {
        list: Box<str>,
        /// Whose addresses the list holds.
        family: Family,
    },
}

/// What happens to a packet that matches. A rule without any only counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IptablesTarget {
    /// On to a chain, and back.
    Jump(Box<str>),
    Accept,
    Drop,
    /// Back to where the chain was entered from.
    Return,
    /// Refused with ICMP port unreachable.
    Reject(Family),
    /// Sent on with this machine's address.
    Masquerade,
    /// The same, under the port it had if that is free.
    MasqueradeKeepingPort,
    /// Gets a bit of the mark.
    Mark(u32),
    /// Has a bit of the mark inverted.
    InvertMark(u32),
    /// Sent to an endpoint.
    Dnat(SocketAddr),
    /// Sent to a port of this machine, at the address of the interface it came in by.
    Redirect(PortName),
    /// Sent to a port at an address of this machine.
    DnatToPort(IpAddr, PortName),
}

impl IptablesRule {
    /// A rule that jumps to a chain.
    pub fn jump(chain: &str) -> Self {
        Self::to(IptablesTarget::Jump(chain.into()))
    }

    /// A rule with a target.
    pub fn to(target: IptablesTarget) -> Self {
        Self {
            target: Some(target),
            ..Self::default()
        }
    }

    /// Only packets from this range.
    #[must_use]
    pub fn source(mut self, net: IpNet) -> Self {
        self.source = Selected::new(false, net);
        self
    }

    /// Only packets from outside of this range, which must not be everything.
    #[must_use]
    pub fn not_source(mut self, net: IpNet) -> Self {
        self.source = Selected::new(true, net);
        self
    }

    /// Only packets to this range.
    #[must_use]
    pub fn destination(mut self, net: impl Into<IpNet>) -> Self {
        self.destination = Selected::new(false, net.into());
        self
    }

    /// Only packets to elsewhere.
    #[must_use]
    pub fn not_destination(mut self, net: IpNet) -> Self {
        self.destination = Selected::new(true, net);
        self
    }

    /// Only packets that come in by interfaces of this name; a `+` at its end stands for any rest.
    #[must_use]
    pub fn input(mut self, negated: bool, interface: &str) -> Self {
        self.input = Some(Selected {
            negated,
            value: interface.into(),
        });
        self
    }

    /// Only packets of a protocol.
    #[must_use]
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = Some(protocol);
        self
    }

    /// One more match, after those before.
    #[must_use]
    pub fn with(mut self, one: IptablesMatch) -> Self {
        self.matches.push(one);
        self
    }

    /// One more match, if there is one.
    #[must_use]
    pub fn maybe(mut self, one: Option<IptablesMatch>) -> Self {
        self.matches.extend(one);
        self
    }

    /// A comment, after the matches before.
    #[must_use]
    pub fn comment(self, text: impl Into<Box<str>>) -> Self {
        self.with(IptablesMatch::Comment(text.into()))
    }
}

impl Selected<IpNet> {
    /// A range that is everything is no condition; the tools do not print it.
    fn new(negated: bool, value: IpNet) -> Option<Self> {
        (negated || value.prefix_len() > 0).then_some(Self { negated, value })
    }
}

/// How often a rule holds, in the kernel's unit of 2^-31.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probability(u32);

impl Probability {
    const WHOLE: u128 = 1 << 31;

    /// A share of a whole, which is not zero and not less than the share.
    ///
    /// Rounded to ten decimals first and then to the kernel's unit: that is how kube-proxy's text ends up in the kernel, and ours shall be the
    /// same to the last digit.
    pub fn new(share: u64, whole: u64) -> Self {
        const DECIMALS: u128 = 10_000_000_000;
        let decimals = rounded(u128::from(share) * DECIMALS, u128::from(whole.max(1)));
        let scaled = rounded(decimals * Self::WHOLE, DECIMALS).min(Self::WHOLE);
        Self(u32::try_from(scaled).unwrap_or(u32::MAX))
    }
}

fn rounded(dividend: u128, divisor: u128) -> u128 {
    (2 * dividend + divisor) / (2 * divisor)
}

impl fmt::Display for Probability {
    /// Eleven decimals. Those of the exact quotient are rounded as the C library does it: half to even.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DECIMALS: u128 = 100_000_000_000;
        let exact = u128::from(self.0) * DECIMALS;
        let (floor, rest) = (exact / Self::WHOLE, exact % Self::WHOLE);
        let up = match rest.cmp(&(Self::WHOLE / 2)) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Equal => floor % 2 == 1,
            std::cmp::Ordering::Greater => true,
        };
        let decimals = floor + u128::from(up);
        write!(f, "{}.{:011}", decimals / DECIMALS, decimals % DECIMALS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_in_the_order_of_the_saving_tool() {
        let rule = IptablesRule::jump("KUBE-MARK-MASQ")
            .comment("ns1/svc1:p80 cluster IP")
            .with(IptablesMatch::DestinationPort(80))
            .protocol(Protocol::Tcp)
            .input(true, "veth+")
            .destination("172.30.0.41".parse::<IpAddr>().unwrap())
            .not_source("10.0.0.0/8".parse().unwrap());
        assert_eq!(
            rule.to_string(),
            "! -s 10.0.0.0/8 -d 172.30.0.41/32 ! -i veth+ -p tcp -m comment --comment \"ns1/svc1:p80 cluster IP\" -m tcp --dport 80 -j KUBE-MARK-MASQ"
        );
    }

    #[test]
    fn a_comment_cannot_leave_its_quotes() {
        let rule = IptablesRule::default().comment("a\"b\\c'd\ne\r\0 -j DROP");
        assert_eq!(
            rule.to_string(),
            r#"-m comment --comment "a\"b\\c\'d?e?? -j DROP""#
        );
    }

    #[test]
    fn probabilities_are_those_the_tool_prints_for_kube_proxys() {
        let expected = [
            (2, "0.50000000000"),
            (3, "0.33333333349"),
            (4, "0.25000000000"),
            (5, "0.20000000019"),
            (6, "0.16666666651"),
            (7, "0.14285714272"),
            (999, "0.00100100087"),
        ];
        for (of, text) in expected {
            assert_eq!(Probability::new(1, of).to_string(), text, "1/{of}");
        }
        assert_eq!(Probability::new(3, 4).to_string(), "0.75000000000");
        assert_eq!(Probability::new(1, 1).to_string(), "1.00000000000");
        assert_eq!(Probability::new(1, 0).to_string(), "1.00000000000");
    }

    #[test]
    fn everything_is_no_condition() {
        let everything: IpNet = "0.0.0.0/0".parse().unwrap();
        assert_eq!(
            IptablesRule::jump("X").source(everything).to_string(),
            "-j X"
        );
    }
}
