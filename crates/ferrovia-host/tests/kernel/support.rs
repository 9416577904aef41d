//! The `nft` tool, and short names for common steps.

use ferrovia_core::dialect::nft::{NftObserved, NftOp, Transaction};
use ferrovia_core::family::Family;
use ferrovia_host::nft::Nft;
use ferrovia_lab::namespace::feed;
pub(crate) use ferrovia_lab::namespace::{drop_privileges, in_namespace, run};

/// The table the tests write.
pub(crate) const TABLE: &str = "ferrovia";

/// A transaction on the test table.
pub(crate) fn transaction(family: Family, ops: Vec<NftOp>) -> Transaction {
    Transaction {
        family,
        table: TABLE.into(),
        ops,
        notes: Vec::new(),
    }
}

/// Applies operations through netlink.
pub(crate) fn apply(nft: &mut Nft, family: Family, ops: Vec<NftOp>) {
    let transaction = transaction(family, ops);
    nft.apply(&transaction)
        .unwrap_or_else(|error| panic!("{error}\n{transaction}"));
}

/// Reads the test table.
pub(crate) fn observe(nft: &mut Nft, family: Family) -> NftObserved {
    nft.observe(family, TABLE, &[]).unwrap()
}

/// Lets the tool load a text; it must succeed.
pub(crate) fn load(text: &str) {
    feed("nft -f -", text);
}

/// What the tool says about the test table.
pub(crate) fn list(family: Family) -> String {
    run(&format!("nft list table {} {TABLE}", keyword(family)))
}

/// The tool's word for a family.
pub(crate) fn keyword(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    }
}
