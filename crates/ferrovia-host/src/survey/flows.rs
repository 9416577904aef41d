//! How full connection tracking's table is, and what it could not do.

use std::fs;
use std::io;
use std::str::FromStr;

use super::settings;

/// What connection tracking counted since the namespace was made, over all processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConntrackTotals {
    /// New flows that could not be entered, because another with the same addresses was quicker or the table was full.
    pub insert_failed: u64,
    /// Packets dropped because they could not be tracked.
    pub dropped: u64,
    /// Flows thrown out before their time to make room.
    pub early_dropped: u64,
    /// Packets that belong to no flow and begin none.
    pub invalid: u64,
}

/// How many flows are tracked, and how many can be.
///
/// # Errors
/// If the kernel does not say: connection tracking may not be loaded.
pub fn fill() -> io::Result<(u64, u64)> {
    Ok((
        number("net/netfilter/nf_conntrack_count")?,
        number("net/netfilter/nf_conntrack_max")?,
    ))
}

/// How many lists the kernel's table of flows has, which all network namespaces share.
///
/// # Errors
/// If the kernel does not say: connection tracking may not be loaded.
pub fn buckets() -> io::Result<usize> {
    number("net/netfilter/nf_conntrack_buckets")
}

fn number<T: FromStr>(name: &str) -> io::Result<T> {
    let text = settings::read(name)?;
    text.parse()
        .map_err(|_| io::Error::other(format!("the value of {name} is not a number")))
}

/// What was counted.
///
/// # Errors
/// If the kernel does not say.
pub fn totals() -> io::Result<ConntrackTotals> {
    let table = fs::read_to_string("/proc/thread-self/net/stat/nf_conntrack")?;
    parse(&table).ok_or_else(|| {
        io::Error::other("cannot parse /proc/net/stat/nf_conntrack: unknown columns")
    })
}

/// A line of names, then one a processor of hexadecimal numbers. Which columns there are depends on the kernel.
fn parse(table: &str) -> Option<ConntrackTotals> {
    let mut lines = table.lines();
    let names: Vec<&str> = lines.next()?.split_whitespace().collect();
    let column = |name| names.iter().position(|column| *column == name);
    let columns = [
        column("insert_failed")?,
        column("drop")?,
        column("early_drop")?,
        column("invalid")?,
    ];
    let mut sums = [0_u64; 4];
    for line in lines {
        let fields: Vec<&str> = line.split_whitespace().collect();
        for (sum, column) in sums.iter_mut().zip(columns) {
            let number = fields
                .get(column)
                .map(|field| u64::from_str_radix(field, 16));
            *sum = sum.saturating_add(number.and_then(Result::ok).unwrap_or_default());
        }
    }
    let [insert_failed, dropped, early_dropped, invalid] = sums;
    Some(ConntrackTotals {
        insert_failed,
        dropped,
        early_dropped,
        invalid,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_summed_up() {
        let table = "entries clashres found new invalid ignore delete chainlength insert insert_failed drop early_drop icmp_error\n\
                     0000000a 0 0 0 00000010 0 0 0 0 00000001 00000002 00000003 0\n\
                     0000000a 0 0 0 00000001 0 0 0 0 0000000f 00000000 00000000 0\n";
        let expected = ConntrackTotals {
            insert_failed: 16,
            dropped: 2,
            early_dropped: 3,
            invalid: 17,
        };
        assert_eq!(parse(table), Some(expected));
        assert_eq!(parse("entries found\n0 0\n"), None);
        assert_eq!(parse(""), None);
    }
}
