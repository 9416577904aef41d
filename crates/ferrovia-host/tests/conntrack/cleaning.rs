//! Flows go and stay as they should.

use std::net::{IpAddr, SocketAddr};

use ferrovia_core::desired::Frontend;
use ferrovia_core::family::Family;
use ferrovia_core::plan::conntrack::Cleanup;
use ferrovia_host::conntrack::{FlowCleaner, RemovedFlows};
use ferrovia_lab::conntrack::cleanup::{at, cleanup, port};
use ferrovia_lab::conntrack::{ConntrackEntry, SCTP, TCP, create};

use crate::support::{entries, in_namespace, udp_flows};

/// Addresses of a family, so that every test runs in both.
struct Places {
    family: Family,
    cluster_ip: SocketAddr,
    external_ip: SocketAddr,
    vip: SocketAddr,
    node: IpAddr,
    remote: IpAddr,
    client: IpAddr,
    endpoints: [SocketAddr; 3],
    other_service: SocketAddr,
}

impl Places {
    fn of(family: Family) -> Self {
        let pick = |v4: &str, v6: &str| at(if family == Family::V4 { v4 } else { v6 });
        Self {
            family,
            cluster_ip: pick("10.96.0.10:53", "[fd96::10]:53"),
            external_ip: pick("192.0.2.53:53", "[2001:db8::53]:53"),
            vip: pick("203.0.113.53:53", "[2001:db8:1::53]:53"),
            node: pick("198.51.100.10:0", "[2001:db8:2::10]:0").ip(),
            remote: pick("198.51.100.99:0", "[2001:db8:2::99]:0").ip(),
            client: pick("10.244.0.9:0", "[fd44::9]:0").ip(),
            endpoints: [
                pick("10.244.1.1:5353", "[fd44:1::1]:5353"),
                pick("10.244.1.2:5353", "[fd44:1::2]:5353"),
                pick("10.244.1.3:5353", "[fd44:1::3]:5353"),
            ],
            other_service: pick("10.96.0.11:53", "[fd96::11]:53"),
        }
    }

    fn frontends(&self) -> [Frontend; 4] {
        [
            Frontend::ClusterIp(self.cluster_ip),
            Frontend::ExternalIp(self.external_ip),
            Frontend::LoadBalancer(self.vip),
            Frontend::NodePort(30053),
        ]
    }

    /// What must be cleaned up when the service's endpoints change.
    fn cleanup(&self, old: &[SocketAddr], new: &[SocketAddr]) -> Cleanup {
        let port = |endpoints| port("dns", &self.frontends(), endpoints);
        cleanup(self.family, vec![port(old)], vec![port(new)], &[self.node])
    }
}

/// A table of flows, each from a port of its own.
#[derive(Default)]
struct Flows {
    go: Vec<ConntrackEntry>,
    stay: Vec<ConntrackEntry>,
}

impl Flows {
    fn entry(
        &self,
        places: &Places,
        sent_to: SocketAddr,
        answered_by: SocketAddr,
    ) -> ConntrackEntry {
        let number = self.go.len() + self.stay.len();
        let client = SocketAddr::new(places.client, 1000 + number as u16);
        ConntrackEntry::udp(client, sent_to, answered_by)
    }

    fn goes(&mut self, places: &Places, sent_to: SocketAddr, answered_by: SocketAddr) {
        let entry = self.entry(places, sent_to, answered_by);
        self.go.push(entry);
    }

    fn stays(&mut self, places: &Places, sent_to: SocketAddr, answered_by: SocketAddr) {
        let entry = self.entry(places, sent_to, answered_by);
        self.stay.push(entry);
    }

    /// Creates them, with twins of other protocols that must stay, cleans up and compares.
    fn check(self, cleanup: &Cleanup) -> RemovedFlows {
        let twin = |protocol| move |entry: &ConntrackEntry| ConntrackEntry { protocol, ..*entry };
        let all: Vec<_> = self.go.iter().chain(&self.stay).copied().collect();
        let twins = all.iter().map(twin(TCP)).chain(all.iter().map(twin(SCTP)));
        create(all.iter().copied().chain(twins)).unwrap();
        let removed = clean(cleanup);
        let mut expected: Vec<_> = self
            .stay
            .iter()
            .map(|entry| (entry.sent_to, entry.answered_by))
            .collect();
        expected.sort_unstable();
        assert_eq!(udp_flows(cleanup.family()), expected);
        assert_eq!(entries(), expected.len() + 2 * all.len(), "TCP and SCTP");
        assert_eq!(removed.total(), self.go.len());
        removed
    }
}

fn clean(cleanup: &Cleanup) -> RemovedFlows {
    FlowCleaner::open().unwrap().clean(cleanup, |_| {}).unwrap()
}

fn in_both_families(test: fn(&Places)) {
    for family in Family::ALL {
        in_namespace(move || test(&Places::of(family)));
    }
}

#[test]
fn flows_to_an_endpoint_that_went_go_and_others_stay() {
    in_both_families(|places| {
        let [gone, kept, new] = places.endpoints;
        let node_port = SocketAddr::new(places.node, 30053);
        let mut flows = Flows::default();
        for sent_to in [places.cluster_ip, places.external_ip, places.vip, node_port] {
            flows.goes(places, sent_to, gone);
            flows.goes(places, sent_to, SocketAddr::new(kept.ip(), 53));
            flows.goes(places, sent_to, sent_to);
            flows.stays(places, sent_to, kept);
            flows.stays(places, sent_to, new);
        }
        // Not a port of the service, another machine's port of the same number, another service, and no service at all.
        flows.stays(places, SocketAddr::new(places.cluster_ip.ip(), 54), gone);
        let remote = SocketAddr::new(places.remote, 30053);
        flows.stays(places, remote, remote);
        flows.stays(places, places.other_service, gone);
        flows.stays(places, gone, gone);
        let removed = flows.check(&places.cleanup(&[gone, kept], &[kept, new]));
        assert_eq!((removed.endpoint_gone, removed.untranslated), (8, 4));
    });
}

