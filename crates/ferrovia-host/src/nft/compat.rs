//! The chains of `iptables-nft`, read and removed without the tool: they are chains of nf_tables like all others.

use std::collections::BTreeMap;

use ferrovia_core::dialect::iptables::{KernelChain, KernelRemoval, KernelRule, KernelTable};
use ferrovia_core::dialect::nft::NftVerdict;
use ferrovia_core::family::Family;
use ferrovia_netlink::uapi::nf_tables::{
    NFT_MSG_GETCHAIN, NFT_MSG_GETRULE, NFTA_CHAIN_HOOK, NFTA_CHAIN_NAME, NFTA_CHAIN_USE,
    NFTA_EXPR_DATA, NFTA_EXPR_NAME, NFTA_IMMEDIATE_DATA, NFTA_OBJ_TABLE, NFTA_RULE_CHAIN,
    NFTA_RULE_EXPRESSIONS, NFTA_RULE_HANDLE,
};
use ferrovia_netlink::{self as netlink, Attr, Attrs, Message};

use super::encode::Encoder;
use super::{Error, Nft, decode, failed, value};

impl Nft {
    /// A family's tables of these names, with their chains and where rules lead. Tables that are not there are left out.
    ///
    /// # Errors
    /// If the netlink socket fails.
    pub(crate) fn compat_tables(
        &mut self,
        family: Family,
        names: &[&str],
    ) -> Result<Vec<KernelTable>, Error> {
        let mut tables: BTreeMap<String, BTreeMap<String, KernelChain>> = self.dump(
            "list the chains of iptables-nft",
            NFT_MSG_GETCHAIN,
            family,
            |_| {},
            |all: &mut BTreeMap<String, BTreeMap<_, _>>, message| {
                if let Some(table) = decode::table_of(message).filter(|of| names.contains(of)) {
                    let chains = all.entry(table.to_owned()).or_default();
                    chains.extend(read_chain(message).map(|chain| (chain.name.clone(), chain)));
                }
            },
        )?;
        for (table, chains) in &mut tables {
            let rules: Vec<(String, KernelRule)> = self.dump(
                "list the rules of iptables-nft",
                NFT_MSG_GETRULE,
                family,
                |w| w.text(NFTA_OBJ_TABLE, table),
                |all: &mut Vec<_>, message| all.extend(read_rule(message)),
            )?;
            for (chain, rule) in rules {
                if let Some(chain) = chains.get_mut(&chain) {
                    chain.rules.push(rule);
                }
            }
        }
        let tables = tables.into_iter().map(|(name, chains)| KernelTable {
            name,
            chains: chains.into_values().collect(),
        });
        Ok(tables.collect())
    }

    /// Removes chains and the jumps to them, all or nothing.
    ///
    /// # Errors
    /// If the kernel refuses, as it does when another process has changed these chains since they were read.
    pub(crate) fn remove_compat(
        &mut self,
        family: Family,
        removals: &[KernelRemoval],
    ) -> Result<(), Error> {
        let broken = failed("remove chains of iptables-nft");
        let mut encoder = Encoder::begin(family, self.socket.next_seq());
        for removal in removals {
            let table = &removal.table;
            for (chain, handle) in &removal.jumps {
                encoder.delete_rule(table, chain, *handle);
            }
            // They lead to each other, so all are emptied before the first goes.
            for chain in removal.kept.iter().chain(&removal.deleted) {
                encoder.flush_chain(table, chain);
            }
            for chain in &removal.deleted {
                encoder.delete_chain(table, chain);
            }
        }
        let batch = encoder.end().map_err(|error| broken(error.into()))?;
        if batch.parts.is_empty() {
            return Ok(());
        }
        let (refusals, _) = self.send(&batch).map_err(broken)?;
        match refusals.into_iter().next() {
            None => Ok(()),
            Some((_, refusal)) => Err(broken(netlink::Error::Refused(refusal))),
        }
    }
}

fn read_chain(message: &Message<'_>) -> Option<KernelChain> {
    let attrs = decode::attrs(message);
    Some(KernelChain {
        name: attrs.get(NFTA_CHAIN_NAME)?.text()?.to_owned(),
        is_base: attrs.get(NFTA_CHAIN_HOOK).is_some(),
        uses: attrs.get(NFTA_CHAIN_USE).and_then(Attr::be32).unwrap_or(0),
        rules: Vec::new(),
    })
}

fn read_rule(message: &Message<'_>) -> Option<(String, KernelRule)> {
    let attrs = decode::attrs(message);
    let chain = attrs.get(NFTA_RULE_CHAIN)?.text()?.to_owned();
    let mut instructions = attrs
        .get(NFTA_RULE_EXPRESSIONS)
        .map_or(Attrs::new(&[]), Attr::nested);
    let rule = KernelRule {
        handle: attrs.get(NFTA_RULE_HANDLE)?.be64()?,
        target: instructions.find_map(|instruction| target(instruction.nested())),
    };
    Some((chain, rule))
}

/// The chain that an instruction leads to.
fn target(instruction: Attrs<'_>) -> Option<String> {
    if instruction.get(NFTA_EXPR_NAME)?.text()? != "immediate" {
        return None;
    }
    let data = instruction.get(NFTA_EXPR_DATA)?.nested();
    match value::read_verdict(data.get(NFTA_IMMEDIATE_DATA)?.nested())? {
        NftVerdict::Jump(chain) | NftVerdict::Goto(chain) => Some(chain.to_string()),
        _ => None,
    }
}

/// Reads messages as chains and rules of iptables-nft.
#[cfg(any(test, fuzzing))]
pub(super) fn read_hostile(messages: netlink::Messages<'_>) -> usize {
    messages
        .map(|message| {
            usize::from(read_chain(&message).is_some()) + usize::from(read_rule(&message).is_some())
        })
        .sum()
}
