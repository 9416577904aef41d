//! A ruleset that uses every form of set, match and statement the core can express, split into
//! parts that are compared one by one.
#![allow(clippy::too_many_lines, reason = "tables of cases")]

use std::net::IpAddr;

use ferrovia_core::dialect::nft::{
    ChainKind, DataType, Element, Field, FieldType, Hook, HookPoint, KeyBuilder, NftChain,
    NftMatch, NftOp, NftRule, NftVerdict, PriorityValue, Sense, SetSpec, SetUpdate, Statement,
};
use ferrovia_core::family::Family;
use ferrovia_core::model::Protocol;

use FieldType::{ClassId, Ipv4, Ipv6, Proto, Service, Slot};

const PLAIN: SetSpec = SetSpec {
    name: "",
    key: &[],
    data: None,
    interval: false,
    dynamic: None,
    counter: false,
};

type Fields = &'static [FieldType];

/// The sets of a family.
pub(crate) struct Sets {
    pub(crate) services: SetSpec,
    pub(crate) nodeports: SetSpec,
    pub(crate) endpoints: SetSpec,
    pub(crate) translations: SetSpec,
    pub(crate) affinity: SetSpec,
    pub(crate) sticky_slots: SetSpec,
    pub(crate) sticky_endpoints: SetSpec,
    pub(crate) picks: SetSpec,
    pub(crate) rejected: SetSpec,
    pub(crate) cidrs: SetSpec,
    pub(crate) allowed: SetSpec,
    pub(crate) hairpin: SetSpec,
    pub(crate) ports: SetSpec,
    pub(crate) port_of_protocol: SetSpec,
    pub(crate) connections: SetSpec,
    pub(crate) refusals: SetSpec,
}

impl Sets {
    pub(crate) fn of(family: Family) -> Self {
        let either = |v4: Fields, v6: Fields| if family == Family::V4 { v4 } else { v6 };
        let fields = |fields: Fields| Some(DataType::Fields(fields));
        let frontend: Fields = either(&[Ipv4, Proto, Service], &[Ipv6, Proto, Service]);
        let endpoint: Fields = either(&[Ipv4, Service], &[Ipv6, Service]);
        Self {
            services: SetSpec {
                name: "services",
                key: frontend,
                data: fields(&[ClassId]),
                ..PLAIN
            },
            nodeports: SetSpec {
                name: "nodeports",
                key: &[Proto, Service],
                data: fields(&[ClassId]),
                ..PLAIN
            },
            endpoints: SetSpec {
                name: "endpoints",
                key: &[Proto, ClassId, Slot],
                data: fields(endpoint),
                ..PLAIN
            },
            translations: SetSpec {
                name: "external-cluster",
                key: &[ClassId],
                data: fields(&[ClassId]),
                ..PLAIN
            },
            affinity: SetSpec {
                name: "affinity",
                key: either(&[Ipv4, ClassId], &[Ipv6, ClassId]),
                data: fields(&[ClassId]),
                dynamic: Some(262_144),
                ..PLAIN
            },
            sticky_slots: SetSpec {
                name: "sticky-slots",
                key: &[ClassId, Slot],
                data: fields(&[ClassId]),
                ..PLAIN
            },
            sticky_endpoints: SetSpec {
                name: "sticky-endpoints",
                key: &[Proto, ClassId],
                data: fields(endpoint),
                ..PLAIN
            },
            picks: SetSpec {
                name: "picks",
                key: &[ClassId],
                data: Some(DataType::Verdict),
                ..PLAIN
            },
            rejected: SetSpec {
                name: "rejected",
                key: frontend,
                counter: true,
                ..PLAIN
            },
            cidrs: SetSpec {
                name: "service-cidrs",
                key: either(&[Ipv4], &[Ipv6]),
                interval: true,
                ..PLAIN
            },
            allowed: SetSpec {
                name: "allowed-sources",
                key: either(&[Ipv4, Proto, Service, Ipv4], &[Ipv6, Proto, Service, Ipv6]),
                interval: true,
                ..PLAIN
            },
            hairpin: SetSpec {
                name: "hairpin",
                key: either(&[Ipv4, Ipv4, Proto, Service], &[Ipv6, Ipv6, Proto, Service]),
                ..PLAIN
            },
            ports: SetSpec {
                name: "ports",
                key: &[Service],
                ..PLAIN
            },
            port_of_protocol: SetSpec {
                name: "port-of-protocol",
                key: &[Proto],
                data: fields(&[Service]),
                ..PLAIN
            },
            connections: SetSpec {
                name: "connections",
                key: either(
                    &[Ipv4, Service, Ipv4, Proto, Service],
                    &[Ipv6, Service, Ipv6, Proto, Service],
                ),
                dynamic: Some(131_072),
                counter: true,
                ..PLAIN
            },
            refusals: SetSpec {
                name: "refusals",
                key: frontend,
                dynamic: Some(2),
                counter: true,
                ..PLAIN
            },
        }
    }

