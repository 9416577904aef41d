//! Whose the chains with kube-proxy's names are: an empty chain of ours stands beside those that we wrote.

use std::env;

use ferrovia_core::dialect::iptables::{MARK_CHAIN, MARK_TABLE};
use ferrovia_core::family::Family;

use super::leftovers::RemovalFailure;
use super::legacy::legacy_tables;
use super::tool::{Backend, Tool};
use crate::nft::Nft;

/// Marks the rules of these tools as written by us. Does nothing where they are.
///
/// # Errors
/// If a tool fails, or the kernel does not show its chains.
pub fn mark(backend: Backend, families: &[Family]) -> Result<(), RemovalFailure> {
    let path = env::var_os("PATH").unwrap_or_default();
    for family in families {
        if !is_marked(*family, backend)?
            && let Some(tool) = Tool::find(&path, *family, backend)
        {
            tool.restore(format!("*{MARK_TABLE}\n:{MARK_CHAIN} - [0:0]\nCOMMIT\n"))?;
        }
    }
    Ok(())
}

/// Whether we wrote any of the iptables rules of this network namespace.
///
/// # Errors
/// If the kernel does not show its chains.
pub fn is_any_marked() -> Result<bool, RemovalFailure> {
    for family in Family::ALL {
        for backend in [Backend::Nft, Backend::Legacy] {
            if is_marked(family, backend)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Whether we wrote the rules of one ruleset. A tool that does not say which it is counts for both.
pub(super) fn is_marked(family: Family, backend: Backend) -> Result<bool, RemovalFailure> {
    Ok((backend != Backend::Legacy && is_marked_nft(family)?)
        || (backend != Backend::Nft && is_marked_legacy(family)?))
}

fn is_marked_nft(family: Family) -> Result<bool, RemovalFailure> {
    let Some(mut nft) = Nft::open_if_there()? else {
        return Ok(false);
    };
    let tables = nft.compat_tables(family, &[MARK_TABLE])?;
    let mut chains = tables.iter().flat_map(|table| &table.chains);
    Ok(chains.any(|chain| chain.name == MARK_CHAIN))
}

fn is_marked_legacy(family: Family) -> Result<bool, RemovalFailure> {
    let tables = legacy_tables(family).map_err(|cause| RemovalFailure::Legacy { family, cause })?;
    let mut marking = tables.iter().filter(|table| table.name == MARK_TABLE);
    Ok(marking.any(|table| table.chains.iter().any(|(chain, _)| chain == MARK_CHAIN)))
}