#[test]
fn flows_from_before_the_first_endpoint_go() {
    in_both_families(|places| {
        let [first, ..] = places.endpoints;
        let mut flows = Flows::default();
        flows.goes(places, places.cluster_ip, places.cluster_ip);
        flows.goes(places, places.vip, places.vip);
        flows.stays(places, places.other_service, places.other_service);
        let removed = flows.check(&places.cleanup(&[], &[first]));
        assert_eq!(removed.untranslated, 2);
    });
}

#[test]
fn flows_to_a_closed_node_port_go() {
    in_both_families(|places| {
        let [one, two, _] = places.endpoints;
        let open = port("dns", &places.frontends(), &[one, two]);
        let closed = port("dns", &places.frontends()[..3], &[one, two]);
        let cleanup = cleanup(places.family, vec![open], vec![closed], &[places.node]);
        let node_port = SocketAddr::new(places.node, 30053);
        let mut flows = Flows::default();
        flows.goes(places, node_port, one);
        flows.stays(places, node_port, node_port);
        flows.stays(places, places.cluster_ip, one);
        let removed = flows.check(&cleanup);
        assert_eq!(removed.service_gone, 1);
    });
}

/// Many services lose an endpoint; the numbers of their ports are made of their own.
fn many(places: &Places, port_of: fn(u16) -> u16) {
    let [gone, kept, _] = places.endpoints;
    let address = |n: u16| {
        let ip = match places.cluster_ip.ip() {
            IpAddr::V4(ip) => IpAddr::V4((ip.to_bits() + u32::from(n)).into()),
            IpAddr::V6(ip) => IpAddr::V6((ip.to_bits() + u128::from(n)).into()),
        };
        SocketAddr::new(ip, port_of(n))
    };
    let ports = |endpoints: &[SocketAddr]| {
        let one = |n| {
            port(
                &format!("s{n}"),
                &[Frontend::ClusterIp(address(n))],
                endpoints,
            )
        };
        (0..50).map(one).collect()
    };
    let cleanup = cleanup(places.family, ports(&[gone, kept]), ports(&[kept]), &[]);
    let mut flows = Flows::default();
    for n in 0..50 {
        flows.goes(places, address(n), gone);
        flows.stays(places, address(n), kept);
    }
    flows.stays(places, address(50), gone);
    flows.check(&cleanup);
}

#[test]
fn many_services_with_one_port_are_cleaned() {
    in_both_families(|places| many(places, |_| 53));
}

#[test]
fn many_services_with_many_ports_are_cleaned() {
    in_both_families(|places| many(places, |n| 1000 + n));
}

#[test]
fn what_is_spared_stays() {
    in_namespace(|| {
        let places = Places::of(Family::V4);
        let [gone, kept, _] = places.endpoints;
        let cleanup = places.cleanup(&[gone, kept], &[kept]);
        let client = SocketAddr::new(places.client, 1000);
        create([ConntrackEntry::udp(client, places.vip, gone)].into_iter()).unwrap();
        let mut cleaner = FlowCleaner::open().unwrap();
        let removed = cleaner.clean(&cleanup, Vec::clear).unwrap();
        assert_eq!((removed.total(), entries()), (0, 1));
        let removed = cleaner.clean(&cleanup, |_| {}).unwrap();
        assert_eq!((removed.total(), entries()), (1, 0));
    });
}

#[test]
fn one_frontend_alone_is_cleaned_too() {
    in_both_families(|places| {
        let [gone, kept, _] = places.endpoints;
        let dns = |endpoints| vec![port("dns", &places.frontends()[..1], endpoints)];
        let cleanup = cleanup(places.family, dns(&[gone, kept]), dns(&[kept]), &[]);
        let mut flows = Flows::default();
        flows.goes(places, places.cluster_ip, gone);
        flows.stays(places, places.cluster_ip, kept);
        flows.stays(places, places.vip, gone);
        flows.check(&cleanup);
    });
}

/// How often the kernel's table is walked for a change of the service with all its frontends.
fn looks(places: &Places, old: &[SocketAddr], new: &[SocketAddr]) -> u64 {
    let mut cleaner = FlowCleaner::open().unwrap();
    let cleanup = places.cleanup(old, new);
    cleaner.clean(&cleanup, |_| {}).unwrap();
    cleaner.looks()
}

#[test]
fn table_is_walked_once_or_not_at_all() {
    in_both_families(|places| {
        let [gone, kept, new] = places.endpoints;
        assert_eq!(entries(), 0);
        assert_eq!(looks(places, &[gone, kept], &[kept]), 0, "an empty table");
        let client = SocketAddr::new(places.client, 1000);
        create([ConntrackEntry::udp(client, places.vip, gone)].into_iter()).unwrap();
        assert_eq!(looks(places, &[kept], &[kept, new]), 0, "one joined");
        assert_eq!(entries(), 1);
        assert_eq!(looks(places, &[gone, kept], &[kept]), 1, "one left");
        assert_eq!(entries(), 0);
    });
}
