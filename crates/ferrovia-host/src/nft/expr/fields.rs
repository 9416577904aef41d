//! The attributes of an instruction that is read.

use ferrovia_core::dialect::nft::NftName;
use ferrovia_core::dialect::nft::bytecode::{Bytes, MetaKey, Reg};
use ferrovia_netlink::Attrs;
use ferrovia_netlink::uapi::nf_tables::{
    NFT_REG_1, NFT_REG_4, NFT_REG_VERDICT, NFT_REG32_00, NFTA_META_KEY,
};

use super::value;

/// The attributes of an instruction that is being read.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) Attrs<'a>);

impl Fields<'_> {
    /// These attributes and no others are there.
    pub(super) fn only(self, kinds: &[u16]) -> bool {
        self.0.count() == kinds.len() && kinds.iter().all(|&kind| self.0.get(kind).is_some())
    }

    pub(super) fn number(self, kind: u16) -> Option<u32> {
        self.0.get(kind)?.be32()
    }

    /// Zero, or not there, which means the same.
    pub(super) fn is_zero(self, kind: u16) -> bool {
        self.number(kind).unwrap_or(0) == 0
    }

    /// A range given by two registers is a single value.
    pub(super) fn is_single(self, min: u16, max: u16) -> bool {
        self.number(max)
            .is_none_or(|max| Some(max) == self.number(min))
    }

    /// A register by the number of its first 32 bits. The kernel also accepts the number of a 128-bit register.
    pub(super) fn reg(self, kind: u16) -> Option<Reg> {
        match self.number(kind)? {
            wide @ NFT_REG_1..=NFT_REG_4 => Some(NFT_REG32_00 + (wide - NFT_REG_1) * 4),
            narrow @ NFT_REG32_00.. => Some(narrow),
            _ => None,
        }
    }

    /// A destination that may be missing, or be the verdict.
    pub(super) fn optional_reg(self, kind: u16) -> Option<Reg> {
        match self.number(kind)? {
            NFT_REG_VERDICT => Some(NFT_REG_VERDICT),
            _ => self.reg(kind),
        }
    }

    pub(super) fn value(self, kind: u16) -> Option<Bytes> {
        value::read_bytes(self.0.get(kind)?).map(Bytes::from_slice)
    }

    pub(super) fn name(self, kind: u16) -> Option<NftName> {
        Some(self.0.get(kind)?.text()?.to_owned().into())
    }

    pub(super) fn meta_key(self) -> Option<MetaKey> {
        let keys = [
            MetaKey::Priority,
            MetaKey::Mark,
            MetaKey::InputInterface,
            MetaKey::L4Proto,
        ];
        pick(keys, self.number(NFTA_META_KEY)?, |key| *key as u32)
    }
}

/// The one of these values that has a number.
pub(super) fn pick<T, const N: usize>(
    values: [T; N],
    number: u32,
    number_of: impl Fn(&T) -> u32,
) -> Option<T> {
    values.into_iter().find(|value| number_of(value) == number)
}
