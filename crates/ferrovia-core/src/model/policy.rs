//! What of a Service is served on this node, beyond what the API allows: whose external IPs, and how much.
//!
//! Any author of Services may write these lists, and the API limits them only by the size of an object, which is a megabyte. What is over a limit is
//! left out with a warning; the rest of the Service is served.

use std::net::IpAddr;

use ipnet::IpNet;

/// What of a Service is served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServicePolicy {
    pub external_ips: ExternalIpPolicy,
    pub limits: ServiceLimits,
}

/// Which external IPs are served. They let anyone who may write a Service catch traffic to any address, so some clusters forbid them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ExternalIpPolicy {
    #[default]
    Allow,
    Deny,
    /// Those inside these ranges.
    Within(Vec<IpNet>),
}

impl ExternalIpPolicy {
    /// An address may be served as an external IP.
    pub(crate) fn allows(&self, ip: IpAddr) -> bool {
        match self {
            Self::Allow => true,
            Self::Deny => false,
            Self::Within(ranges) => ranges.iter().any(|range| range.contains(&ip)),
        }
    }
}

/// The most ports of all Services together: in nftables mode each has a number of 17 bits.
pub(crate) const MOST_PORTS: usize = 1 << 17;

/// How much of a Service is served. A frontend is a pair of an address and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceLimits {
    /// Frontends of a Service's external IPs, and as many of its load balancers' addresses.
    pub frontends_per_service: usize,
    /// Ports of all Services in a namespace.
    pub ports_per_namespace: usize,
    /// Frontends of external IPs of all Services in a namespace.
    pub external_ip_frontends_per_namespace: usize,
    /// Source ranges of a Service in each family.
    pub source_ranges_per_service: usize,
}

impl Default for ServiceLimits {
    /// More than any Service needs that works with an API server, where about 10,000 ports fill an object. A frontend takes less than a
    /// kilobyte of memory, so that a namespace can take 32 MB. One namespace may have a quarter of the ports of all: 5,000 Services with
    /// six each.
    fn default() -> Self {
        Self {
            frontends_per_service: 16_384,
            ports_per_namespace: 32_768,
            external_ip_frontends_per_namespace: 32_768,
            source_ranges_per_service: 4_096,
        }
    }
}
