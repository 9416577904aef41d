//! Instructions to attributes and back, side by side so that one is checked by the other.
//!
//! Reading is strict: an instruction that carries anything we would not have written is
//! [`Expr::Foreign`], never a near match, so that a rule another process changed does not pass for ours.

mod fields;

use ferrovia_core::dialect::nft::bytecode::{
    CmpOp, CtKey, DynsetOp, Expr, OriginalKey, PayloadBase,
};
use ferrovia_core::family::Family;
use ferrovia_netlink::uapi::nf_conntrack_tuple_common::IP_CT_DIR_ORIGINAL;
use ferrovia_netlink::uapi::nf_nat::{
    NF_NAT_RANGE_MAP_IPS, NF_NAT_RANGE_PROTO_RANDOM_FULLY, NF_NAT_RANGE_PROTO_SPECIFIED,
};
use ferrovia_netlink::uapi::nf_tables::*;
use ferrovia_netlink::{Attrs, Writer};

use self::fields::{Fields, pick};
use super::{COUNTER, value};

/// The kernel sets these flags itself when a register for the address and one for the port are given.
const NAT_ADDRESS_AND_PORT: u32 = NF_NAT_RANGE_MAP_IPS | NF_NAT_RANGE_PROTO_SPECIFIED;

/// Writes one instruction as an item of a rule's list.
pub(super) fn write(w: &mut Writer, family: Family, expr: &Expr) {
    w.text(NFTA_EXPR_NAME, kernel_name(expr));
    w.nested(NFTA_EXPR_DATA, |w| write_attributes(w, family, expr));
}

