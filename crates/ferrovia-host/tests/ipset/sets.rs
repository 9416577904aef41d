//! What is done with sets, compared with what the tool says.

use std::collections::BTreeSet;

use ferrovia_core::dialect::ipset::{Entry, Kind, MAX_ENTRIES, Op, parse};
use ferrovia_core::family::Family;
use ferrovia_host::ipset::{Error, Ipset};

use crate::support::{entry, in_namespace, name, run, run_with};

/// A set of each kind and entries of all shapes.
const SAMPLES: [(&str, Kind, &[&str]); 9] = [
    ("KUBE-A", Kind::Ip(Family::V4), &["10.96.0.1", "10.96.0.2"]),
    ("KUBE-B", Kind::Ip(Family::V6), &["fd00::1"]),
    (
        "KUBE-C",
        Kind::IpPort(Family::V4),
        &["10.96.0.1,tcp:80", "10.96.0.1,udp:53", "10.96.0.1,sctp:9"],
    ),
    ("KUBE-D", Kind::IpPort(Family::V6), &["fd00::1,tcp:65535"]),
    (
        "KUBE-E",
        Kind::IpPortIp(Family::V4),
        &["10.244.1.5,tcp:8080,10.244.1.5"],
    ),
    (
        "KUBE-F",
        Kind::IpPortIp(Family::V6),
        &["fd00::5,sctp:1,fd00::6"],
    ),
    (
        "KUBE-G",
        Kind::IpPortNet(Family::V4),
        &[
            "203.0.113.1,tcp:80,192.0.2.0/24",
            "203.0.113.1,tcp:80,192.0.2.9",
        ],
    ),
    (
        "KUBE-H",
        Kind::IpPortNet(Family::V6),
        &["fd00::1,tcp:80,2001:db8::/64", "fd00::1,udp:80,2001:db8::1"],
    ),
    ("KUBE-I", Kind::Port, &["1", "30000", "65535"]),
];

fn make_samples() -> Vec<Op> {
    let mut ops = Vec::new();
    for (set, kind, entries) in SAMPLES {
        ops.push(Op::Create {
            set: name(set),
            kind,
            max: MAX_ENTRIES,
        });
        let entries = entries.iter().map(|text| entry(kind, text));
        ops.extend(entries.map(|entry| Op::Add(name(set), entry)));
    }
    ops
}

pub(crate) fn sets_are_as_the_tool_prints_them() {
    in_namespace(|| {
        let mut ipset = Ipset::open().unwrap();
        assert_eq!(ipset.apply(&make_samples()).unwrap(), [0_usize; 0]);
        // The tool agrees with us about every set.
        let printed = parse(&run("ipset save"));
        assert_eq!(printed, ipset.list().unwrap());
        for (set, kind, entries) in SAMPLES {
            let found = &printed[&name(set)];
            let wanted: BTreeSet<Entry> = entries.iter().map(|text| entry(kind, text)).collect();
            assert_eq!((found.kind, &found.entries), (Some(kind), &wanted), "{set}");
            assert_eq!(ipset.sizes().unwrap()[&name(set)], entries.len());
        }
        // What prints is what restores.
        let save = run("ipset save");
        run("ipset destroy");
        let lines: String = make_samples().iter().map(|op| format!("{op}\n")).collect();
        run_with("ipset restore", &lines);
        assert_eq!(parse(&run("ipset save")), parse(&save));
        run("ipset destroy");
    });
}

pub(crate) fn sets_of_the_tool_are_read() {
    in_namespace(|| {
        let others = "create OTHER hash:net\nadd OTHER 10.0.0.0/8\n";
        let kube_proxy = "create KUBE-C hash:ip,port family inet hashsize 1024 maxelem 65536\n\
                          add KUBE-C 10.96.0.1,tcp:80\nadd KUBE-C 10.96.0.1,icmp:echo-request\n";
        run_with("ipset restore", &format!("{others}{kube_proxy}"));
        let sets = Ipset::open().unwrap().list().unwrap();
        assert_eq!(sets[&name("OTHER")].kind, None);
        let found = &sets[&name("KUBE-C")];
        assert_eq!((found.max, found.has_others), (65536, true));
        assert_eq!(found.entries.len(), 1);
        run("ipset destroy");
    });
}

pub(crate) fn a_refused_change_is_named() {
    in_namespace(|| {
        let mut ipset = Ipset::open().unwrap();
        let create = Op::Create {
            set: name("KUBE-I"),
            kind: Kind::Port,
            max: 0,
        };
        let add = |set, port| Op::Add(name(set), Entry::Port(port));
        let ops = [
            create,
            add("KUBE-I", 1),
            add("KUBE-NONE", 2),
            add("KUBE-NONE", 3),
            add("KUBE-I", 4),
        ];
        let error = ipset.apply(&ops).unwrap_err();
        assert!(matches!(&error, Error::Refused { op, others: 1, .. } if *op == ops[2]));
        assert_eq!(
            error.to_string(),
            "ipset add KUBE-NONE 2: there is no set of that name (and 1 more)"
        );
        // The others were made, and making them again is no failure.
        assert_eq!(ipset.sizes().unwrap()[&name("KUBE-I")], 2);
        let again = [add("KUBE-I", 1), Op::Delete(name("KUBE-I"), Entry::Port(9))];
        assert_eq!(ipset.apply(&again).unwrap(), [0, 1]);
        let full = Op::Create {
            set: name("KUBE-A"),
            kind: Kind::Ip(Family::V4),
            max: 1,
        };
        let entry = |last: u8| Op::Add(name("KUBE-A"), Entry::Ip([10, 0, 0, last].into()));
        let error = ipset.apply(&[full, entry(1), entry(2)]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "ipset add KUBE-A 10.0.0.2: the set is full"
        );
        run("ipset destroy");
    });
}

pub(crate) fn a_set_is_swapped_and_destroyed() {
    in_namespace(|| {
        let mut ipset = Ipset::open().unwrap();
        run("ipset create KUBE-A hash:ip maxelem 65536");
        run("iptables-legacy -A INPUT -m set --match-set KUBE-A dst -j DROP");
        let set = || name("KUBE-A");
        let error = ipset.apply(&[Op::Destroy(set())]).unwrap_err();
        assert!(error.to_string().contains("refer to it"), "{error}");
        let ops = [
            Op::Create {
                set: name("KUBE-NEW"),
                kind: Kind::Ip(Family::V4),
                max: MAX_ENTRIES,
            },
            Op::Add(name("KUBE-NEW"), Entry::Ip([10, 0, 0, 1].into())),
            Op::Swap(set(), name("KUBE-NEW")),
            Op::Destroy(name("KUBE-NEW")),
        ];
        ipset.apply(&ops).unwrap();
        let sets = ipset.list().unwrap();
        assert_eq!(sets.len(), 1);
        assert_eq!(sets[&set()].max, MAX_ENTRIES);
        assert_eq!(sets[&set()].entries.len(), 1);
        ipset.apply(&[Op::Flush(set())]).unwrap();
        assert_eq!(ipset.sizes().unwrap()[&set()], 0);
        run("iptables-legacy -F INPUT");
        ipset.apply(&[Op::Destroy(set())]).unwrap();
        assert_eq!(run("ipset save"), "");
    });
}
