//! Finds out whether the kernel would take rules, without giving it any.

use ferrovia_core::dialect::nft::bytecode::Expr;
use ferrovia_core::dialect::nft::{ChainKind, Hook, HookPoint, NftChain};
use ferrovia_core::family::Family;
use ferrovia_netlink::uapi::nf_tables::NFT_TABLE_F_DORMANT;
use ferrovia_netlink::{self as netlink, Refusal};

use super::encode::Encoder;
use super::{Error, Nft, failed};

/// A name nothing else uses; the table never comes to be.
const TABLE: &str = "ferrovia-probe";

/// What the kernel would have said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rehearsal {
    /// To a base chain that translates addresses.
    pub nat_chain: Option<Refusal>,
    /// To each of the rules.
    pub rules: Vec<Option<Refusal>>,
}

impl Nft {
    /// Sends rules in a transaction that must fail at its end, so that the kernel judges each rule
    /// and then takes all back.
    ///
    /// The table is dormant, so not even for the moment of its life does a packet see it.
    ///
    /// # Errors
    /// If the netlink socket fails, or the transaction is refused as a whole.
    pub fn rehearse(&mut self, family: Family, rules: &[Vec<Expr>]) -> Result<Rehearsal, Error> {
        let broken = failed("probe rules");
        let mut encoder = Encoder::begin(family, self.socket.next_seq());
        encoder.add_table(TABLE, NFT_TABLE_F_DORMANT);
        let hook = Hook {
            kind: ChainKind::Nat,
            point: HookPoint::Postrouting,
            priority: 100,
        };
        encoder.add_chain(
            TABLE,
            &NftChain {
                name: "nat".into(),
                hook: Some(hook),
            },
        );
        encoder.add_chain(
            TABLE,
            &NftChain {
                name: "rules".into(),
                hook: None,
            },
        );
        for rule in rules {
            encoder.add_rule(TABLE, "rules", rule, None);
        }
        // What makes the transaction fail.
        encoder.delete_chain(TABLE, "never-made");

        let batch = encoder.end().map_err(|error| broken(error.into()))?;
        let (refusals, _) = self.send(&batch).map_err(broken)?;
        // The table is message 1 behind the one that begins the batch, then come the two chains and
        // the rules.
        let of_message = |number: usize| {
            let seq = batch.first_seq.wrapping_add(number as u32);
            refusals
                .iter()
                .find(|(refused, _)| *refused == seq)
                .map(|(_, refusal)| refusal.clone())
        };
        if let Some(whole) = of_message(0).or_else(|| of_message(1)) {
            return Err(broken(netlink::Error::Refused(whole)));
        }
        Ok(Rehearsal {
            nat_chain: of_message(2),
            rules: (0..rules.len()).map(|rule| of_message(4 + rule)).collect(),
        })
    }
}
