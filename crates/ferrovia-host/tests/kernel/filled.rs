//! Sets that packets fill: reading their entries and removing some.

use std::net::UdpSocket;

use ferrovia_core::dialect::nft::{Element, ElementKey, KeyBuilder, NftOp, NftRule, Statement};
use ferrovia_core::family::Family;
use ferrovia_core::model::Protocol;
use ferrovia_core::plan::nft::layout::NftSetId;
use ferrovia_host::nft::{Nft, NftConnection};

use crate::sample;
use crate::support::{TABLE, apply, in_namespace, run};

fn keys(family: Family, count: u16) -> Vec<ElementKey> {
    let ip = match family {
        Family::V4 => "10.96.0.1".parse().unwrap(),
        Family::V6 => "fd00::1".parse().unwrap(),
    };
    let key = |port| {
        KeyBuilder::new()
            .ip(ip)
            .proto(Protocol::Udp)
            .port(port)
            .build()
    };
    (1..=count).map(key).collect()
}

#[test]
fn entries_that_are_gone_already_do_not_keep_others_from_going() {
    for family in Family::ALL {
        in_namespace(move || {
            let spec = NftSetId::Refusals.spec(family);
            let all = keys(family, 5000);
            let elements = all.iter().cloned().map(Element::member).collect();
            let mut nft = Nft::open().unwrap();
            let ops = vec![
                NftOp::AddTable,
                NftOp::AddSet(spec),
                NftOp::AddElements(spec, elements),
            ];
            apply(&mut nft, family, ops);
            let found = Nft::entries(family, TABLE, spec.name, usize::MAX).unwrap();
            let mut found: Vec<ElementKey> = found.into_iter().map(|entry| entry.key).collect();
            found.sort_unstable();
            assert_eq!(found, all, "{family}");

            let connection = NftConnection::new(Nft::open().unwrap());
            let gone = [&all[10..20], &all[3000..3003]].concat();
            assert_eq!(connection.forget(family, spec, &gone).unwrap(), 13);
            assert_eq!(connection.forget(family, spec, &all[..4000]).unwrap(), 3987);
            assert_eq!(connection.forget(family, spec, &all[..4000]).unwrap(), 0);
            let left = Nft::entries(family, TABLE, spec.name, usize::MAX).unwrap();
            assert_eq!(left.len(), 1000, "{family}");
            let some = Nft::entries(family, TABLE, spec.name, 10).unwrap();
            assert!((10..1000).contains(&some.len()), "{family}: {}", some.len());
        });
    }
}

#[test]
fn what_rules_count_is_read_by_chain() {
    in_namespace(|| {
        let family = Family::V4;
        let mut nft = Nft::open().unwrap();
        let mut ops = sample::frame(family);
        let counting =
            |chain: &'static str| NftOp::AddRule(chain.into(), NftRule::always(Statement::Counter));
        ops.extend([counting("rules"), counting("filter-input")]);
        apply(&mut nft, family, ops);
        run("ip link set lo up");
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"?", "127.0.0.1:9").unwrap();
        let counted = nft.rule_counters(family, TABLE).unwrap();
        let of = |name: &str| {
            let rule = counted.iter().find(|(chain, _)| chain == name);
            rule.map(|(_, packets)| *packets)
        };
        assert_eq!(of("rules"), Some(0), "{counted:?}");
        assert!(of("filter-input") > Some(0), "{counted:?}");
        assert_eq!(counted.len(), 2, "{counted:?}");
    });
}
