//! Instructions to attributes and back, side by side so that one is checked by the other.
//!
//! Reading is strict: an instruction that carries anything we would not have written is
//! [`Expr::Foreign`], never a near match, so that a rule someone changed does not pass for ours.

use ferrovia_core::dialect::nft::NftName;
use ferrovia_core::dialect::nft::bytecode::{
    Bytes, CmpOp, CtKey, DynsetOp, Expr, MetaKey, OriginalKey, PayloadBase, Reg,
};
use ferrovia_core::family::Family;

use super::uapi::{counter, rule};
use super::value;
use crate::netlink::{Attrs, Writer};

/// The register that takes verdicts.
const VERDICT_REG: Reg = 0;
/// A connection's own direction, as against that of its answers.
const CT_DIR_ORIGINAL: u8 = 0;
/// Looks up what is *not* in the set.
const LOOKUP_INVERT: u32 = 1;
/// The routing table is asked for an address's type.
const FIB_ADDRTYPE: u32 = 3;
const FIB_SADDR: u32 = 1;
const FIB_DADDR: u32 = 2;
const NUMGEN_RANDOM: u32 = 1;
const HASH_JENKINS: u32 = 0;
const NAT_DST: u32 = 1;
/// Address and port are given; the kernel sets this itself and shows it when read back.
const NAT_ADDR_AND_PORT: u32 = 3;
const MASQ_FULLY_RANDOM: u32 = 1 << 4;
const REJECT_ICMP: u32 = 0;

/// Writes one instruction as an item of a rule's list.
pub(super) fn write(w: &mut Writer, family: Family, expr: &Expr) {
    w.text(rule::EXPR_NAME, kernel_name(expr));
    w.nested(rule::EXPR_DATA, |w| write_attributes(w, family, expr));
}

/// Reads one instruction.
pub(super) fn read(family: Family, attrs: Attrs<'_>) -> Expr {
    let name = attrs
        .get(rule::EXPR_NAME)
        .and_then(|name| name.text())
        .unwrap_or_default();
    let fields = attrs
        .get(rule::EXPR_DATA)
        .map_or(Attrs::new(&[]), |data| data.nested());
    read_attributes(name, family, Fields(fields)).unwrap_or_else(|| Expr::Foreign(name.to_owned()))
}

fn kernel_name(expr: &Expr) -> &str {
    match expr {
        Expr::Payload { .. } => "payload",
        Expr::Meta { .. } | Expr::MetaSet { .. } => "meta",
        Expr::Ct { .. } | Expr::CtOriginal { .. } => "ct",
        Expr::Cmp { .. } => "cmp",
        Expr::Bitwise { .. } => "bitwise",
        Expr::Lookup { .. } => "lookup",
        Expr::Immediate { .. } | Expr::Verdict(_) => "immediate",
        Expr::FibAddrType { .. } => "fib",
        Expr::Random { .. } => "numgen",
        Expr::Hash { .. } => "hash",
        Expr::Dnat { .. } => "nat",
        Expr::Masquerade => "masq",
        Expr::Reject => "reject",
        Expr::Dynset { .. } => "dynset",
        Expr::Counter => counter::NAME,
        // Planners never ask for one; if one did, the kernel would refuse it for its missing
        // attributes.
        Expr::Foreign(name) => name,
    }
}

/// Port unreachable, numbered by each family's ICMP.
fn reject_code(family: Family) -> u8 {
    match family {
        Family::V4 => 3,
        Family::V6 => 4,
    }
}

fn kernel_family(family: Family) -> u32 {
    u32::from(super::family_number(family))
}

/// The attributes of one instruction: `1..` in the order of the kernel's enumeration of each.
fn write_attributes(w: &mut Writer, family: Family, expr: &Expr) {
    match expr {
        Expr::Payload {
            dreg,
            base,
            offset,
            len,
        } => numbers(w, &[(1, *dreg), (2, *base as u32), (3, *offset), (4, *len)]),
        Expr::Meta { dreg, key } => numbers(w, &[(2, *key as u32), (1, *dreg)]),
        Expr::MetaSet { key, sreg } => numbers(w, &[(2, *key as u32), (3, *sreg)]),
        Expr::Ct { dreg, key } => numbers(w, &[(2, *key as u32), (1, *dreg)]),
        Expr::CtOriginal { dreg, key } => {
            numbers(w, &[(2, *key as u32), (1, *dreg)]);
            w.bytes(3, &[CT_DIR_ORIGINAL]);
        }
        Expr::Cmp { sreg, op, data } => {
            numbers(w, &[(1, *sreg), (2, *op as u32)]);
            value::write_bytes(w, 3, data);
        }
        Expr::Bitwise {
            sreg,
            dreg,
            mask,
            xor,
        } => {
            // Registers hold at most 16 bytes, so the length cannot be cut short.
            numbers(w, &[(1, *sreg), (2, *dreg), (3, mask.len() as u32)]);
            value::write_bytes(w, 4, mask);
            value::write_bytes(w, 5, xor);
        }
        Expr::Lookup {
            set,
            sreg,
            dreg,
            invert,
        } => {
            w.text(1, set);
            w.be32(2, *sreg);
            if let Some(dreg) = dreg {
                w.be32(3, *dreg);
            }
            if *invert {
                w.be32(5, LOOKUP_INVERT);
            }
        }
        Expr::Immediate { dreg, data } => {
            w.be32(1, *dreg);
            value::write_bytes(w, 2, data);
        }
        Expr::Verdict(verdict) => {
            w.be32(1, VERDICT_REG);
            w.nested(2, |w| value::write_verdict(w, verdict));
        }
        _ => write_action(w, family, expr),
    }
}

