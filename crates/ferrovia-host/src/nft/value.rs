//! Values and verdicts, which rules and elements hold in the same form.

use ferrovia_core::dialect::nft::{NftName, NftVerdict};
use ferrovia_netlink::uapi::nf_tables::{
    NFTA_DATA_VALUE, NFTA_DATA_VERDICT, NFTA_VERDICT_CHAIN, NFTA_VERDICT_CODE,
};
use ferrovia_netlink::{Attr, Attrs, Writer};

/// Writes an attribute that holds bytes.
pub(super) fn write_bytes(w: &mut Writer, kind: u16, bytes: &[u8]) {
    w.nested(kind, |w| w.bytes(NFTA_DATA_VALUE, bytes));
}

/// Reads such an attribute.
pub(super) fn read_bytes(attr: Attr<'_>) -> Option<&[u8]> {
    Some(attr.nested().get(NFTA_DATA_VALUE)?.value)
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
    w.nested(NFTA_DATA_VERDICT, |w| {
        w.bytes(NFTA_VERDICT_CODE, &code.to_be_bytes());
        if let Some(chain) = chain {
            w.text(NFTA_VERDICT_CHAIN, chain);
        }
    });
}

/// Reads a verdict out of a data attribute.
pub(super) fn read_verdict(attrs: Attrs<'_>) -> Option<NftVerdict> {
    let verdict = attrs.get(NFTA_DATA_VERDICT)?.nested();
    let chain = || {
        Some(NftName::from(
            verdict.get(NFTA_VERDICT_CHAIN)?.text()?.to_owned(),
        ))
    };
    match verdict.get(NFTA_VERDICT_CODE)?.be32()?.cast_signed() {
        libc::NF_DROP => Some(NftVerdict::Drop),
        libc::NF_ACCEPT => Some(NftVerdict::Accept),
        libc::NFT_JUMP => Some(NftVerdict::Jump(chain()?)),
        libc::NFT_GOTO => Some(NftVerdict::Goto(chain()?)),
        libc::NFT_RETURN => Some(NftVerdict::Return),
        _ => None,
    }
}