    pub(crate) fn all(&self) -> Vec<SetSpec> {
        vec![
            self.services,
            self.nodeports,
            self.endpoints,
            self.translations,
            self.affinity,
            self.sticky_slots,
            self.sticky_endpoints,
            self.picks,
            self.rejected,
            self.cidrs,
            self.allowed,
            self.hairpin,
            self.ports,
            self.port_of_protocol,
            self.connections,
            self.refusals,
        ]
    }
}

/// A regular chain.
pub(crate) fn chain(name: &'static str) -> NftOp {
    NftOp::AddChain(NftChain {
        name: name.into(),
        hook: None,
    })
}

/// Table, sets and chains that the rest refers to.
pub(crate) fn frame(family: Family) -> Vec<NftOp> {
    let base = |name: &'static str, kind, point, priority| {
        NftOp::AddChain(NftChain {
            name: name.into(),
            hook: Some(Hook {
                kind,
                point,
                priority,
            }),
        })
    };
    let mut ops = vec![NftOp::AddTable];
    ops.extend(Sets::of(family).all().into_iter().map(NftOp::AddSet));
    ops.extend(["pick-2", "dispatch", "services", "rules"].map(chain));
    ops.extend([
        base("prerouting", ChainKind::Nat, HookPoint::Prerouting, -100),
        base("output", ChainKind::Nat, HookPoint::Output, -100),
        base("postrouting", ChainKind::Nat, HookPoint::Postrouting, 100),
        base("filter-input", ChainKind::Filter, HookPoint::Input, -110),
        base(
            "filter-forward",
            ChainKind::Filter,
            HookPoint::Forward,
            -110,
        ),
    ]);
    ops
}

/// Some of an address family: `n` of the service range.
pub(crate) fn service_ip(family: Family, n: u32) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4((0x0a60_0000 + n).into()),
        Family::V6 => IpAddr::V6(((0xfd00_u128 << 112) + u128::from(n)).into()),
    }
}

/// Elements for every set that is not filled by packets.
pub(crate) fn elements(family: Family) -> Vec<NftOp> {
    let sets = Sets::of(family);
    let key = KeyBuilder::new;
    let front = |n| {
        key()
            .ip(service_ip(family, n))
            .proto(Protocol::Tcp)
            .port(80)
    };
    let pod = |n| key().ip(service_ip(family, 0xff00 + n)).port(8080).build();
    let net = |text: [&str; 2]| text[usize::from(family == Family::V6)].parse().unwrap();
    vec![
        NftOp::AddElements(
            sets.services,
            vec![
                Element::value(front(1).build(), key().number(0x8000_0001).build())
                    .with_comment("shop/web:http"),
                Element::value(front(2).build(), key().number(0x8000_2001).build()),
            ],
        ),
        NftOp::AddElements(
            sets.nodeports,
            vec![Element::value(
                key().proto(Protocol::Udp).port(30_053).build(),
                key().number(7).build(),
            )],
        ),
        NftOp::AddElements(
            sets.endpoints,
            (0..3)
                .map(|slot| {
                    let key = key()
                        .proto(Protocol::Sctp)
                        .number(0x8000_0000)
                        .number(slot)
                        .build();
                    Element::value(key, pod(slot)).with_comment("pod")
                })
                .collect(),
        ),
        NftOp::AddElements(
            sets.translations,
            vec![Element::value(
                key().number(0x1_0000).build(),
                key().number(0x2_0001).build(),
            )],
        ),
        NftOp::AddElements(
            sets.sticky_slots,
            vec![Element::value(
                key().number(5).number(1).build(),
                key().number(6).build(),
            )],
        ),
        NftOp::AddElements(
            sets.sticky_endpoints,
            vec![Element::value(
                key().proto(Protocol::Tcp).number(6).build(),
                pod(1),
            )],
        ),
        NftOp::AddElements(
            sets.picks,
            vec![
                Element::verdict(key().number(1).build(), NftVerdict::Goto("pick-2".into())),
                Element::verdict(key().number(2).build(), NftVerdict::Jump("pick-2".into())),
                Element::verdict(key().number(3).build(), NftVerdict::Drop),
                Element::verdict(key().number(4).build(), NftVerdict::Accept),
                Element::verdict(key().number(5).build(), NftVerdict::Return),
            ],
        ),
        NftOp::AddElements(
            sets.rejected,
            vec![Element::member(front(9).build()).with_comment("no endpoints")],
        ),
        NftOp::AddElements(
            sets.cidrs,
            vec![
                Element::range(key(), net(["10.96.0.0/16", "fd00::/112"])),
                // Begins where the first ends.
                Element::range(key(), net(["10.97.0.0/16", "fd00::1:0/112"])),
                // Has no end.
                Element::range(key(), net(["255.0.0.0/8", "ff00::/8"]))
                    .with_comment("the last ones"),
            ],
        ),
        NftOp::AddElements(
            sets.allowed,
            vec![
                Element::range(front(1), net(["192.0.2.0/24", "2001:db8::/64"])),
                Element::range(front(1), net(["198.51.100.7/32", "2001:db8:1::7/128"])),
                Element::range(front(2), net(["0.0.0.0/0", "::/0"])),
            ],
        ),
        NftOp::AddElements(
            sets.hairpin,
            vec![Element::member(
                key()
                    .ip(service_ip(family, 77))
                    .ip(service_ip(family, 77))
                    .proto(Protocol::Udp)
                    .port(53)
                    .build(),
            )],
        ),
        NftOp::AddElements(sets.ports, vec![Element::member(key().port(443).build())]),
        NftOp::AddElements(
            sets.port_of_protocol,
            vec![Element::value(
                key().proto(Protocol::Udp).build(),
                key().port(53).build(),
            )],
        ),
    ]
}

