//! Loads the kernel modules that a proxy needs, with their dependencies.
//!
//! The tools that load modules use `/lib/modules`, which does not have those of user-mode Linux and is read-only here. So nothing is loaded
//! on demand: everything that a proxy may need is loaded before the program starts.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::sys;

/// The folder of Debian's package, which has a folder per kernel release.
const FOLDER: &str = "/usr/lib/uml/modules";

/// Name prefixes of modules to load.
const FAMILIES: [&str; 6] = ["ip_vs", "ip_set", "nft_", "ipt_", "ip6t_", "iptable_"];
/// Names of modules to load.
#[rustfmt::skip]
const SINGLE: [&str; 36] = [
    "dummy", "veth", "bridge", "br_netfilter", "sctp",
    "nf_conntrack", "nf_conntrack_netlink", "nf_nat", "nf_tables", "nfnetlink", "nfnetlink_acct",
    "ip_tables", "ip6_tables", "ip6table_filter", "ip6table_nat", "ip6table_mangle", "ip6table_raw",
    "xt_MASQUERADE", "xt_addrtype", "xt_comment", "xt_conntrack", "xt_ipvs", "xt_limit", "xt_mark", "xt_multiport", "xt_nat", "xt_nfacct",
    "xt_physdev", "xt_recent", "xt_sctp", "xt_set", "xt_state", "xt_statistic", "xt_tcpudp", "xt_CT", "xt_REDIRECT",
];
/// Modules with these prefixes that a proxy does not need; the SIP one slows down the boot.
const UNWANTED: [&str; 2] = ["ip_vs_pe_sip", "ip_vs_ftp"];

/// Loads all needed modules that exist; returns their number. A kernel does not list built-in ones.
///
/// # Errors
/// If the list of modules cannot be read or one cannot be loaded.
pub(super) fn load_wanted() -> io::Result<usize> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let folder = Path::new(FOLDER).join(release.trim());
    let list = folder.join("modules.dep");
    let text = fs::read_to_string(&list).map_err(named("read", &list))?;
    let order = loading_order(&text, is_wanted);
    for file in &order {
        let file = folder.join(file);
        let opened = File::open(&file).map_err(named("open", &file))?;
        match sys::load_module(&opened, parameters(&file)) {
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
            result => result.map_err(named("load", &file))?,
        }
    }
    Ok(order.len())
}

/// The dummy module creates a device unless this parameter disables it.
fn parameters(file: &Path) -> &'static CStr {
    match file.file_stem().and_then(|stem| stem.to_str()) {
        Some("dummy") => c"numdummies=0",
        _ => c"",
    }
}

fn is_wanted(name: &str) -> bool {
    let in_family = FAMILIES.iter().any(|family| name.starts_with(family));
    (in_family || SINGLE.contains(&name)) && !UNWANTED.contains(&name)
}

/// The files of all needed modules and their dependencies, in the order of loading. `modules.dep` has a line for each module: its file, a
/// colon, and the files of all direct and indirect dependencies, in reverse order of loading.
fn loading_order(list: &str, is_wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let lines: BTreeMap<&str, &str> = list
        .lines()
        .filter_map(|line| line.split_once(':'))
        .collect();
    let mut seen = BTreeSet::new();
    let mut order = Vec::new();
    for (file, needs) in &lines {
        if !is_wanted(&name(file)) {
            continue;
        }
        let needs = needs.split_whitespace().rev();
        order.extend(needs.chain([*file]).filter(|file| seen.insert(*file)));
    }
    order.into_iter().map(PathBuf::from).collect()
}

/// A module's name: that of its file, where hyphens and underscores are the same.
fn name(file: &str) -> String {
    let file = file.rsplit('/').next().unwrap_or(file);
    file.split('.').next().unwrap_or(file).replace('-', "_")
}

fn named(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    let path = path.display().to_string();
    move |error| io::Error::new(error.kind(), format!("cannot {action} {path}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_comes_first_and_once() {
        let list = "a/ip_vs.ko: a/nf_conntrack.ko a/crc.ko\na/ip_vs_rr.ko: a/ip_vs.ko a/nf_conntrack.ko a/crc.ko\n\
                    a/other.ko: a/crc.ko\na/crc.ko:\na/nf_conntrack.ko: a/crc.ko\n";
        let order = loading_order(list, is_wanted);
        let order: Vec<_> = order.iter().map(|file| file.to_str().unwrap()).collect();
        assert_eq!(
            order,
            [
                "a/crc.ko",
                "a/nf_conntrack.ko",
                "a/ip_vs.ko",
                "a/ip_vs_rr.ko"
            ]
        );
    }

    #[test]
    fn names_are_spelled_one_way() {
        assert_eq!(name("kernel/net/nf-thing.ko.xz"), "nf_thing");
        assert!(is_wanted("ip_set_hash_ipport"));
        assert!(!is_wanted("ip_vs_ftp"));
        assert!(!is_wanted("xt_TEE"));
    }
}