/// The instructions that do more than load and compare.
fn write_action(w: &mut Writer, family: Family, expr: &Expr) {
    match expr {
        Expr::FibAddrType { dreg, source } => {
            let flags = if *source { FIB_SADDR } else { FIB_DADDR };
            numbers(w, &[(1, *dreg), (2, FIB_ADDRTYPE), (3, flags)]);
        }
        Expr::Random { dreg, modulus } => {
            numbers(w, &[(1, *dreg), (2, *modulus), (3, NUMGEN_RANDOM), (4, 0)]);
        }
        Expr::Hash {
            dreg,
            sreg,
            len,
            modulus,
            seed,
        } => {
            numbers(
                w,
                &[
                    (1, *sreg),
                    (2, *dreg),
                    (3, *len),
                    (4, *modulus),
                    (5, *seed),
                    (6, 0),
                    (7, HASH_JENKINS),
                ],
            );
        }
        Expr::Dnat { family, addr, port } => {
            numbers(
                w,
                &[
                    (1, NAT_DST),
                    (2, kernel_family(*family)),
                    (3, *addr),
                    (5, *port),
                ],
            );
        }
        Expr::Masquerade => w.be32(1, MASQ_FULLY_RANDOM),
        Expr::Reject => {
            w.be32(1, REJECT_ICMP);
            w.bytes(2, &[reject_code(family)]);
        }
        Expr::Dynset {
            set,
            op,
            key,
            data,
            timeout_ms,
        } => {
            w.text(1, set);
            numbers(w, &[(3, *op as u32), (4, *key)]);
            if let Some(data) = data {
                w.be32(5, *data);
            }
            if *timeout_ms > 0 {
                w.be64(6, *timeout_ms);
            }
        }
        _ => {}
    }
}

fn numbers(w: &mut Writer, attributes: &[(u16, u32)]) {
    for &(kind, number) in attributes {
        w.be32(kind, number);
    }
}

/// None for whatever we do not write ourselves.
fn read_attributes(name: &str, family: Family, f: Fields<'_>) -> Option<Expr> {
    match name {
        "payload" if f.only(&[1, 2, 3, 4]) => Some(Expr::Payload {
            dreg: f.reg(1)?,
            base: pick(
                [PayloadBase::Network, PayloadBase::Transport],
                f.number(2)?,
                |header| *header as u32,
            )?,
            offset: f.number(3)?,
            len: f.number(4)?,
        }),
        "meta" if f.only(&[1, 2]) => Some(Expr::Meta {
            dreg: f.reg(1)?,
            key: f.meta_key()?,
        }),
        "meta" if f.only(&[2, 3]) => Some(Expr::MetaSet {
            key: f.meta_key()?,
            sreg: f.reg(3)?,
        }),
        "ct" if f.only(&[1, 2]) => Some(Expr::Ct {
            dreg: f.reg(1)?,
            key: pick([CtKey::State, CtKey::Status], f.number(2)?, |key| {
                *key as u32
            })?,
        }),
        "ct" if f.only(&[1, 2, 3]) && f.0.get(3)?.u8()? == CT_DIR_ORIGINAL => {
            Some(Expr::CtOriginal {
                dreg: f.reg(1)?,
                key: pick(
                    [OriginalKey::Port, OriginalKey::Ipv4, OriginalKey::Ipv6],
                    f.number(2)?,
                    |key| *key as u32,
                )?,
            })
        }
        "cmp" => Some(Expr::Cmp {
            sreg: f.reg(1)?,
            op: pick([CmpOp::Eq, CmpOp::Neq], f.number(2)?, |op| *op as u32)?,
            data: f.value(3)?,
        }),
        // Attribute 6 is the kind of operation; 0 is the one with mask and flip.
        "bitwise" if f.is_zero(6) => Some(Expr::Bitwise {
            sreg: f.reg(1)?,
            dreg: f.reg(2)?,
            mask: f.value(4)?,
            xor: f.value(5)?,
        }),
        "lookup" => Some(Expr::Lookup {
            set: f.name(1)?,
            sreg: f.reg(2)?,
            dreg: f.optional_reg(3),
            invert: pick([false, true], f.number(5).unwrap_or(0), |invert| {
                u32::from(*invert) * LOOKUP_INVERT
            })?,
        }),
        "immediate" if f.number(1)? == VERDICT_REG => {
            Some(Expr::Verdict(value::read_verdict(f.0.get(2)?.nested())?))
        }
        "immediate" => Some(Expr::Immediate {
            dreg: f.reg(1)?,
            data: f.value(2)?,
        }),
        _ => read_action(name, family, f),
    }
}