/// One rule of every form.
pub(crate) fn rules(family: Family) -> Vec<NftRule> {
    use Field::{
        Daddr, Dport, L4Proto, OriginalDaddr, OriginalDport, Priority, PriorityBits, Random, Saddr,
    };
    use Sense::{Is, IsNot};
    let net = |text: [&str; 2]| text[usize::from(family == Family::V6)].parse().unwrap();
    let frontend = || vec![Daddr, L4Proto, Dport];
    let set = |value| Statement::SetPriority(value);
    let goto = || Statement::Goto("dispatch".into());
    let count = |set: &'static str, key| {
        Statement::Dynamic(SetUpdate::Count {
            set: set.into(),
            key,
            timeout: 86_400,
        })
    };
    let original = || vec![OriginalDaddr, L4Proto, OriginalDport];
    let connection = || [vec![Daddr, Dport], original()].concat();
    vec![
        NftRule::when(NftMatch::CtStateNew).then(Statement::Jump("services".into())),
        NftRule::when(NftMatch::CtStatusDnat)
            .then(Statement::Drop)
            .because("already translated"),
        NftRule::when(NftMatch::MarkBits(0x4000))
            .then(Statement::MarkXor(0x4000))
            .then(Statement::Masquerade),
        NftRule::when(NftMatch::PriorityBits(0x8000_0000)).then(set(PriorityValue::None)),
        NftRule::when(NftMatch::PriorityBits(0x1000)).then(Statement::MarkOr(0x4000)),
        NftRule::when(NftMatch::Source(
            net(["10.244.32.0/20", "fd00:244:8000::/37"]),
            Is,
        ))
        .then(goto()),
        NftRule::when(NftMatch::Destination(
            net(["127.0.0.1/32", "::1/128"]),
            IsNot,
        ))
        .then(goto()),
        NftRule::when(NftMatch::InputInterface("eth1".into(), Is)).then(goto()),
        NftRule::when(NftMatch::InputInterface("eth1".into(), IsNot)).then(goto()),
        NftRule::when(NftMatch::InputInterfacePrefix("cali".into(), Is)).then(goto()),
        NftRule::when(NftMatch::InputInterfacePrefix("cali".into(), IsNot)).then(goto()),
        NftRule::when(NftMatch::LocalSource).then(goto()),
        NftRule::when(NftMatch::LocalDestination).then(goto()),
        NftRule::when(NftMatch::InSet(frontend(), "rejected".into(), Is)).then(Statement::Reject),
        NftRule::when(NftMatch::InSet(vec![Daddr], "service-cidrs".into(), IsNot))
            .then(Statement::Drop),
        NftRule::when(NftMatch::InSet(
            vec![Saddr, Daddr, L4Proto, Dport],
            "hairpin".into(),
            Is,
        ))
        .then(Statement::Masquerade),
        NftRule::when(NftMatch::InSet(
            vec![L4Proto, Priority],
            "sticky-endpoints".into(),
            Is,
        ))
        .then(goto()),
        NftRule::always(set(PriorityValue::Map(frontend(), "services".into()))).then(goto()),
        NftRule::always(set(PriorityValue::Map(
            vec![L4Proto, Dport],
            "nodeports".into(),
        )))
        .then(goto()),
        NftRule::always(set(PriorityValue::Bits(0xffff_e000))),
        NftRule::always(set(PriorityValue::Map(
            vec![PriorityBits(0xffff_e000)],
            "external-cluster".into(),
        ))),
        NftRule::always(set(PriorityValue::Map(
            vec![Saddr, Priority],
            "affinity".into(),
        ))),
        NftRule::always(set(PriorityValue::Map(
            vec![PriorityBits(0xffff_e000), Random(2)],
            "sticky-slots".into(),
        ))),
        NftRule::always(Statement::Vmap(vec![PriorityBits(0xfff)], "picks".into())),
        NftRule::always(Statement::Dnat(
            vec![L4Proto, Priority, Random(2)],
            "endpoints".into(),
        )),
        NftRule::always(Statement::Dnat(
            vec![L4Proto, Priority],
            "sticky-endpoints".into(),
        )),
        NftRule::when(NftMatch::Protocol(Protocol::Tcp))
            .and(NftMatch::InSet(original(), "services".into(), Is))
            .then(goto()),
        NftRule::when(NftMatch::Protocol(Protocol::Sctp))
            .and(NftMatch::InSet(
                vec![L4Proto, OriginalDport],
                "nodeports".into(),
                Is,
            ))
            .then(goto()),
        NftRule::when(NftMatch::CtStatusDnat)
            .and(NftMatch::Protocol(Protocol::Tcp))
            .and(NftMatch::InSet(
                vec![OriginalDaddr],
                "service-cidrs".into(),
                Is,
            ))
            .and(NftMatch::InSet(
                vec![L4Proto, OriginalDport],
                "nodeports".into(),
                Is,
            ))
            .then(goto()),
        NftRule::when(NftMatch::Protocol(Protocol::Udp))
            .then(count("connections", connection()))
            .then(Statement::Return),
        NftRule::always(Statement::Counter).because("full"),
        NftRule::always(Statement::Counter).then(goto()),
        NftRule::always(count("refusals", frontend())),
    ]
}

