//! The addresses of a Service, and who may use them.
//!
//! An address is served only if it can be read and is neither loopback, link-local, multicast nor unspecified.

use std::collections::HashSet;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::family::{Family, PerFamily};
use crate::model::address::{parse_cidr, parse_ip, refused};
use crate::model::{ExternalIpPolicy, ServiceLimits, Warnings, excerpt};
use crate::wire;

/// As many combinations of a load balancer's address, a port and a source range as one Service may have.
const MAX_ALLOWANCES: usize = 1 << 16;

/// The cluster IP of each family. The lists of addresses and of families belong together, entry by entry.
pub(super) fn cluster_ips(
    spec: &wire::ServiceSpec,
    warnings: &mut Warnings<'_>,
) -> PerFamily<Option<IpAddr>> {
    // Objects from before dual-stack, and manifests, have only the singular field.
    let listed = !spec.cluster_ips.is_empty();
    let texts = if listed {
        spec.cluster_ips.as_slice()
    } else {
        std::slice::from_ref(&spec.cluster_ip)
    };
    let mut found = PerFamily::<Option<IpAddr>>::default();
    for (i, text) in texts.iter().enumerate() {
        let field = || {
            if listed {
                format!("spec.clusterIPs[{i}]")
            } else {
                "spec.clusterIP".into()
            }
        };
        let Some(ip) = frontend_ip(field, text, warnings) else {
            continue;
        };
        let family = Family::of(ip);
        // Where families are listed they decide: an address that has no family beside it is not in use.
        let listed_family = spec.ip_families.get(i).map(String::as_str);
        if !spec.ip_families.is_empty() && listed_family != Some(family.name()) {
            warnings.add(
                field(),
                format!("{ip} does not match spec.ipFamilies[{i}]; it is not served"),
            );
        } else if found[family].is_none() {
            found[family] = Some(ip);
        } else {
            warnings.add(
                field(),
                format!("{ip} is a second {family} cluster IP; it is not served"),
            );
        }
    }
    found
}

/// External IPs, each once. Blank entries are common in generated manifests and mean nothing.
pub(super) fn external_ips(spec: &wire::ServiceSpec, warnings: &mut Warnings<'_>) -> Vec<IpAddr> {
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    for (i, text) in spec
        .external_ips
        .iter()
        .enumerate()
        .filter(|(_, text)| !text.trim().is_empty())
    {
        let ip = frontend_ip(|| format!("spec.externalIPs[{i}]"), text, warnings);
        found.extend(ip.filter(|ip| seen.insert(*ip)));
    }
    found
}

/// The addresses that the load balancer's packets arrive with, each once.
pub(super) fn load_balancer_ips(
    status: &wire::ServiceStatus,
    warnings: &mut Warnings<'_>,
) -> Vec<IpAddr> {
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    for (i, ingress) in status.load_balancer.ingress.iter().enumerate() {
        // In mode Proxy packets arrive with the node's address; the listed one is not ours to take.
        let is_vip = ingress.ip_mode.as_deref().is_none_or(|mode| mode == "VIP");
        if is_vip && !ingress.ip.is_empty() {
            let ip = frontend_ip(
                || format!("status.loadBalancer.ingress[{i}].ip"),
                &ingress.ip,
                warnings,
            );
            found.extend(ip.filter(|ip| seen.insert(*ip)));
        }
    }
    found
}

/// The ranges that can be read, and whether there was one that cannot.
pub(super) fn source_ranges(
    spec: &wire::ServiceSpec,
    warnings: &mut Warnings<'_>,
) -> (Vec<IpNet>, bool) {
    let mut found = Vec::new();
    let mut any_bad = false;
    for (i, text) in spec.load_balancer_source_ranges.iter().enumerate() {
        match parse_cidr(text.trim()) {
            Some(net) => found.push(net),
            None => {
                any_bad = true;
                let problem = format!("{} is not a range", excerpt(text));
                warnings.add(format!("spec.loadBalancerSourceRanges[{i}]"), problem);
            }
        }
    }
    (found, any_bad)
}

