//! Rules: conditions, statements and the keys they look up.

use std::fmt::{self, Display, Formatter};

use ipnet::IpNet;

use super::super::bytecode::HASH_SEED;
use super::super::{Field, NftMatch, NftRule, PriorityValue, Sense, SetUpdate, Statement};
use super::{ClassId, keyword};
use crate::family::Family;

/// A rule as the tool writes it.
pub(super) struct RuleText<'a>(pub(super) &'a NftRule, pub(super) Family);

impl Display for RuleText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(rule, family) = self;
        let ip = keyword(*family);
        let mut first = true;
        let mut space = |f: &mut Formatter<'_>| {
            if std::mem::take(&mut first) {
                Ok(())
            } else {
                f.write_str(" ")
            }
        };
        for condition in &rule.matches {
            space(f)?;
            match_text(f, condition, ip)?;
        }
        for statement in &rule.statements {
            space(f)?;
            statement_text(f, statement, ip)?;
        }
        match rule.comment {
            Some(comment) => write!(f, " comment \"{comment}\""),
            None => Ok(()),
        }
    }
}

fn match_text(f: &mut Formatter<'_>, condition: &NftMatch, ip: &str) -> fmt::Result {
    match condition {
        NftMatch::CtStateNew => f.write_str("ct state new"),
        NftMatch::CtStatusDnat => f.write_str("ct status dnat"),
        NftMatch::Protocol(protocol) => write!(f, "meta l4proto {protocol}"),
        NftMatch::MarkBits(bits) => write!(f, "meta mark & {bits:#010x} != 0x00000000"),
        NftMatch::PriorityBits(bits) => write!(f, "meta priority & {} != none", ClassId(*bits)),
        NftMatch::Source(net, sense) => write!(f, "{ip} saddr {}{}", not(*sense), NetText(net)),
        NftMatch::Destination(net, sense) => {
            write!(f, "{ip} daddr {}{}", not(*sense), NetText(net))
        }
        NftMatch::InputInterface(name, sense) => write!(f, "iifname {}\"{name}\"", not(*sense)),
        NftMatch::InputInterfacePrefix(name, sense) => {
            write!(f, "iifname {}\"{name}*\"", not(*sense))
        }
        NftMatch::LocalSource => f.write_str("fib saddr type local"),
        NftMatch::LocalDestination => f.write_str("fib daddr type local"),
        NftMatch::InSet(key, set, sense) => write!(f, "{} {}@{set}", KeyExpr(key, ip), not(*sense)),
    }
}

fn not(sense: Sense) -> &'static str {
    if sense == Sense::Is { "" } else { "!= " }
}

/// A range, without the prefix length when it is a single address.
struct NetText<'a>(&'a IpNet);

impl Display for NetText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0.prefix_len() == self.0.max_prefix_len() {
            write!(f, "{}", self.0.addr())
        } else {
            write!(f, "{}", self.0)
        }
    }
}

fn statement_text(f: &mut Formatter<'_>, statement: &Statement, ip: &str) -> fmt::Result {
    match statement {
        Statement::MarkOr(bits) => write!(f, "meta mark set meta mark | {bits:#010x}"),
        Statement::MarkXor(bits) => write!(f, "meta mark set meta mark ^ {bits:#010x}"),
        Statement::SetPriority(PriorityValue::None) => f.write_str("meta priority set none"),
        Statement::SetPriority(PriorityValue::Bits(bits)) => {
            write!(f, "meta priority set meta priority & {}", ClassId(*bits))
        }
        Statement::SetPriority(PriorityValue::With(bits)) => {
            write!(f, "meta priority set meta priority | {}", ClassId(*bits))
        }
        Statement::SetPriority(PriorityValue::Map(key, map)) => {
            write!(f, "meta priority set {} map @{map}", KeyExpr(key, ip))
        }
        Statement::Vmap(key, map) => write!(f, "{} vmap @{map}", KeyExpr(key, ip)),
        Statement::Jump(chain) => write!(f, "jump {chain}"),
        Statement::Goto(chain) => write!(f, "goto {chain}"),
        Statement::Return => f.write_str("return"),
        Statement::Drop => f.write_str("drop"),
        Statement::Counter => f.write_str("counter"),
        Statement::Reject => f.write_str("reject"),
        Statement::Masquerade => f.write_str("masquerade fully-random"),
        Statement::Dnat(key, map) => write!(f, "dnat {ip} to {} map @{map}", KeyExpr(key, ip)),
        Statement::Dynamic(SetUpdate::Count { set, key, timeout }) => {
            write!(
                f,
                "update @{set} {{ {} timeout {timeout}s }}",
                KeyExpr(key, ip)
            )
        }
        Statement::Dynamic(SetUpdate::Refresh { map, key, timeout }) => {
            write!(
                f,
                "update @{map} {{ {} timeout {timeout}s : meta priority }}",
                KeyExpr(key, ip)
            )
        }
        Statement::Dynamic(SetUpdate::Delete { map, key }) => {
            write!(
                f,
                "delete @{map} {{ {} : meta priority }}",
                KeyExpr(key, ip)
            )
        }
    }
}

/// A key as an expression of a rule.
struct KeyExpr<'a>(&'a [Field], &'a str);

impl Display for KeyExpr<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(fields, ip) = self;
        for (i, field) in fields.iter().enumerate() {
            if i > 0 {
                f.write_str(" . ")?;
            }
            match field {
                Field::Saddr => write!(f, "{ip} saddr")?,
                Field::Daddr => write!(f, "{ip} daddr")?,
                Field::L4Proto => f.write_str("meta l4proto")?,
                Field::Dport => f.write_str("th dport")?,
                Field::OriginalDaddr => write!(f, "ct original {ip} daddr")?,
                Field::OriginalDport => f.write_str("ct original proto-dst")?,
                Field::Priority => f.write_str("meta priority")?,
                Field::PriorityBits(bits) => write!(f, "meta priority & {}", ClassId(*bits))?,
                Field::Random(modulus) => write!(f, "numgen random mod {modulus}")?,
                Field::SourceHash(modulus) => {
                    write!(f, "jhash {ip} saddr mod {modulus} seed {HASH_SEED:#x}")?;
                }
            }
        }
        Ok(())
    }
}