pub(super) fn read(family: Family, attrs: Attrs<'_>) -> Expr {
    let name = attrs
        .get(NFTA_EXPR_NAME)
        .and_then(|name| name.text())
        .unwrap_or_default();
    let fields = attrs
        .get(NFTA_EXPR_DATA)
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
        Expr::Counter => COUNTER,
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

fn write_attributes(w: &mut Writer, family: Family, expr: &Expr) {
    match expr {
        Expr::Payload {
            dreg,
            base,
            offset,
            len,
        } => numbers(
            w,
            &[
                (NFTA_PAYLOAD_DREG, *dreg),
                (NFTA_PAYLOAD_BASE, *base as u32),
                (NFTA_PAYLOAD_OFFSET, *offset),
                (NFTA_PAYLOAD_LEN, *len),
            ],
        ),
        Expr::Meta { dreg, key } => {
            numbers(w, &[(NFTA_META_KEY, *key as u32), (NFTA_META_DREG, *dreg)]);
        }
        Expr::MetaSet { key, sreg } => {
            numbers(w, &[(NFTA_META_KEY, *key as u32), (NFTA_META_SREG, *sreg)]);
        }
        Expr::Ct { dreg, key } => numbers(w, &[(NFTA_CT_KEY, *key as u32), (NFTA_CT_DREG, *dreg)]),
        Expr::CtOriginal { dreg, key } => {
            numbers(w, &[(NFTA_CT_KEY, *key as u32), (NFTA_CT_DREG, *dreg)]);
            w.bytes(NFTA_CT_DIRECTION, &[IP_CT_DIR_ORIGINAL]);
        }
        Expr::Cmp { sreg, op, data } => {
            numbers(w, &[(NFTA_CMP_SREG, *sreg), (NFTA_CMP_OP, *op as u32)]);
            value::write_bytes(w, NFTA_CMP_DATA, data);
        }
        Expr::Bitwise {
            sreg,
            dreg,
            mask,
            xor,
        } => {
            // Registers hold at most 16 bytes, so the length cannot be cut short.
            numbers(
                w,
                &[
                    (NFTA_BITWISE_SREG, *sreg),
                    (NFTA_BITWISE_DREG, *dreg),
                    (NFTA_BITWISE_LEN, mask.len() as u32),
                ],
            );
            value::write_bytes(w, NFTA_BITWISE_MASK, mask);
            value::write_bytes(w, NFTA_BITWISE_XOR, xor);
        }
        Expr::Lookup {
            set,
            sreg,
            dreg,
            invert,
        } => {
            w.text(NFTA_LOOKUP_SET, set);
            w.be32(NFTA_LOOKUP_SREG, *sreg);
            if let Some(dreg) = dreg {
                w.be32(NFTA_LOOKUP_DREG, *dreg);
            }
            if *invert {
                w.be32(NFTA_LOOKUP_FLAGS, NFT_LOOKUP_F_INV);
            }
        }
        Expr::Immediate { dreg, data } => {
            w.be32(NFTA_IMMEDIATE_DREG, *dreg);
            value::write_bytes(w, NFTA_IMMEDIATE_DATA, data);
        }
        Expr::Verdict(verdict) => {
            w.be32(NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
            w.nested(NFTA_IMMEDIATE_DATA, |w| value::write_verdict(w, verdict));
        }
        _ => write_computation(w, family, expr),
    }
}

/// The instructions that compute a value.
fn write_computation(w: &mut Writer, family: Family, expr: &Expr) {
    match expr {
        Expr::FibAddrType { dreg, source } => {
            let flags = if *source {
                NFTA_FIB_F_SADDR
            } else {
                NFTA_FIB_F_DADDR
            };
            numbers(
                w,
                &[
                    (NFTA_FIB_DREG, *dreg),
                    (NFTA_FIB_RESULT, NFT_FIB_RESULT_ADDRTYPE),
                    (NFTA_FIB_FLAGS, flags),
                ],
            );
        }
        Expr::Random { dreg, modulus } => {
            numbers(
                w,
                &[
                    (NFTA_NG_DREG, *dreg),
                    (NFTA_NG_MODULUS, *modulus),
                    (NFTA_NG_TYPE, NFT_NG_RANDOM),
                    (NFTA_NG_OFFSET, 0),
                ],
            );
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
                    (NFTA_HASH_SREG, *sreg),
                    (NFTA_HASH_DREG, *dreg),
                    (NFTA_HASH_LEN, *len),
                    (NFTA_HASH_MODULUS, *modulus),
                    (NFTA_HASH_SEED, *seed),
                    (NFTA_HASH_OFFSET, 0),
                    (NFTA_HASH_TYPE, NFT_HASH_JENKINS),
                ],
            );
        }
        _ => write_action(w, family, expr),
    }
}

