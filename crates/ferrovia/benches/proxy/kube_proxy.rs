//! The ruleset kube-proxy's nftables mode would write for the same services, loaded by the tool it uses.
//!
//! A chain for every service with a map of its endpoints, and maps that lead there. Only `nft -f` is timed. kube-proxy itself would also
//! look at every service and list the table's chains each time; both are left out, in its favour.

use std::fmt::Write as _;
use std::time::Duration;

use ferrovia_lab::{Role, Spec, World};

use crate::cluster::{PORT, Size, TARGET_PORT, cluster_ip, full_name, made_up_endpoint};
use crate::feed::feed;
use crate::figures::Samples;

/// How often a service is added.
const ADDITIONS: usize = 5;

/// Chains and maps there are once.
const BASE: &str = "\
add table ip kube-proxy
add chain ip kube-proxy filter-input { type filter hook input priority -110 ; }
add chain ip kube-proxy filter-forward { type filter hook forward priority -110 ; }
add chain ip kube-proxy filter-output { type filter hook output priority -90 ; }
add chain ip kube-proxy nat-prerouting { type nat hook prerouting priority -100 ; }
add chain ip kube-proxy nat-output { type nat hook output priority -100 ; }
add chain ip kube-proxy nat-postrouting { type nat hook postrouting priority 100 ; }
add set ip kube-proxy cluster-ips { type ipv4_addr ; }
add set ip kube-proxy hairpin-connections { type ipv4_addr . ipv4_addr . inet_proto . inet_service ; }
add map ip kube-proxy no-endpoint-services { type ipv4_addr . inet_proto . inet_service : verdict ; }
add map ip kube-proxy service-ips { type ipv4_addr . inet_proto . inet_service : verdict ; }
add chain ip kube-proxy service-endpoints-check
add rule ip kube-proxy service-endpoints-check ip daddr . meta l4proto . th dport vmap @no-endpoint-services
add chain ip kube-proxy cluster-ips-check
add rule ip kube-proxy cluster-ips-check ip daddr @cluster-ips reject
add rule ip kube-proxy cluster-ips-check ip daddr { 10.96.0.0/12 } drop
add rule ip kube-proxy filter-input ct state new jump service-endpoints-check
add rule ip kube-proxy filter-forward ct state new jump service-endpoints-check
add rule ip kube-proxy filter-forward ct state new jump cluster-ips-check
add rule ip kube-proxy filter-output ct state new jump service-endpoints-check
add rule ip kube-proxy filter-output ct state new jump cluster-ips-check
add chain ip kube-proxy services
add rule ip kube-proxy services ip daddr @cluster-ips ip saddr != 10.128.0.0/9 mark set mark or 0x4000
add rule ip kube-proxy services ip daddr . meta l4proto . th dport vmap @service-ips
add rule ip kube-proxy nat-prerouting jump services
add rule ip kube-proxy nat-output jump services
add chain ip kube-proxy masquerading
add rule ip kube-proxy masquerading mark and 0x4000 != 0 mark set mark xor 0x4000 masquerade fully-random
add rule ip kube-proxy masquerading ct status dnat ip saddr . ip daddr . meta l4proto . th dport @hairpin-connections masquerade fully-random
add rule ip kube-proxy nat-postrouting jump masquerading
";

/// What the tool needed.
pub(crate) struct Comparison {
    /// Of which size.
    pub(crate) size: Size,
    /// For all services.
    pub(crate) load: Duration,
    /// For one more.
    pub(crate) addition: Duration,
}

/// Loads the ruleset into a namespace of its own, then adds services to it.
pub(crate) fn measure(size: Size) -> anyhow::Result<Comparison> {
    let world = World::new(Spec {
        ports: vec![TARGET_PORT],
        ..Spec::default()
    })?;
    let mut all = BASE.to_owned();
    (0..size.services).for_each(|service| write_service(&mut all, size, service));
    let load = nft(&world, &all)?;
    let mut additions = Samples::default();
    for service in size.services..size.services + ADDITIONS {
        let mut one = String::new();
        write_service(&mut one, size, service);
        additions.add(nft(&world, &one)?);
    }
    Ok(Comparison {
        size,
        load,
        addition: additions.p50(),
    })
}

/// Writes what there is for each service.
fn write_service(text: &mut String, size: Size, service: usize) {
    // The real prefix is a hash; what counts here is its length.
    let chain = format!("service-{service:08}-{}/tcp/http", full_name(service));
    let address = cluster_ip(service);
    let endpoints: Vec<String> = (0..size.endpoints)
        .map(|n| {
            let endpoint = made_up_endpoint(size, service, n);
            format!("{n} : {endpoint} . {TARGET_PORT}")
        })
        .collect();
    let (count, endpoints) = (endpoints.len(), endpoints.join(" , "));
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "\
add chain ip kube-proxy {chain}
flush chain ip kube-proxy {chain}
add element ip kube-proxy cluster-ips {{ {address} }}
add element ip kube-proxy service-ips {{ {address} . tcp . {PORT} : goto {chain} }}
add rule ip kube-proxy {chain} meta l4proto tcp dnat ip addr . port to numgen random mod {count} map {{ {endpoints} }}
"
    );
}

/// Feeds a text to the tool; answers with the time until it ended.
fn nft(world: &World, text: &str) -> anyhow::Result<Duration> {
    feed(world.exec(Role::Node, "nft").args(["-f", "-"]), text)
}
