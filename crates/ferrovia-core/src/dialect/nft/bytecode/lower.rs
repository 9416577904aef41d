//! From a rule to its instructions.

use std::net::IpAddr;

use ipnet::IpNet;
use smallvec::SmallVec;

use super::super::{
    Field, FieldType, NftMatch, NftName, NftRule, NftVerdict, PriorityValue, Sense, SetUpdate,
    Statement,
};
use super::{Bytes, CmpOp, CtKey, DynsetOp, Expr, MetaKey, OriginalKey, PayloadBase, Reg};
use crate::family::Family;
use crate::model::Protocol;

const R0: Reg = 8;
/// A register far enough from the key that is being put together in the first ones: an IPv6 source address fits behind it.
const SIDE: Reg = 20;

/// The seed of the source hash: any fixed number will do, all nodes and all restarts must use the same.
pub(in crate::dialect::nft) const HASH_SEED: u32 = 0x00fe_4402;

/// Connection tracking's bit for "new".
const CT_STATE_NEW: u32 = 1 << 3;
/// Connection tracking's bit for "destination translated".
const CT_STATUS_DNAT: u32 = 1 << 5;
/// The address type "one of this host's own".
const ADDR_TYPE_LOCAL: u32 = 2;
/// Longest interface name including the terminating zero.
const IFNAME_LEN: usize = 16;

/// The instructions of a rule.
pub fn lower(rule: &NftRule, family: Family) -> Vec<Expr> {
    let mut code = Code {
        family,
        out: Vec::with_capacity(8),
    };
    rule.matches.iter().for_each(|m| code.condition(m));
    rule.statements.iter().for_each(|s| code.statement(s));
    code.out
}

/// Instructions being put together.
struct Code {
    family: Family,
    out: Vec<Expr>,
}

