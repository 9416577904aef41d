//! The ranges of a ServiceCIDR.

use ipnet::IpNet;

use super::address::parse_cidr;
use super::name::shown_name;
use super::{Warning, Warnings, excerpt};
use crate::wire::{self, Kind};

/// The ranges that cluster IPs are taken from, as far as they can be read.
pub(crate) fn service_cidrs(object: &wire::ServiceCidr) -> (Box<[IpNet]>, Vec<Warning>) {
    let shown = shown_name(&object.metadata.name);
    let mut warnings = Warnings::new(Kind::ServiceCidr, &shown);
    let mut found = Vec::new();
    for (i, text) in object.spec.cidrs.iter().enumerate() {
        let problem = match parse_cidr(text) {
            // What lies in these ranges and belongs to no Service is dropped, so this one would cut the node off.
            Some(net) if net.prefix_len() == 0 => format!("{net} is every address; it is ignored"),
            Some(net) => {
                found.push(net);
                continue;
            }
            None => format!("{} is not a range", excerpt(text)),
        };
        warnings.add(format!("spec.cidrs[{i}]"), problem);
    }
    (found.into(), warnings.into_vec())
}
