//! `ferrovia cleanup`

use clap::Args;
use ferrovia_core::dialect::nft::{Op, Transaction};
use ferrovia_core::family::Family;
use ferrovia_core::plan::nft::layout::{PREDECESSORS, TABLE};
use ferrovia_host::nft::{Error, Nft};

/// Flags of `ferrovia cleanup`.
#[derive(Debug, Args)]
pub(super) struct CleanupArgs {
    /// Remove what a kube-proxy left behind as well: its nftables tables and its iptables chains
    #[arg(long)]
    kube_proxy: bool,
}

pub(super) fn cleanup(args: &CleanupArgs) -> anyhow::Result<()> {
    let mut nft = Nft::open()?;
    let tables: Vec<&'static str> = if args.kube_proxy {
        [&[TABLE], &PREDECESSORS[..]].concat()
    } else {
        vec![TABLE]
    };
    let mut removed = 0;
    for family in Family::ALL {
        for table in &tables {
            if delete(&mut nft, family, table)? {
                println!("removed {family} table {table}");
                removed += 1;
            }
        }
    }
    if args.kube_proxy {
        for tool in ferrovia_host::iptables::remove_leftovers()?
            .tools
            .iter()
            .filter(|tool| !tool.is_empty())
        {
            println!("{tool}");
            removed += 1;
        }
    }
    if removed == 0 {
        println!("nothing to remove in this network namespace");
    }
    Ok(())
}

fn delete(nft: &mut Nft, family: Family, table: &'static str) -> Result<bool, Error> {
    if !nft.observe(family, table, &[])?.exists {
        return Ok(false);
    }
    nft.apply(&Transaction {
        family,
        table: table.into(),
        ops: vec![Op::DeleteTable],
        notes: Vec::new(),
    })?;
    Ok(true)
}
