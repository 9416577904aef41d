//! All or nothing, and what is said when it is nothing.

use std::net::UdpSocket;

use ferrovia_core::dialect::nft::{
    ChainKind, Element, Field, Hook, HookPoint, KeyBuilder, NftChain, NftOp, NftRule, SetSpec,
    SetUpdate, Statement,
};
use ferrovia_core::family::Family;
use ferrovia_core::model::Protocol;
use ferrovia_host::nft::{Error, Nft, RefusedOperation};

use crate::sample::{self, Sets};
use crate::support::{TABLE, apply, drop_privileges, in_namespace, observe, run, transaction};

const V4: Family = Family::V4;

fn services() -> SetSpec {
    Sets::of(V4).services
}

/// The n-th service, leading to a class.
fn service(n: u32, class: u32) -> Element {
    let key = KeyBuilder::new()
        .ip(sample::service_ip(V4, n))
        .proto(Protocol::Tcp)
        .port(80);
    Element::value(key.build(), KeyBuilder::new().number(class).build())
}

/// A transaction that must be refused, and why it was.
fn refused(nft: &mut Nft, ops: Vec<NftOp>) -> Vec<RefusedOperation> {
    match nft.apply(&transaction(V4, ops)) {
        Err(Error::Refused(failures)) => failures,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_failed_transaction_changes_nothing_and_names_the_element() {
    in_namespace(|| {
        let mut nft = Nft::open().unwrap();
        apply(&mut nft, V4, sample::frame(V4));
        apply(
            &mut nft,
            V4,
            vec![NftOp::AddElements(services(), vec![service(3000, 1)])],
        );
        let (before, generation) = (observe(&mut nft, V4), nft.generation().unwrap());

        // Enough elements for two messages, the offender in the second.
        let elements = (0..4000).map(|n| service(n, 2)).collect();
        let failures = refused(
            &mut nft,
            vec![
                sample::chain("new"),
                NftOp::AddElements(services(), elements),
            ],
        );
        let [failure] = failures.as_slice() else {
            panic!("{failures:?}")
        };
        assert_eq!(failure.op, Some(1));
        assert_eq!(
            failure.to_string(),
            "cannot add element to map services: File exists, at \
             `add element ip ferrovia services { 10.96.11.184 . tcp . 80 : 0:2 }`"
        );
        assert_eq!(observe(&mut nft, V4), before);
        assert_eq!(nft.generation().unwrap(), generation);
    });
}

#[test]
fn every_failed_operation_is_named() {
    in_namespace(|| {
        let mut nft = Nft::open().unwrap();
        apply(&mut nft, V4, sample::frame(V4));
        let ops = vec![
            NftOp::DeleteChain("nowhere".into()),
            NftOp::AddTable,
            NftOp::AddRule(
                "rules".into(),
                NftRule::always(Statement::Goto("missing".into())),
            ),
            NftOp::FlushChain("gone".into()),
            NftOp::DeleteElements(services(), vec![service(1, 1)]),
            NftOp::DeleteOtherTable("kube-proxy".into()),
        ];
        let failures = refused(&mut nft, ops);
        let texts: Vec<_> = failures.iter().map(ToString::to_string).collect();
        let absent = "No such file or directory";
        assert_eq!(
            failures
                .iter()
                .filter_map(|failure| failure.op)
                .collect::<Vec<_>>(),
            [0, 2, 3, 4, 5]
        );
        assert_eq!(texts[0], format!("cannot delete chain nowhere: {absent}"));
        assert_eq!(
            texts[1],
            format!("cannot add rule to chain rules: {absent}")
        );
        assert_eq!(texts[2], format!("cannot flush chain gone: {absent}"));
        assert!(texts[3].starts_with(&format!(
            "cannot delete element from map services: {absent}, at `delete element"
        )));
        assert_eq!(
            texts[4],
            format!("cannot delete table kube-proxy: {absent}")
        );
    });
}

#[test]
fn a_loop_of_chains_fails_as_a_whole() {
    in_namespace(|| {
        let mut nft = Nft::open().unwrap();
        apply(&mut nft, V4, sample::frame(V4));
        let jump = |from: &'static str, to: &'static str| {
            NftOp::AddRule(from.into(), NftRule::always(Statement::Jump(to.into())))
        };
        let failures = refused(
            &mut nft,
            vec![
                jump("output", "rules"),
                jump("rules", "services"),
                jump("services", "rules"),
            ],
        );
        assert!(
            matches!(failures[0].refusal.errno, libc::ELOOP | libc::EMLINK),
            "{failures:?}"
        );
        assert!(observe(&mut nft, V4).chains["rules"].rules.is_empty());
    });
}

#[test]
fn after_a_refusal_the_next_transaction_works() {
    in_namespace(|| {
        let mut nft = Nft::open().unwrap();
        let failures = refused(&mut nft, vec![sample::chain("orphan")]);
        assert_eq!(failures[0].refusal.errno, libc::ENOENT);
        apply(&mut nft, V4, vec![NftOp::AddTable, sample::chain("orphan")]);
        assert!(observe(&mut nft, V4).chains.contains_key("orphan"));
    });
}

#[test]
fn writing_the_same_again_is_harmless() {
    in_namespace(|| {
        let mut nft = Nft::open().unwrap();
        for family in Family::ALL {
            let ops: Vec<_> = sample::frame(family)
                .into_iter()
                .chain(sample::elements(family))
                .collect();
            apply(&mut nft, family, ops.clone());
            let before = observe(&mut nft, family);
            apply(&mut nft, family, ops);
            assert_eq!(observe(&mut nft, family), before);
        }
    });
}

#[test]
fn everything_written_can_be_taken_away() {
    in_namespace(|| {
        let mut nft = Nft::open().unwrap();
        for family in Family::ALL {
            apply(&mut nft, family, sample::frame(family));
            let empty = observe(&mut nft, family);
            apply(&mut nft, family, sample::elements(family));
            let delete = sample::elements(family).into_iter().map(|op| match op {
                NftOp::AddElements(set, elements) => NftOp::DeleteElements(set, elements),
                other => other,
            });
            apply(&mut nft, family, delete.collect());
            assert_eq!(observe(&mut nft, family), empty);

            apply(
                &mut nft,
                family,
                vec![NftOp::AddRule(
                    "rules".into(),
                    NftRule::always(Statement::Drop),
                )],
            );
            apply(
                &mut nft,
                family,
                vec![
                    NftOp::FlushChain("rules".into()),
                    NftOp::DeleteChain("rules".into()),
                ],
            );
            assert!(!observe(&mut nft, family).chains.contains_key("rules"));
            apply(&mut nft, family, vec![NftOp::DeleteTable]);
            assert!(!observe(&mut nft, family).exists);
        }
    });
}

#[test]
fn a_chain_with_rules_is_not_deleted() {
    in_namespace(|| {
        let mut nft = Nft::open().unwrap();
        apply(&mut nft, V4, sample::frame(V4));
        apply(
            &mut nft,
            V4,
            vec![NftOp::AddRule(
                "rules".into(),
                NftRule::always(Statement::Drop),
            )],
        );
        let failures = refused(&mut nft, vec![NftOp::DeleteChain("rules".into())]);
        assert_eq!(
            failures[0].to_string(),
            "cannot delete chain rules: Device or resource busy"
        );
    });
}

#[test]
fn a_hundred_thousand_elements_in_one_transaction() {
    const COUNT: u32 = 100_000;
    in_namespace(|| {
        let mut nft = Nft::open().unwrap();
        apply(&mut nft, V4, sample::frame(V4));
        let elements: Vec<_> = (0..COUNT)
            .map(|n| service(n, n + 1).with_comment("default/web:http"))
            .collect();
        let applied = nft
            .apply(&transaction(
                V4,
                vec![NftOp::AddElements(services(), elements.clone())],
            ))
            .unwrap();
        assert!(
            applied.bytes > 5_000_000 && applied.messages > 50,
            "{applied:?}"
        );

        // The kernel's hash table still grows now, which makes it give some elements twice and
        // others not at all; we must notice.
        let set = observe(&mut nft, V4).sets.remove("services").unwrap();
        assert_eq!(set.elements.len(), COUNT as usize);
        assert!(
            elements
                .iter()
                .all(|element| set.elements[&element.key].data == element.data)
        );

        apply(
            &mut nft,
            V4,
            vec![NftOp::DeleteElements(services(), elements)],
        );
        assert!(observe(&mut nft, V4).sets["services"].elements.is_empty());
    });
}

#[test]
fn packets_count_themselves_and_go_uncounted_when_the_set_is_full() {
    in_namespace(|| {
        run("ip link set lo up");
        let mut nft = Nft::open().unwrap();
        // Has room for two.
        let set = Sets::of(V4).refusals;
        let hook = Hook {
            kind: ChainKind::Filter,
            point: HookPoint::Output,
            priority: 0,
        };
        let key = |port| {
            KeyBuilder::new()
                .ip([127, 0, 0, 1].into())
                .proto(Protocol::Udp)
                .port(port)
                .build()
        };
        let count = SetUpdate::Count {
            set: "refusals".into(),
            key: vec![Field::Daddr, Field::L4Proto, Field::Dport],
            timeout: 60,
        };
        let ops = vec![
            NftOp::AddTable,
            NftOp::AddSet(set),
            NftOp::AddChain(NftChain {
                name: "output".into(),
                hook: Some(hook),
            }),
            NftOp::AddRule("output".into(), NftRule::always(Statement::Dynamic(count))),
            NftOp::AddRule("output".into(), NftRule::always(Statement::Drop)),
        ];
        apply(&mut nft, V4, ops);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for port in [53, 54, 53, 55, 53, 55] {
            // Dropped on its way out, counted or not, which the sender sees.
            socket.send_to(b"x", ("127.0.0.1", port)).unwrap_err();
        }
        let mut counters = nft.counters(V4, TABLE, "refusals").unwrap();
        counters.sort();
        assert_eq!(counters, [(key(53), 3), (key(54), 1)]);
        // They are the packets' and not ours.
        assert!(observe(&mut nft, V4).sets["refusals"].elements.is_empty());
    });
}

#[test]
fn every_commit_has_a_generation_of_its_own() {
    in_namespace(|| {
        let mut nft = Nft::open().unwrap();
        let before = nft.generation().unwrap();
        apply(&mut nft, V4, vec![NftOp::AddTable]);
        let after = nft.generation().unwrap();
        assert_eq!(after, before + 1);
        let nothing = vec![NftOp::AddElements(services(), Vec::new())];
        assert_eq!(nft.apply(&transaction(V4, nothing)).unwrap().messages, 0);
        assert_eq!(nft.apply(&transaction(V4, Vec::new())).unwrap().messages, 0);
        assert_eq!(nft.generation().unwrap(), after);
        run("nft add table ip other");
        assert_ne!(nft.generation().unwrap(), after);
    });
}

#[test]
fn without_the_right_the_error_says_so() {
    in_namespace(|| {
        let mut nft = Nft::open().unwrap();
        drop_privileges();
        let failures = refused(&mut nft, vec![NftOp::AddTable]);
        assert_eq!(failures[0].op, None);
        assert_eq!(
            failures[0].to_string(),
            "cannot commit the changes to table ferrovia: Operation not permitted"
        );
    });
}
