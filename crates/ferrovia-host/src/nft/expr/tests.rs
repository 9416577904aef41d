//! Every form of instruction, written and read back. The kernel tests check that the kernel accepts them.

use ferrovia_core::dialect::nft::NftVerdict;
use ferrovia_core::dialect::nft::bytecode::{Bytes, MetaKey};
use ferrovia_netlink::uapi::nf_conntrack_tuple_common::IP_CT_DIR_REPLY;

use super::*;

#[allow(clippy::too_many_lines, reason = "a table")]
fn every_form() -> Vec<Expr> {
    let bytes = Bytes::from_slice(&[1, 2, 3, 4]);
    let mut all = vec![
        Expr::Payload {
            dreg: 8,
            base: PayloadBase::Transport,
            offset: 2,
            len: 2,
        },
        Expr::Meta {
            dreg: 9,
            key: MetaKey::L4Proto,
        },
        Expr::MetaSet {
            key: MetaKey::Mark,
            sreg: 8,
        },
        Expr::Ct {
            dreg: 8,
            key: CtKey::Status,
        },
        Expr::CtOriginal {
            dreg: 18,
            key: OriginalKey::Port,
        },
        Expr::Cmp {
            sreg: 8,
            op: CmpOp::Neq,
            data: bytes.clone(),
        },
        Expr::Bitwise {
            sreg: 8,
            dreg: 9,
            mask: bytes.clone(),
            xor: bytes.clone(),
        },
        Expr::Lookup {
            set: "s".into(),
            sreg: 8,
            dreg: None,
            invert: true,
        },
        Expr::Lookup {
            set: "s".into(),
            sreg: 8,
            dreg: Some(0),
            invert: false,
        },
        Expr::Lookup {
            set: "s".into(),
            sreg: 8,
            dreg: Some(12),
            invert: false,
        },
        Expr::Immediate {
            dreg: 8,
            data: bytes,
        },
        Expr::FibAddrType {
            dreg: 8,
            source: true,
        },
        Expr::Random {
            dreg: 10,
            modulus: 3,
        },
        Expr::Hash {
            dreg: 10,
            sreg: 20,
            len: 16,
            modulus: 251,
            seed: 7,
        },
        Expr::Masquerade,
        Expr::Reject,
        Expr::Foreign("counter".into()),
    ];
    all.extend([Some(12), None].map(|data| Expr::Dynset {
        set: "m".into(),
        op: DynsetOp::Update,
        key: 8,
        data,
        timeout_ms: 10_800_000,
    }));
    let (to, verdicts) = (
        "c".into(),
        [NftVerdict::Accept, NftVerdict::Drop, NftVerdict::Return],
    );
    all.extend(
        verdicts
            .into_iter()
            .chain([NftVerdict::Goto(to)])
            .map(Expr::Verdict),
    );
    all
}

#[test]
fn what_is_written_is_read_back() {
    for (family, expr) in Family::ALL
        .into_iter()
        .flat_map(|f| every_form().into_iter().map(move |e| (f, e)))
    {
        let mut writer = Writer::new();
        write(&mut writer, family, &expr);
        let bytes = writer.finish().unwrap();
        assert_eq!(read(family, Attrs::new(&bytes)), expr);
    }
}

#[test]
fn reads_a_128_bit_register_as_its_first_32_bit_register() {
    let mut writer = Writer::new();
    writer.text(NFTA_EXPR_NAME, "meta");
    writer.nested(NFTA_EXPR_DATA, |w| {
        numbers(
            w,
            &[
                (NFTA_META_DREG, NFT_REG_1 + 1),
                (NFTA_META_KEY, MetaKey::Mark as u32),
            ],
        );
    });
    let bytes = writer.finish().unwrap();
    assert_eq!(
        read(Family::V4, Attrs::new(&bytes)),
        Expr::Meta {
            dreg: NFT_REG32_00 + 4,
            key: MetaKey::Mark
        }
    );
}

#[test]
fn ct_key_of_the_reply_direction_is_foreign() {
    let mut writer = Writer::new();
    writer.text(NFTA_EXPR_NAME, "ct");
    writer.nested(NFTA_EXPR_DATA, |w| {
        numbers(
            w,
            &[
                (NFTA_CT_KEY, OriginalKey::Port as u32),
                (NFTA_CT_DREG, NFT_REG32_00),
            ],
        );
        w.bytes(NFTA_CT_DIRECTION, &[IP_CT_DIR_REPLY]);
    });
    let bytes = writer.finish().unwrap();
    assert_eq!(
        read(Family::V4, Attrs::new(&bytes)),
        Expr::Foreign("ct".into())
    );
}

#[test]
fn reject_with_another_code_is_foreign() {
    let mut writer = Writer::new();
    write(&mut writer, Family::V6, &Expr::Reject);
    let bytes = writer.finish().unwrap();
    assert_eq!(
        read(Family::V4, Attrs::new(&bytes)),
        Expr::Foreign("reject".into())
    );
}
