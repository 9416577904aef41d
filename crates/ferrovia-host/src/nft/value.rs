//! Values and verdicts, which rules and elements hold in the same form.

use ferrovia_core::dialect::nft::{NftName, NftVerdict};

use super::uapi::data;
use crate::netlink::{Attr, Attrs, Writer};

/// Writes an attribute that holds bytes.
pub(super) fn write_bytes(w: &mut Writer, kind: u16, bytes: &[u8]) {
    w.nested(kind, |w| w.bytes(data::VALUE, bytes));
}

/// Reads such an attribute.
pub(super) fn read_bytes(attr: Attr<'_>) -> Option<&[u8]> {
    Some(attr.nested().get(data::VALUE)?.value)
}

/// Writes a verdict as the kernel wants it inside a data attribute.
pub(super) fn write_verdict(w: &mut Writer, verdict: &NftVerdict) {
    let (code, chain) = match verdict {
        NftVerdict::Drop => (libc::NF_DROP, None),
        NftVerdict::Accept => (libc::NF_ACCEPT, None),
        NftVerdict::Jump(chain) => (libc::NFT_JUMP, Some(chain)),
        NftVerdict::Goto(chain) => (libc::NFT_GOTO, Some(chain)),
        NftVerdict::Return => (libc::NFT_RETURN, None),
    };
    w.nested(data::VERDICT, |w| {
        w.bytes(data::VERDICT_CODE, &code.to_be_bytes());
        if let Some(chain) = chain {
            w.text(data::VERDICT_CHAIN, chain);
        }
    });
}

/// Reads a verdict out of a data attribute.
pub(super) fn read_verdict(attrs: Attrs<'_>) -> Option<NftVerdict> {
    let verdict = attrs.get(data::VERDICT)?.nested();
    let chain = || {
        Some(NftName::from(
            verdict.get(data::VERDICT_CHAIN)?.text()?.to_owned(),
        ))
    };
    match verdict.get(data::VERDICT_CODE)?.be32()?.cast_signed() {
        libc::NF_DROP => Some(NftVerdict::Drop),
        libc::NF_ACCEPT => Some(NftVerdict::Accept),
        libc::NFT_JUMP => Some(NftVerdict::Jump(chain()?)),
        libc::NFT_GOTO => Some(NftVerdict::Goto(chain()?)),
        libc::NFT_RETURN => Some(NftVerdict::Return),
        _ => None,
    }
}