/// The instructions that change the packet or a set.
fn write_action(w: &mut Writer, family: Family, expr: &Expr) {
    match expr {
        Expr::Dnat { family, addr, port } => {
            numbers(
                w,
                &[
                    (NFTA_NAT_TYPE, NFT_NAT_DNAT),
                    (NFTA_NAT_FAMILY, kernel_family(*family)),
                    (NFTA_NAT_REG_ADDR_MIN, *addr),
                    (NFTA_NAT_REG_PROTO_MIN, *port),
                ],
            );
        }
        Expr::Masquerade => w.be32(NFTA_MASQ_FLAGS, NF_NAT_RANGE_PROTO_RANDOM_FULLY),
        Expr::Reject => {
            w.be32(NFTA_REJECT_TYPE, NFT_REJECT_ICMP_UNREACH);
            w.bytes(NFTA_REJECT_ICMP_CODE, &[reject_code(family)]);
        }
        Expr::Dynset {
            set,
            op,
            key,
            data,
            timeout_ms,
        } => {
            w.text(NFTA_DYNSET_SET_NAME, set);
            numbers(
                w,
                &[(NFTA_DYNSET_OP, *op as u32), (NFTA_DYNSET_SREG_KEY, *key)],
            );
            if let Some(data) = data {
                w.be32(NFTA_DYNSET_SREG_DATA, *data);
            }
            if *timeout_ms > 0 {
                w.be64(NFTA_DYNSET_TIMEOUT, *timeout_ms);
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
        "payload"
            if f.only(&[
                NFTA_PAYLOAD_DREG,
                NFTA_PAYLOAD_BASE,
                NFTA_PAYLOAD_OFFSET,
                NFTA_PAYLOAD_LEN,
            ]) =>
        {
            Some(Expr::Payload {
                dreg: f.reg(NFTA_PAYLOAD_DREG)?,
                base: pick(
                    [PayloadBase::Network, PayloadBase::Transport],
                    f.number(NFTA_PAYLOAD_BASE)?,
                    |header| *header as u32,
                )?,
                offset: f.number(NFTA_PAYLOAD_OFFSET)?,
                len: f.number(NFTA_PAYLOAD_LEN)?,
            })
        }
        "meta" if f.only(&[NFTA_META_DREG, NFTA_META_KEY]) => Some(Expr::Meta {
            dreg: f.reg(NFTA_META_DREG)?,
            key: f.meta_key()?,
        }),
        "meta" if f.only(&[NFTA_META_KEY, NFTA_META_SREG]) => Some(Expr::MetaSet {
            key: f.meta_key()?,
            sreg: f.reg(NFTA_META_SREG)?,
        }),
        "ct" if f.only(&[NFTA_CT_DREG, NFTA_CT_KEY]) => Some(Expr::Ct {
            dreg: f.reg(NFTA_CT_DREG)?,
            key: pick(
                [CtKey::State, CtKey::Status],
                f.number(NFTA_CT_KEY)?,
                |key| *key as u32,
            )?,
        }),
        "ct" if f.only(&[NFTA_CT_DREG, NFTA_CT_KEY, NFTA_CT_DIRECTION])
            && f.0.get(NFTA_CT_DIRECTION)?.u8()? == IP_CT_DIR_ORIGINAL =>
        {
            Some(Expr::CtOriginal {
                dreg: f.reg(NFTA_CT_DREG)?,
                key: pick(
                    [OriginalKey::Port, OriginalKey::Ipv4, OriginalKey::Ipv6],
                    f.number(NFTA_CT_KEY)?,
                    |key| *key as u32,
                )?,
            })
        }
        "cmp" => Some(Expr::Cmp {
            sreg: f.reg(NFTA_CMP_SREG)?,
            op: pick([CmpOp::Eq, CmpOp::Neq], f.number(NFTA_CMP_OP)?, |op| {
                *op as u32
            })?,
            data: f.value(NFTA_CMP_DATA)?,
        }),
        // NFT_BITWISE_MASK_XOR, which libc calls NFT_BITWISE_BOOL, is 0.
        "bitwise" if f.is_zero(NFTA_BITWISE_OP) => Some(Expr::Bitwise {
            sreg: f.reg(NFTA_BITWISE_SREG)?,
            dreg: f.reg(NFTA_BITWISE_DREG)?,
            mask: f.value(NFTA_BITWISE_MASK)?,
            xor: f.value(NFTA_BITWISE_XOR)?,
        }),
        "lookup" => Some(Expr::Lookup {
            set: f.name(NFTA_LOOKUP_SET)?,
            sreg: f.reg(NFTA_LOOKUP_SREG)?,
            dreg: f.optional_reg(NFTA_LOOKUP_DREG),
            invert: pick(
                [false, true],
                f.number(NFTA_LOOKUP_FLAGS).unwrap_or(0),
                |invert| u32::from(*invert) * NFT_LOOKUP_F_INV,
            )?,
        }),
        "immediate" if f.number(NFTA_IMMEDIATE_DREG)? == NFT_REG_VERDICT => Some(Expr::Verdict(
            value::read_verdict(f.0.get(NFTA_IMMEDIATE_DATA)?.nested())?,
        )),
        "immediate" => Some(Expr::Immediate {
            dreg: f.reg(NFTA_IMMEDIATE_DREG)?,
            data: f.value(NFTA_IMMEDIATE_DATA)?,
        }),
        _ => read_action(name, family, f),
    }
}

fn read_action(name: &str, family: Family, f: Fields<'_>) -> Option<Expr> {
    match name {
        "fib" if f.number(NFTA_FIB_RESULT)? == NFT_FIB_RESULT_ADDRTYPE => Some(Expr::FibAddrType {
            dreg: f.reg(NFTA_FIB_DREG)?,
            source: pick([false, true], f.number(NFTA_FIB_FLAGS)?, |source| {
                if *source {
                    NFTA_FIB_F_SADDR
                } else {
                    NFTA_FIB_F_DADDR
                }
            })?,
        }),
        "numgen" if f.number(NFTA_NG_TYPE)? == NFT_NG_RANDOM && f.is_zero(NFTA_NG_OFFSET) => {
            Some(Expr::Random {
                dreg: f.reg(NFTA_NG_DREG)?,
                modulus: f.number(NFTA_NG_MODULUS)?,
            })
        }
        "hash" if f.is_zero(NFTA_HASH_OFFSET) && f.number(NFTA_HASH_TYPE)? == NFT_HASH_JENKINS => {
            Some(Expr::Hash {
                sreg: f.reg(NFTA_HASH_SREG)?,
                dreg: f.reg(NFTA_HASH_DREG)?,
                len: f.number(NFTA_HASH_LEN)?,
                modulus: f.number(NFTA_HASH_MODULUS)?,
                seed: f.number(NFTA_HASH_SEED)?,
            })
        }
        "nat"
            if f.number(NFTA_NAT_TYPE)? == NFT_NAT_DNAT
                && f.number(NFTA_NAT_FLAGS)? == NAT_ADDRESS_AND_PORT
                && f.is_single(NFTA_NAT_REG_ADDR_MIN, NFTA_NAT_REG_ADDR_MAX)
                && f.is_single(NFTA_NAT_REG_PROTO_MIN, NFTA_NAT_REG_PROTO_MAX) =>
        {
            Some(Expr::Dnat {
                family: Family::ALL
                    .into_iter()
                    .find(|family| Some(kernel_family(*family)) == f.number(NFTA_NAT_FAMILY))?,
                addr: f.reg(NFTA_NAT_REG_ADDR_MIN)?,
                port: f.reg(NFTA_NAT_REG_PROTO_MIN)?,
            })
        }
        COUNTER if f.only(&[NFTA_COUNTER_BYTES, NFTA_COUNTER_PACKETS]) => Some(Expr::Counter),
        "masq"
            if f.only(&[NFTA_MASQ_FLAGS])
                && f.number(NFTA_MASQ_FLAGS)? == NF_NAT_RANGE_PROTO_RANDOM_FULLY =>
        {
            Some(Expr::Masquerade)
        }
        "reject"
            if f.number(NFTA_REJECT_TYPE)? == NFT_REJECT_ICMP_UNREACH
                && f.0.get(NFTA_REJECT_ICMP_CODE)?.u8()? == reject_code(family) =>
        {
            Some(Expr::Reject)
        }
        "dynset"
            if f.0.get(NFTA_DYNSET_EXPR).is_none()
                && f.0.get(NFTA_DYNSET_EXPRESSIONS).is_none()
                && f.is_zero(NFTA_DYNSET_FLAGS) =>
        {
            Some(Expr::Dynset {
                set: f.name(NFTA_DYNSET_SET_NAME)?,
                op: pick(
                    [DynsetOp::Update, DynsetOp::Delete],
                    f.number(NFTA_DYNSET_OP)?,
                    |op| *op as u32,
                )?,
                key: f.reg(NFTA_DYNSET_SREG_KEY)?,
                data: f.optional_reg(NFTA_DYNSET_SREG_DATA),
                timeout_ms: f
                    .0
                    .get(NFTA_DYNSET_TIMEOUT)
                    .map_or(Some(0), |timeout| timeout.be64())?,
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
