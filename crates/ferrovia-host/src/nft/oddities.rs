//! Properties that nothing we write has. Another process set them, no single operation of ours unsets them, and they can make a table that
//! otherwise looks right do the wrong thing.
//!
//! Each is described, for the log; that there is one is all a planner needs to know.

use ferrovia_netlink::uapi::nf_tables::{
    NFT_SET_CONCAT, NFT_SET_CONSTANT, NFT_SET_EVAL, NFT_SET_INTERVAL, NFT_SET_MAP, NFT_SET_TIMEOUT,
    NFT_TABLE_F_DORMANT, NFT_TABLE_F_OWNER, NFTA_CHAIN_NAME, NFTA_CHAIN_POLICY, NFTA_OBJ_NAME,
    NFTA_SET_DESC, NFTA_SET_DESC_SIZE, NFTA_SET_EXPR, NFTA_SET_EXPRESSIONS, NFTA_SET_FLAGS,
    NFTA_SET_NAME, NFTA_SET_TIMEOUT, NFTA_TABLE_FLAGS,
};
use ferrovia_netlink::{Attr, Attrs, Message};

use super::decode::{attrs, foreign_instructions};

/// Flags of the sets that we write.
const WRITTEN_SET_FLAGS: u32 =
    NFT_SET_INTERVAL | NFT_SET_MAP | NFT_SET_TIMEOUT | NFT_SET_EVAL | NFT_SET_CONCAT;

/// What is odd about a table itself.
pub(super) fn of_table(message: &Message<'_>) -> Vec<String> {
    let flags = number(attrs(message), NFTA_TABLE_FLAGS);
    let mut found = Vec::new();
    if flags & NFT_TABLE_F_DORMANT != 0 {
        found.push("table is dormant".to_owned());
    }
    if flags & NFT_TABLE_F_OWNER != 0 {
        found.push("table belongs to a process".to_owned());
    }
    let foreign = flags & !(NFT_TABLE_F_DORMANT | NFT_TABLE_F_OWNER);
    if foreign != 0 {
        found.push(format!("table has foreign flags {foreign:#x}"));
    }
    found
}

/// What is odd about a chain. Only base chains have a policy.
pub(super) fn of_chain(message: &Message<'_>) -> Option<String> {
    let attrs = attrs(message);
    let name = attrs.get(NFTA_CHAIN_NAME)?.text()?;
    match attrs.get(NFTA_CHAIN_POLICY)?.be32()?.cast_signed() {
        libc::NF_ACCEPT => None,
        libc::NF_DROP => Some(format!("chain {name} has policy drop")),
        other => Some(format!("chain {name} has policy {other}")),
    }
}

/// What is odd about a set's definition.
pub(super) fn of_set(message: &Message<'_>) -> Vec<String> {
    let attrs = attrs(message);
    let Some(name) = attrs.get(NFTA_SET_NAME).and_then(Attr::text) else {
        return Vec::new();
    };
    let flags = number(attrs, NFTA_SET_FLAGS);
    let dynamic = flags & NFT_SET_EVAL != 0;
    // Packets give the elements of our dynamic sets their time, rule by rule: those sets have the flag, but no time of their own.
    let expires = flags & NFT_SET_TIMEOUT != 0;
    let has_timeout = expires && !dynamic || attrs.get(NFTA_SET_TIMEOUT).is_some();
    let foreign = flags & !(NFT_SET_CONSTANT | WRITTEN_SET_FLAGS);
    let properties = [
        (has_size(attrs) && !dynamic, "has a size".to_owned()),
        (has_timeout, "has a timeout".to_owned()),
        (
            dynamic && !expires,
            "is dynamic without timeouts".to_owned(),
        ),
        (flags & NFT_SET_CONSTANT != 0, "is constant".to_owned()),
        (foreign != 0, format!("has foreign flags {foreign:#x}")),
    ];
    let instructions = foreign_instructions(attrs, NFTA_SET_EXPR, NFTA_SET_EXPRESSIONS)
        .map(|instruction| format!("has a {instruction}"));
    let odd = properties.into_iter().filter(|(holds, _)| *holds);
    odd.map(|(_, what)| what)
        .chain(instructions)
        .map(|what| format!("set {name} {what}"))
        .collect()
}

/// A named object, which is odd by being there.
pub(super) fn of_object(message: &Message<'_>) -> Option<String> {
    let name = attrs(message).get(NFTA_OBJ_NAME)?.text()?;
    Some(format!("table has a named object {name}"))
}

fn has_size(attrs: Attrs<'_>) -> bool {
    let description = attrs.get(NFTA_SET_DESC).map(Attr::nested);
    description.is_some_and(|description| number(description, NFTA_SET_DESC_SIZE) != 0)
}

/// A number that the kernel leaves out if it is 0.
fn number(attrs: Attrs<'_>, kind: u16) -> u32 {
    attrs.get(kind).and_then(Attr::be32).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use ferrovia_netlink::uapi::nf_tables::NFT_MSG_NEWTABLE;
    use ferrovia_netlink::{Header, Writer, messages, nfnetlink};

    use super::super::message_type;
    use super::*;

    /// The tool gives its table an owner only while it runs, so this is not among the tests against the kernel.
    #[test]
    fn describes_flags_of_tables() {
        let oddities_of = |flags| {
            let mut writer = Writer::with_capacity(64);
            let header = Header {
                kind: message_type(NFT_MSG_NEWTABLE),
                flags: 0,
                seq: 1,
            };
            writer.message(header, |w| {
                w.raw(&[0; nfnetlink::HEADER_LEN]);
                w.be32(NFTA_TABLE_FLAGS, flags);
            });
            let bytes = writer.finish().unwrap();
            of_table(&messages(&bytes).next().unwrap())
        };
        assert_eq!(oddities_of(0), [""; 0]);
        assert_eq!(oddities_of(1), ["table is dormant"]);
        assert_eq!(
            oddities_of(2 | 4),
            ["table belongs to a process", "table has foreign flags 0x4"]
        );
    }
}
