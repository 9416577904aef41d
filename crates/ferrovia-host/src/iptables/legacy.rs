//! The chains of `iptables-legacy`, read without the tool. They cannot be changed this way without its lock and its knowledge of every match.

use std::fs;
use std::io;

use ferrovia_core::family::Family;
use socket2::{Domain, Socket, Type};

use crate::sockopt;

/// `IPT_SO_GET_INFO` and `IPT_SO_GET_ENTRIES`, the same for IPv6.
const GET_INFO: libc::c_int = 64;
const GET_ENTRIES: libc::c_int = 65;
/// A table's name in both structures.
const NAME_LEN: usize = 32;
/// `struct ipt_getinfo`, and where `size` is in it.
const INFO_LEN: usize = 84;
const INFO_SIZE: usize = 80;
/// Where the entries begin in `struct ipt_get_entries`: they are aligned to eight bytes.
const ENTRIES: usize = 40;
/// The name of the target that marks the beginning of a chain, and where the chain's name is in it.
const CHAIN_MARK: &str = "ERROR";
const TARGET_NAME: std::ops::Range<usize> = 2..31;
const CHAIN_NAME: std::ops::Range<usize> = 32..62;
/// A larger table is not read: it would take more memory than the answer is worth. 100,000 services have about half of it.
const LARGEST: usize = 256 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LegacyTable {
    pub name: String,
    /// Its user-defined chains, each with the number of its rules.
    pub chains: Vec<(String, usize)>,
}

/// The tables of one family that are in use. Nothing is loaded by asking. Needs CAP_NET_ADMIN if there are any.
///
/// # Errors
/// If the kernel does not show them.
pub fn legacy_tables(family: Family) -> io::Result<Vec<LegacyTable>> {
    let names = table_names(family)?;
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let domain = match family {
        Family::V4 => Domain::IPV4,
        Family::V6 => Domain::IPV6,
    };
    let socket = Socket::new(domain, Type::DGRAM.cloexec(), None)?;
    let table = |name: String| {
        let entries = read_entries(&socket, family, &name)?;
        let chains = chains(&entries, Layout::of(family));
        Ok(LegacyTable { name, chains })
    };
    names.into_iter().map(table).collect()
}

/// The names of the tables that are in use.
pub(super) fn table_names(family: Family) -> io::Result<Vec<String>> {
    // Not /proc/net, which is the view of the process's first thread: we may be in another namespace than that.
    let list = match family {
        Family::V4 => "/proc/thread-self/net/ip_tables_names",
        Family::V6 => "/proc/thread-self/net/ip6_tables_names",
    };
    match fs::read_to_string(list) {
        Ok(names) => Ok(names.lines().map(str::to_owned).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn read_entries(socket: &Socket, family: Family, table: &str) -> io::Result<Vec<u8>> {
    let level = match family {
        Family::V4 => libc::SOL_IP,
        Family::V6 => libc::SOL_IPV6,
    };
    if table.len() >= NAME_LEN {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut info = vec![0; INFO_LEN];
    info[..table.len()].copy_from_slice(table.as_bytes());
    sockopt::get(socket, level, GET_INFO, &mut info)?;
    let size = number(&info, INFO_SIZE).unwrap_or(0) as usize;
    if size > LARGEST {
        return Err(io::Error::other(format!(
            "the table {table} has {size} bytes, too many to read"
        )));
    }
    let mut entries = vec![0; ENTRIES + size];
    entries[..table.len()].copy_from_slice(table.as_bytes());
    entries[NAME_LEN..NAME_LEN + 4].copy_from_slice(&(size as u32).to_ne_bytes());
    sockopt::get(socket, level, GET_ENTRIES, &mut entries)?;
    Ok(entries.split_off(ENTRIES))
}

/// Where the two offsets of an entry are: `struct ipt_entry` and `struct ip6t_entry` differ in the addresses before them.
#[derive(Clone, Copy)]
struct Layout {
    target_offset: usize,
    next_offset: usize,
}

impl Layout {
    fn of(family: Family) -> Self {
        let target_offset = match family {
            Family::V4 => 88,
            Family::V6 => 140,
        };
        Self {
            target_offset,
            next_offset: target_offset + 2,
        }
    }
}

/// The user-defined chains with the number of their rules. Built-in chains come first and have no mark; the last mark ends the table.
fn chains(entries: &[u8], layout: Layout) -> Vec<(String, usize)> {
    let mut chains: Vec<(String, usize)> = Vec::new();
    let mut rest = entries;
    while let (Some(target), Some(next)) = (
        short(rest, layout.target_offset),
        short(rest, layout.next_offset),
    ) {
        let target = rest.get(usize::from(target)..).unwrap_or_default();
        if text(target.get(TARGET_NAME)) == CHAIN_MARK {
            chains.push((text(target.get(CHAIN_NAME)), 0));
        } else if let Some((_, rules)) = chains.last_mut() {
            *rules += 1;
        }
        match rest.get(usize::from(next)..) {
            Some(behind) if next > 0 => rest = behind,
            _ => break,
        }
    }
    chains.retain(|(name, _)| name != CHAIN_MARK);
    for (_, rules) in &mut chains {
        // Every chain ends with a rule of the tool's own, which returns.
        *rules = rules.saturating_sub(1);
    }
    chains
}

fn text(bytes: Option<&[u8]>) -> String {
    let bytes = bytes.unwrap_or_default();
    let end = bytes.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default())
        .into_owned()
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anything_can_be_read_as_entries() {
        for family in Family::ALL {
            for length in 0..300 {
                for byte in [0, 1, 88, 140, 255] {
                    chains(&vec![byte; length], Layout::of(family));
                }
            }
        }
    }
}
