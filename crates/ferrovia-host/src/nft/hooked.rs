//! Every base chain of this namespace, no matter who created it: only read, and only as far as it takes to say what packets may meet there.

use std::collections::BTreeMap;

use ferrovia_core::dialect::nft::{HookPoint, NftVerdict};
use ferrovia_core::family::Family;
use ferrovia_netlink::uapi::nf_tables::{
    NFT_MSG_GETCHAIN, NFT_MSG_GETRULE, NFT_NAT_DNAT, NFTA_CHAIN_HOOK, NFTA_CHAIN_NAME,
    NFTA_CHAIN_POLICY, NFTA_CHAIN_TYPE, NFTA_EXPR_DATA, NFTA_EXPR_NAME, NFTA_HOOK_HOOKNUM,
    NFTA_HOOK_PRIORITY, NFTA_IMMEDIATE_DATA, NFTA_NAT_TYPE, NFTA_RULE_CHAIN, NFTA_RULE_EXPRESSIONS,
};
use ferrovia_netlink::uapi::nf_tables_compat::{NFTA_TARGET_INFO, NFTA_TARGET_NAME};
use ferrovia_netlink::uapi::xt_ct::XT_CT_NOTRACK;
use ferrovia_netlink::{Attr, Attrs, Message};

use super::{Error, Nft, decode, failed, fixed_header, message_type, value};
use crate::survey::chains::{Base, HookedChain, RuleEffects, RuleSketch, Ruleset, TableChains};

/// Instructions that decide nothing and look at nothing.
const UNCONDITIONAL: [&str; 2] = ["counter", "log"];

/// The tables by family and name.
type Tables = BTreeMap<(u8, String), TableChains>;

impl Nft {
    /// The chains of all tables that packets of IPv4 and IPv6 enter by themselves.
    ///
    /// # Errors
    /// If the netlink socket fails; without CAP_NET_ADMIN the kernel refuses.
    pub fn hooked_chains(&mut self) -> Result<Vec<HookedChain>, Error> {
        let all = |w: &mut ferrovia_netlink::Writer| w.raw(&fixed_header(None));
        let mut tables: Tables = self
            .socket
            .dump(message_type(NFT_MSG_GETCHAIN), all, add_chain)
            .map_err(failed("list the chains of all tables"))?;
        let rules: Tables = self
            .socket
            .dump(
                message_type(NFT_MSG_GETRULE),
                all,
                |rules: &mut Tables, message| {
                    add_rule(rules, message);
                },
            )
            .map_err(failed("list the rules of all tables"))?;
        for (table, rules) in rules {
            if let Some(chains) = tables.get_mut(&table) {
                chains.add_rules_of(rules);
            }
        }
        let hooked = tables.iter().flat_map(|((family, table), chains)| {
            chains.hooked(Ruleset::Nftables, families(*family), table)
        });
        Ok(hooked.collect())
    }
}

/// The families whose packets a table sees; none for those of bridges, ARP and devices.
fn families(number: u8) -> &'static [Family] {
    match i32::from(number) {
        libc::NFPROTO_IPV4 => &[Family::V4],
        libc::NFPROTO_IPV6 => &[Family::V6],
        libc::NFPROTO_INET => &Family::ALL,
        _ => &[],
    }
}

/// Which table an object is of, unless it is one that sees no IP packets.
fn table_of(message: &Message<'_>) -> Option<(u8, String)> {
    let family = *message.body.first()?;
    if families(family).is_empty() {
        return None;
    }
    Some((family, decode::table_of(message)?.to_owned()))
}

fn add_chain(tables: &mut Tables, message: &Message<'_>) {
    let Some(table) = table_of(message) else {
        return;
    };
    let attrs = decode::attrs(message);
    let name = attrs.get(NFTA_CHAIN_NAME).and_then(Attr::text);
    if let (Some(name), Some(base)) = (name, base(attrs)) {
        tables.entry(table).or_default().add_base(name, base);
    }
}