/// Rules for which the tool writes other instructions than we do, or none: see the test that uses
/// them.
pub(crate) fn peculiar_rules(family: Family) -> Vec<NftRule> {
    use Field::{Daddr, Dport, L4Proto, Priority, PriorityBits, Saddr, SourceHash};
    let net = |text: [&str; 2]| text[usize::from(family == Family::V6)].parse().unwrap();
    let affinity = || vec![Saddr, PriorityBits(0xffff_e000)];
    vec![
        NftRule::when(NftMatch::Source(
            net(["10.244.0.0/16", "fd00:244::/32"]),
            Sense::Is,
        ))
        .then(Statement::Drop),
        NftRule::when(NftMatch::Destination(
            net(["127.0.0.0/8", "fd00::/8"]),
            Sense::IsNot,
        ))
        .then(Statement::Drop),
        NftRule::when(NftMatch::InSet(
            vec![Daddr, L4Proto, Dport, Saddr],
            "allowed-sources".into(),
            Sense::IsNot,
        ))
        .then(Statement::Drop),
        NftRule::always(Statement::Dnat(
            vec![L4Proto, Priority, SourceHash(251)],
            "endpoints".into(),
        )),
        NftRule::always(Statement::SetPriority(PriorityValue::Map(
            vec![PriorityBits(0xffff_e000), SourceHash(3)],
            "sticky-slots".into(),
        ))),
        NftRule::always(Statement::Dynamic(SetUpdate::Refresh {
            map: "affinity".into(),
            key: affinity(),
            timeout: 10_800,
        }))
        .then(Statement::Dnat(
            vec![L4Proto, Priority],
            "sticky-endpoints".into(),
        )),
        NftRule::always(Statement::Dynamic(SetUpdate::Delete {
            map: "affinity".into(),
            key: affinity(),
        })),
    ]
}
