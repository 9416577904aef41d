//! Large tables: bulk deletes, time and memory.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use ferrovia_core::desired::Frontend;
use ferrovia_core::family::Family;
use ferrovia_core::plan::conntrack::Cleanup;
use ferrovia_host::conntrack::{FlowCleaner, RemovedFlows};
use ferrovia_lab::conntrack::cleanup::{at, cleanup, port};
use ferrovia_lab::conntrack::{ConntrackEntry, create};

use crate::support::{entries, in_namespace, peak_memory, room};

const SERVICE: &str = "10.96.0.10:53";
const GONE: &str = "10.244.1.1:53";
const KEPT: &str = "10.244.1.2:53";

/// The `n`th client.
fn client(n: usize) -> SocketAddr {
    let ports = 50_000;
    let ip = Ipv4Addr::from(0x0a80_0000 + (n / ports) as u32);
    SocketAddr::new(ip.into(), 1000 + (n % ports) as u16)
}

fn service_lost_an_endpoint() -> Cleanup {
    let dns = |endpoints: &[SocketAddr]| {
        let frontends = [Frontend::ClusterIp(at(SERVICE))];
        vec![port("dns", &frontends, endpoints)]
    };
    let (gone, kept) = (at(GONE), at(KEPT));
    cleanup(Family::V4, dns(&[gone, kept]), dns(&[kept]), &[])
}

#[test]
fn stale_flows_are_found_among_many_without_holding_them() {
    in_namespace(|| {
        let all = 100_000.min(room() / 2);
        let stale = all / 50;
        // Half of the table is the service's, so half is sent even if only that is requested.
        create((0..all).map(|n| {
            let by = if n % 50 == 0 { GONE } else { KEPT };
            let to = if n % 2 == 0 { at(SERVICE) } else { at(KEPT) };
            ConntrackEntry::udp(client(n), to, at(by))
        }))
        .unwrap();
        let cleanup = service_lost_an_endpoint();
        let mut cleaner = FlowCleaner::open().unwrap();
        let mut removed = RemovedFlows::default();
        let start = Instant::now();
        let peak = peak_memory(|| removed = cleaner.clean(&cleanup, |_| {}).unwrap());
        println!("{stale} of {all} flows removed in {:?}", start.elapsed());
        assert_eq!(removed.endpoint_gone, stale);
        assert_eq!(entries(), all - stale);
        assert!(peak < 256 << 10, "{peak} bytes");
    });
}

#[test]
fn a_crowd_of_stale_flows_goes_as_one() {
    in_namespace(|| {
        let all = 40_000.min(room() / 2);
        let kept = 10;
        create((0..all + kept).map(|n| {
            let by = if n < all { GONE } else { KEPT };
            ConntrackEntry::udp(client(n), at(SERVICE), at(by))
        }))
        .unwrap();
        let mut cleaner = FlowCleaner::open().unwrap();
        let removed = cleaner.clean(&service_lost_an_endpoint(), |_| {}).unwrap();
        assert_eq!(removed.endpoint_gone, all);
        assert_eq!(entries(), kept);
    });
}
