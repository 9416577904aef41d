//! Much of everything, and how long that takes beside the tools that write the same. Both are measured in one run and printed for people; a
//! busy machine may say anything, so no time fails the test.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use ferrovia_core::dialect::ipset::{IpsetEntry, IpsetOp as SetOp, IpsetType, MAX_ENTRIES};
use ferrovia_core::dialect::ipvs::{IpvsDestination, IpvsOp, VirtualServer, VirtualServerKey};
use ferrovia_core::family::Family;
use ferrovia_core::model::Protocol;
use ferrovia_host::ipset::Ipset;
use ferrovia_host::ipvs::Ipvs;
use ferrovia_host::link::{AddressChange, DummyDevice};
use ferrovia_lab::uml::suite::Test;

use crate::servers::server;
use crate::support::{in_namespace, name, run, run_with};

pub(crate) const TESTS: [Test; 1] = [("figures: ten thousand services", ten_thousand_services)];

const SERVICES: u32 = 10_000;

fn key(number: u32) -> VirtualServerKey {
    VirtualServerKey {
        address: IpAddr::from(Ipv4Addr::from(0x0a60_0000 + number)),
        port: 80,
        protocol: Protocol::Tcp,
    }
}

fn servers() -> Vec<IpvsOp> {
    let mut ops = Vec::new();
    for number in 0..SERVICES {
        let VirtualServer { key, .. } = server(key(number), "rr");
        ops.push(IpvsOp::PutServer(server(key, "rr")));
        for end in 0..2 {
            let ip = Ipv4Addr::from(0x0af4_0000 + 2 * number + end);
            let address = (ip, 8080).into();
            ops.push(IpvsOp::PutDestination(
                key,
                IpvsDestination { address, weight: 1 },
            ));
        }
    }
    ops
}

fn set() -> Vec<SetOp> {
    let set = || name("KUBE-CLUSTER-IP");
    let mut ops = vec![SetOp::Create {
        set: set(),
        kind: IpsetType::IpPort(Family::V4),
        max: MAX_ENTRIES,
    }];
    ops.extend((0..SERVICES).map(|number| {
        SetOp::Add(
            set(),
            IpsetEntry::IpPort(key(number).address, Protocol::Tcp, 80),
        )
    }));
    ops
}

fn timed<T>(what: &str, action: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let value = action();
    let took = start.elapsed();
    println!("  {what:<52} {:>8.1} ms", took.as_secs_f64() * 1e3);
    (value, took)
}

fn text<T: ToString>(ops: &[T]) -> String {
    ops.iter().map(|op| op.to_string() + "\n").collect()
}

fn ten_thousand_services() {
    in_namespace(|| {
        let (servers, set) = (servers(), set());
        let (mut ipvs, mut ipset) = (Ipvs::open().unwrap(), Ipset::open().unwrap());
        let (_, tool) = timed("servers, ipvsadm -R", || {
            run_with("ipvsadm -R", &text(&servers))
        });
        run("ipvsadm -C");
        let (applied, ours) = timed("servers, ours", || ipvs.apply(&servers));
        assert_eq!(applied.unwrap().made, SERVICES as usize);
        let (_, tool_set) = timed("a set, ipset restore", || {
            run_with("ipset restore", &text(&set))
        });
        run("ipset destroy");
        let (applied, ours_set) = timed("a set, ours", || ipset.apply(&set));
        applied.unwrap();
        println!(
            "  ours to the tools' {:.2}",
            (ours + ours_set).as_secs_f64() / (tool + tool_set).as_secs_f64()
        );
        let (found, _) = timed("servers read", || ipvs.servers(Family::V4).unwrap());
        assert_eq!(found.len(), SERVICES as usize);
        let (count, _) = timed("destinations of all read", || {
            let each = found
                .iter()
                .map(|found| ipvs.destinations(&found.server.key).unwrap().len());
            each.sum::<usize>()
        });
        assert_eq!(count, 2 * SERVICES as usize);
        let (sets, _) = timed("sets read", || ipset.list().unwrap());
        assert_eq!(
            sets[&name("KUBE-CLUSTER-IP")].entries.len(),
            SERVICES as usize
        );
        timed("one destination's weight changed", || {
            ipvs.apply(&[servers[1]])
        })
        .0
        .unwrap();
        let mut device = DummyDevice::open("kube-ipvs0").unwrap();
        device.ensure().unwrap();
        let bind: Vec<_> = (0..SERVICES)
            .map(|number| AddressChange::Bind(key(number).address))
            .collect();
        let (bound, _) = timed("addresses bound", || device.change(&bind).unwrap());
        assert_eq!(bound.bound, SERVICES as usize);
    });
}