fn read_action(name: &str, family: Family, f: Fields<'_>) -> Option<Expr> {
    match name {
        "fib" if f.number(2)? == FIB_ADDRTYPE => Some(Expr::FibAddrType {
            dreg: f.reg(1)?,
            source: pick([false, true], f.number(3)?, |source| {
                if *source { FIB_SADDR } else { FIB_DADDR }
            })?,
        }),
        "numgen" if f.number(3)? == NUMGEN_RANDOM && f.is_zero(4) => Some(Expr::Random {
            dreg: f.reg(1)?,
            modulus: f.number(2)?,
        }),
        "hash" if f.is_zero(6) && f.number(7)? == HASH_JENKINS => Some(Expr::Hash {
            sreg: f.reg(1)?,
            dreg: f.reg(2)?,
            len: f.number(3)?,
            modulus: f.number(4)?,
            seed: f.number(5)?,
        }),
        "nat"
            if f.number(1)? == NAT_DST
                && f.number(7)? == NAT_ADDR_AND_PORT
                && f.is_single(3, 4)
                && f.is_single(5, 6) =>
        {
            Some(Expr::Dnat {
                family: Family::ALL
                    .into_iter()
                    .find(|family| Some(kernel_family(*family)) == f.number(2))?,
                addr: f.reg(3)?,
                port: f.reg(5)?,
            })
        }
        counter::NAME if f.only(&[counter::BYTES, counter::PACKETS]) => Some(Expr::Counter),
        "masq" if f.only(&[1]) && f.number(1)? == MASQ_FULLY_RANDOM => Some(Expr::Masquerade),
        "reject" if f.number(1)? == REJECT_ICMP && f.0.get(2)?.u8()? == reject_code(family) => {
            Some(Expr::Reject)
        }
        // 7 and 10 are instructions run for each element, 9 are flags.
        "dynset" if f.0.get(7).is_none() && f.0.get(10).is_none() && f.is_zero(9) => {
            Some(Expr::Dynset {
                set: f.name(1)?,
                op: pick([DynsetOp::Update, DynsetOp::Delete], f.number(3)?, |op| {
                    *op as u32
                })?,
                key: f.reg(4)?,
                data: f.optional_reg(5),
                timeout_ms: f.0.get(6).map_or(Some(0), |timeout| timeout.be64())?,
            })
        }
        _ => None,
    }
}

/// The attributes of an instruction that is being read.
#[derive(Clone, Copy)]
struct Fields<'a>(Attrs<'a>);

impl Fields<'_> {
    /// These attributes and no others are there.
    fn only(self, kinds: &[u16]) -> bool {
        self.0.count() == kinds.len() && kinds.iter().all(|&kind| self.0.get(kind).is_some())
    }

    fn number(self, kind: u16) -> Option<u32> {
        self.0.get(kind)?.be32()
    }

    /// Zero, or not there, which means the same.
    fn is_zero(self, kind: u16) -> bool {
        self.number(kind).unwrap_or(0) == 0
    }

    /// A range given by two registers is a single value.
    fn is_single(self, min: u16, max: u16) -> bool {
        self.number(max)
            .is_none_or(|max| Some(max) == self.number(min))
    }

    /// A register by its 32-bit number, whichever of its two numbers was used.
    fn reg(self, kind: u16) -> Option<Reg> {
        match self.number(kind)? {
            wide @ 1..=4 => Some(8 + (wide - 1) * 4),
            narrow @ 8.. => Some(narrow),
            _ => None,
        }
    }

    /// A destination that may be missing, or be the verdict.
    fn optional_reg(self, kind: u16) -> Option<Reg> {
        match self.number(kind)? {
            VERDICT_REG => Some(VERDICT_REG),
            _ => self.reg(kind),
        }
    }

    fn value(self, kind: u16) -> Option<Bytes> {
        value::read_bytes(self.0.get(kind)?).map(Bytes::from_slice)
    }

    fn name(self, kind: u16) -> Option<NftName> {
        Some(self.0.get(kind)?.text()?.to_owned().into())
    }

    fn meta_key(self) -> Option<MetaKey> {
        let keys = [
            MetaKey::Priority,
            MetaKey::Mark,
            MetaKey::InputInterface,
            MetaKey::L4Proto,
        ];
        pick(keys, self.number(2)?, |key| *key as u32)
    }
}

/// The one of these values that has a number.
fn pick<T, const N: usize>(
    values: [T; N],
    number: u32,
    number_of: impl Fn(&T) -> u32,
) -> Option<T> {
    values.into_iter().find(|value| number_of(value) == number)
}

#[cfg(test)]
mod tests;