impl Code {
    fn condition(&mut self, condition: &NftMatch) {
        match condition {
            NftMatch::CtStateNew => self.ct_bits(CtKey::State, CT_STATE_NEW),
            NftMatch::CtStatusDnat => self.ct_bits(CtKey::Status, CT_STATUS_DNAT),
            NftMatch::Protocol(protocol) => self.protocol(*protocol),
            NftMatch::MarkBits(bits) => self.meta_bits(MetaKey::Mark, *bits),
            NftMatch::PriorityBits(bits) => self.meta_bits(MetaKey::Priority, *bits),
            NftMatch::Source(net, sense) => self.inside(Field::Saddr, net, *sense),
            NftMatch::Destination(net, sense) => self.inside(Field::Daddr, net, *sense),
            NftMatch::InputInterface(name, sense) => self.interface(padded_ifname(name), *sense),
            NftMatch::InputInterfacePrefix(prefix, sense) => {
                self.interface(ifname_prefix(prefix), *sense);
            }
            NftMatch::LocalSource => self.local(true),
            NftMatch::LocalDestination => self.local(false),
            NftMatch::InSet(key, set, sense) => {
                self.key(R0, key);
                self.lookup(set, None, *sense == Sense::IsNot);
            }
        }
    }

    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::MarkOr(bits) => self.change_mark(!bits, *bits),
            Statement::MarkXor(bits) => self.change_mark(u32::MAX, *bits),
            Statement::SetPriority(value) => self.set_priority(value),
            Statement::Vmap(key, map) => {
                self.key(R0, key);
                self.lookup(map, Some(0), false);
            }
            Statement::Jump(chain) => self
                .out
                .push(Expr::Verdict(NftVerdict::Jump(chain.clone()))),
            Statement::Goto(chain) => self
                .out
                .push(Expr::Verdict(NftVerdict::Goto(chain.clone()))),
            Statement::Return => self.out.push(Expr::Verdict(NftVerdict::Return)),
            Statement::Counter => self.out.push(Expr::Counter),
            Statement::Drop => self.out.push(Expr::Verdict(NftVerdict::Drop)),
            Statement::Reject => self.out.push(Expr::Reject),
            Statement::Masquerade => self.out.push(Expr::Masquerade),
            Statement::Dnat(key, map) => self.dnat(key, map),
            Statement::Dynamic(update) => self.dynamic(update),
        }
    }

    fn ct_bits(&mut self, key: CtKey, bits: u32) {
        self.out.push(Expr::Ct { dreg: R0, key });
        self.any_bit(bits);
    }

    fn protocol(&mut self, protocol: Protocol) {
        self.field(R0, Field::L4Proto);
        self.out.push(Expr::Cmp {
            sreg: R0,
            op: CmpOp::Eq,
            data: SmallVec::from_slice(&[protocol.number()]),
        });
    }

    fn meta_bits(&mut self, key: MetaKey, bits: u32) {
        self.out.push(Expr::Meta { dreg: R0, key });
        self.any_bit(bits);
    }

    fn any_bit(&mut self, bits: u32) {
        self.bits(R0, bits, 0);
        self.out.push(Expr::Cmp {
            sreg: R0,
            op: CmpOp::Neq,
            data: number(0),
        });
    }

    fn bits(&mut self, reg: Reg, mask: u32, xor: u32) {
        self.out.push(Expr::Bitwise {
            sreg: reg,
            dreg: reg,
            mask: number(mask),
            xor: number(xor),
        });
    }

    /// Compares the whole address behind a mask, which a single address does not need. (The tool loads only the bytes of the prefix where
    /// that ends with a byte; it still reads ours.)
    fn inside(&mut self, field: Field, net: &IpNet, sense: Sense) {
        self.field(R0, field);
        if net.prefix_len() < net.max_prefix_len() {
            let mask = octets(net.netmask());
            let xor = SmallVec::from_elem(0, mask.len());
            self.out.push(Expr::Bitwise {
                sreg: R0,
                dreg: R0,
                mask,
                xor,
            });
        }
        self.out.push(Expr::Cmp {
            sreg: R0,
            op: sense.into(),
            data: octets(net.network()),
        });
    }

    fn interface(&mut self, data: Bytes, sense: Sense) {
        self.out.push(Expr::Meta {
            dreg: R0,
            key: MetaKey::InputInterface,
        });
        self.out.push(Expr::Cmp {
            sreg: R0,
            op: sense.into(),
            data,
        });
    }

    fn local(&mut self, source: bool) {
        self.out.push(Expr::FibAddrType { dreg: R0, source });
        self.out.push(Expr::Cmp {
            sreg: R0,
            op: CmpOp::Eq,
            data: number(ADDR_TYPE_LOCAL),
        });
    }

    fn change_mark(&mut self, mask: u32, xor: u32) {
        self.out.push(Expr::Meta {
            dreg: R0,
            key: MetaKey::Mark,
        });
        self.bits(R0, mask, xor);
        self.out.push(Expr::MetaSet {
            key: MetaKey::Mark,
            sreg: R0,
        });
    }

    fn set_priority(&mut self, value: &PriorityValue) {
        match value {
            PriorityValue::None => self.out.push(Expr::Immediate {
                dreg: R0,
                data: number(0),
            }),
            PriorityValue::Bits(bits) => self.field(R0, Field::PriorityBits(*bits)),
            PriorityValue::With(bits) => {
                self.field(R0, Field::Priority);
                self.bits(R0, !bits, *bits);
            }
            PriorityValue::Map(key, map) => {
                self.key(R0, key);
                self.lookup(map, Some(R0), false);
            }
        }
        self.out.push(Expr::MetaSet {
            key: MetaKey::Priority,
            sreg: R0,
        });
    }

    fn dnat(&mut self, key: &[Field], map: &NftName) {
        self.key(R0, key);
        self.lookup(map, Some(R0), false);
        let port = R0 + registers(FieldType::addr(self.family).width());
        self.out.push(Expr::Dnat {
            family: self.family,
            addr: R0,
            port,
        });
    }

    fn dynamic(&mut self, update: &SetUpdate) {
        let (set, key, op, timeout) = match update {
            SetUpdate::Count { set, key, timeout } => (set, key, DynsetOp::Update, *timeout),
            SetUpdate::Refresh { map, key, timeout } => (map, key, DynsetOp::Update, *timeout),
            SetUpdate::Delete { map, key } => (map, key, DynsetOp::Delete, 0),
        };
        let behind_key = self.key(R0, key);
        let is_map = !matches!(update, SetUpdate::Count { .. });
        if is_map {
            self.field(behind_key, Field::Priority);
        }
        self.out.push(Expr::Dynset {
            set: set.clone(),
            op,
            key: R0,
            data: is_map.then_some(behind_key),
            timeout_ms: u64::from(timeout) * 1000,
        });
    }

    fn lookup(&mut self, set: &NftName, dreg: Option<Reg>, invert: bool) {
        self.out.push(Expr::Lookup {
            set: set.clone(),
            sreg: R0,
            dreg,
            invert,
        });
    }

    /// Loads the fields of a key one behind the other; answers with the next free register.
    fn key(&mut self, first: Reg, key: &[Field]) -> Reg {
        key.iter().fold(first, |reg, &field| {
            self.field(reg, field);
            reg + registers(self.field_len(field))
        })
    }

    fn field(&mut self, dreg: Reg, field: Field) {
        let (saddr, daddr, len) = match self.family {
            Family::V4 => (12, 16, 4),
            Family::V6 => (8, 24, 16),
        };
        match field {
            Field::Saddr => self.payload(dreg, PayloadBase::Network, saddr, len),
            Field::Daddr => self.payload(dreg, PayloadBase::Network, daddr, len),
            Field::Dport => self.payload(dreg, PayloadBase::Transport, 2, 2),
            Field::OriginalDaddr => self.out.push(Expr::CtOriginal {
                dreg,
                key: match self.family {
                    Family::V4 => OriginalKey::Ipv4,
                    Family::V6 => OriginalKey::Ipv6,
                },
            }),
            Field::OriginalDport => self.out.push(Expr::CtOriginal {
                dreg,
                key: OriginalKey::Port,
            }),
            Field::L4Proto => self.out.push(Expr::Meta {
                dreg,
                key: MetaKey::L4Proto,
            }),
            Field::Priority => self.out.push(Expr::Meta {
                dreg,
                key: MetaKey::Priority,
            }),
            Field::PriorityBits(bits) => {
                self.out.push(Expr::Meta {
                    dreg,
                    key: MetaKey::Priority,
                });
                self.bits(dreg, bits, 0);
            }
            Field::Random(modulus) => self.out.push(Expr::Random { dreg, modulus }),
            Field::SourceHash(modulus) => {
                self.payload(SIDE, PayloadBase::Network, saddr, len);
                self.out.push(Expr::Hash {
                    dreg,
                    sreg: SIDE,
                    len,
                    modulus,
                    seed: HASH_SEED,
                });
            }
        }
    }

    fn payload(&mut self, dreg: Reg, base: PayloadBase, offset: u32, len: u32) {
        self.out.push(Expr::Payload {
            dreg,
            base,
            offset,
            len,
        });
    }

    fn field_len(&self, field: Field) -> usize {
        match field {
            Field::Saddr | Field::Daddr | Field::OriginalDaddr => {
                FieldType::addr(self.family).width()
            }
            _ => 4,
        }
    }
}

impl From<Sense> for CmpOp {
    fn from(sense: Sense) -> Self {
        match sense {
            Sense::Is => Self::Eq,
            Sense::IsNot => Self::Neq,
        }
    }
}

fn registers(bytes: usize) -> Reg {
    // At most 16 bytes, so this cannot be cut short.
    bytes.div_ceil(4) as Reg
}

/// A number as registers hold it.
fn number(number: u32) -> Bytes {
    SmallVec::from_slice(&number.to_ne_bytes())
}

fn octets(ip: IpAddr) -> Bytes {
    match ip {
        IpAddr::V4(v4) => SmallVec::from_slice(&v4.octets()),
        IpAddr::V6(v6) => SmallVec::from_slice(&v6.octets()),
    }
}

/// An exact interface name is compared with its padding, so that `eth1` is not `eth10`.
fn padded_ifname(name: &str) -> Bytes {
    let mut bytes = Bytes::from_slice(name.as_bytes());
    bytes.resize(IFNAME_LEN, 0);
    bytes
}

/// Sixteen bytes without a zero match no interface, which is right for a prefix longer than any name.
fn ifname_prefix(prefix: &str) -> Bytes {
    prefix.bytes().take(IFNAME_LEN).collect()
}