/// An empty list of ranges lets everyone in. Where it is empty only because a range is invalid, all sources are refused instead.
pub(super) fn withhold_unprotected(
    ips: &mut Vec<IpAddr>,
    ranges: &[IpNet],
    warnings: &mut Warnings<'_>,
) {
    let has_range =
        PerFamily::from_fn(|family| ranges.iter().any(|net| Family::of_net(net) == family));
    let is_protected = |ip: &IpAddr| has_range[Family::of(*ip)];
    for ip in ips.iter().filter(|ip| !is_protected(ip)) {
        let problem = format!("no range of its family can be read, so {ip} is not served");
        warnings.add("spec.loadBalancerSourceRanges", problem);
    }
    ips.retain(is_protected);
}

/// Leaves out the last source ranges of a family where there are more than one Service may have, which lets fewer clients in. Some of each family
/// always stay: none would let everyone in.
pub(super) fn limit_ranges(
    ranges: &mut Vec<IpNet>,
    limits: &ServiceLimits,
    warnings: &mut Warnings<'_>,
) {
    let most = limits.source_ranges_per_service.max(1);
    let count = ranges.len();
    let mut left = PerFamily::from_fn(|_| most);
    ranges.retain(|range| {
        let left = &mut left[Family::of_net(range)];
        let fits = *left > 0;
        *left = left.saturating_sub(1);
        fits
    });
    if ranges.len() < count {
        let problem = format!(
            "{count} source ranges are too many for one Service; only the first {most} of each family are used, which is the limit"
        );
        warnings.add("spec.loadBalancerSourceRanges", problem);
    }
}

/// Leaves out the last addresses where they, with ports and source ranges, would be more than one Service may have.
pub(super) fn limit_guarded(
    ips: &mut Vec<IpAddr>,
    field: &str,
    ports: usize,
    ranges: usize,
    warnings: &mut Warnings<'_>,
) {
    let most = MAX_ALLOWANCES / ports.max(1) / ranges.max(1);
    if ips.len() > most {
        let problem = format!(
            "{} addresses with {ports} ports and {ranges} source ranges are too many for one Service; only the first {most} are served, as the limit is {MAX_ALLOWANCES} combinations",
            ips.len()
        );
        warnings.add(field, problem);
        ips.truncate(most);
    }
}

/// Leaves out the last addresses where they, with ports, would be more frontends than one Service may have.
pub(super) fn limit(
    ips: &mut Vec<IpAddr>,
    field: &str,
    ports: usize,
    limits: &ServiceLimits,
    warnings: &mut Warnings<'_>,
) {
    let limit = limits.frontends_per_service;
    let most = limit / ports.max(1);
    if ips.len() > most {
        let problem = format!(
            "{} addresses with {ports} ports are too many for one Service; only the first {most} are served, as the limit is {limit} frontends",
            ips.len()
        );
        warnings.add(field, problem);
        ips.truncate(most);
    }
}

/// Leaves out external IPs that this node does not serve.
pub(super) fn withhold_denied(
    ips: &mut Vec<IpAddr>,
    policy: &ExternalIpPolicy,
    warnings: &mut Warnings<'_>,
) {
    ips.retain(|ip| {
        let is_allowed = policy.allows(*ip);
        if !is_allowed {
            let problem = format!("{ip} is not allowed as an external IP here; it is not served");
            warnings.add("spec.externalIPs", problem);
        }
        is_allowed
    });
}

/// Reads an address that clients use, unless it is one that must never reach the kernel. The field's name is for warnings; addresses are
/// many and bad ones few.
fn frontend_ip(
    field: impl Fn() -> String,
    text: &str,
    warnings: &mut Warnings<'_>,
) -> Option<IpAddr> {
    let Some(ip) = parse_ip(text) else {
        warnings.add(
            field(),
            format!("{} is not an address; it is not served", excerpt(text)),
        );
        return None;
    };
    if let Some(reason) = refused(ip) {
        warnings.add(field(), format!("{ip} is {reason}; it is not served"));
        return None;
    }
    Some(ip)
}