fn base(attrs: Attrs<'_>) -> Option<Base> {
    let hook = attrs.get(NFTA_CHAIN_HOOK)?.nested();
    let policy = attrs.get(NFTA_CHAIN_POLICY).and_then(Attr::be32);
    Some(Base {
        point: HookPoint::from_number(hook.get(NFTA_HOOK_HOOKNUM)?.be32()?)?,
        priority: hook.get(NFTA_HOOK_PRIORITY)?.be32()?.cast_signed(),
        is_nat: attrs.get(NFTA_CHAIN_TYPE)?.text()? == "nat",
        drops: policy == Some(libc::NF_DROP as u32),
    })
}

fn add_rule(tables: &mut Tables, message: &Message<'_>) -> Option<()> {
    let table = table_of(message)?;
    let attrs = decode::attrs(message);
    let name = attrs.get(NFTA_RULE_CHAIN)?.text()?;
    let instructions = attrs
        .get(NFTA_RULE_EXPRESSIONS)
        .map_or(Attrs::new(&[]), Attr::nested);
    let mut sketch = RuleSketch::default();
    for instruction in instructions.map(Attr::nested) {
        let name = instruction.get(NFTA_EXPR_NAME).and_then(Attr::text);
        let data = instruction
            .get(NFTA_EXPR_DATA)
            .map_or(Attrs::new(&[]), Attr::nested);
        take(&mut sketch, name.unwrap_or_default(), data);
    }
    tables.entry(table).or_default().add_rule(name, sketch);
    Some(())
}

/// Adds what one instruction does. One that does nothing is taken for a condition.
fn take(sketch: &mut RuleSketch, name: &str, data: Attrs<'_>) {
    let effects = &mut sketch.effects;
    match name {
        "immediate" => {
            let verdict = data.get(NFTA_IMMEDIATE_DATA).map(Attr::nested);
            match verdict.and_then(value::read_verdict) {
                Some(NftVerdict::Accept) => effects.accepts = true,
                Some(NftVerdict::Drop) => effects.refuses = true,
                Some(NftVerdict::Jump(chain) | NftVerdict::Goto(chain)) => {
                    sketch.jumps.push(chain.to_string());
                }
                Some(NftVerdict::Return) | None => {}
            }
        }
        "reject" => effects.refuses = true,
        "masq" => effects.translates_source = true,
        "redir" | "tproxy" => effects.translates_destination = true,
        "nat" => match data.get(NFTA_NAT_TYPE).and_then(Attr::be32) {
            Some(NFT_NAT_DNAT) => effects.translates_destination = true,
            _ => effects.translates_source = true,
        },
        "notrack" => effects.untracks = true,
        "target" => {
            let target = data.get(NFTA_TARGET_NAME).and_then(Attr::text);
            let target = target.unwrap_or_default();
            sketch.effects.add(RuleEffects::of_target(target));
            sketch.effects.untracks |= target == "CT" && is_notrack(data);
        }
        _ => sketch.has_conditions |= !UNCONDITIONAL.contains(&name),
    }
}

/// The first field of the target's data holds its flags.
fn is_notrack(data: Attrs<'_>) -> bool {
    let flags = data
        .get(NFTA_TARGET_INFO)
        .and_then(|info| info.value.first_chunk::<2>());
    flags.is_some_and(|flags| u16::from_ne_bytes(*flags) & XT_CT_NOTRACK != 0)
}

/// Reads messages as chains and rules of others.
#[cfg(any(test, fuzzing))]
pub(super) fn read_hostile(messages: ferrovia_netlink::Messages<'_>) -> usize {
    let (mut tables, mut rules) = (Tables::new(), Tables::new());
    for message in messages {
        add_chain(&mut tables, &message);
        add_rule(&mut rules, &message);
    }
    let all = tables.into_iter().map(|((family, table), mut chains)| {
        if let Some(rules) = rules.remove(&(family, table.clone())) {
            chains.add_rules_of(rules);
        }
        chains.hooked(Ruleset::Nftables, families(family), &table)
    });
    all.map(|hooked| hooked.len()).sum()
}
