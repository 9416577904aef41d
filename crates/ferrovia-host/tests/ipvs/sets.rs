//! What is done with sets, compared with what the tool says.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ferrovia_core::dialect::ipset::{IpsetEntry, IpsetOp, IpsetType, MAX_ENTRIES, ObservedIpset};
use ferrovia_core::family::Family;
use ferrovia_core::model::Protocol::{Sctp, Tcp, Udp};
use ferrovia_host::ipset::{Error, Ipset};

use crate::support::{in_namespace, name, run, run_with};

/// A set of each kind and entries of all shapes.
fn samples() -> Vec<(&'static str, IpsetType, Vec<IpsetEntry>)> {
    let ip = |text: &str| -> IpAddr { text.parse().unwrap() };
    let from =
        |of, protocol, net: &str| IpsetEntry::IpPortNet(ip(of), protocol, 80, net.parse().unwrap());
    let (cluster, pod) = (ip("10.96.0.1"), ip("10.244.1.5"));
    let (v4, v6) = (Family::V4, Family::V6);
    vec![
        (
            "KUBE-A",
            IpsetType::Ip(v4),
            vec![IpsetEntry::Ip(cluster), IpsetEntry::Ip(ip("10.96.0.2"))],
        ),
        (
            "KUBE-B",
            IpsetType::Ip(v6),
            vec![IpsetEntry::Ip(ip("fd00::1"))],
        ),
        (
            "KUBE-C",
            IpsetType::IpPort(v4),
            vec![
                IpsetEntry::IpPort(cluster, Tcp, 80),
                IpsetEntry::IpPort(cluster, Udp, 53),
                IpsetEntry::IpPort(cluster, Sctp, 9),
            ],
        ),
        (
            "KUBE-D",
            IpsetType::IpPort(v6),
            vec![IpsetEntry::IpPort(ip("fd00::1"), Tcp, 65535)],
        ),
        (
            "KUBE-E",
            IpsetType::IpPortIp(v4),
            vec![IpsetEntry::IpPortIp(pod, Tcp, 8080, pod)],
        ),
        (
            "KUBE-F",
            IpsetType::IpPortIp(v6),
            vec![IpsetEntry::IpPortIp(ip("fd00::5"), Sctp, 1, ip("fd00::6"))],
        ),
        (
            "KUBE-G",
            IpsetType::IpPortNet(v4),
            vec![
                from("203.0.113.1", Tcp, "192.0.2.0/24"),
                from("203.0.113.1", Tcp, "192.0.2.9/32"),
            ],
        ),
        (
            "KUBE-H",
            IpsetType::IpPortNet(v6),
            vec![
                from("fd00::1", Tcp, "2001:db8::/64"),
                from("fd00::1", Udp, "2001:db8::1/128"),
            ],
        ),
        (
            "KUBE-I",
            IpsetType::Port,
            vec![
                IpsetEntry::Port(1),
                IpsetEntry::Port(30000),
                IpsetEntry::Port(65535),
            ],
        ),
    ]
}

fn make_samples() -> Vec<IpsetOp> {
    let mut ops = Vec::new();
    for (set, kind, entries) in samples() {
        ops.push(IpsetOp::Create {
            set: name(set),
            kind,
            max: MAX_ENTRIES,
        });
        let add = |entry| IpsetOp::Add(name(set), entry);
        ops.extend(entries.into_iter().map(add));
    }
    ops
}

/// What the tool prints of all sets, in no order, without what the kernel chose.
fn printed() -> BTreeSet<String> {
    let save = run("ipset save");
    let chosen = " bucketsize ";
    let lines = save.lines().map(|line| line.split(chosen).next().unwrap());
    lines.map(str::to_owned).collect()
}

pub(crate) fn sets_are_as_the_tool_prints_them() {
    in_namespace(|| {
        let mut ipset = Ipset::open().unwrap();
        assert_eq!(ipset.apply(&make_samples()).unwrap(), [0_usize; 0]);
        // The tool agrees with us about every set.
        let lines: BTreeSet<String> = make_samples().iter().map(IpsetOp::to_string).collect();
        assert_eq!(printed(), lines);
        let found = ipset.list().unwrap();
        assert_eq!(found.len(), samples().len());
        for (set, kind, entries) in samples() {
            let wanted = ObservedIpset {
                kind: Some(kind),
                max: found[&name(set)].max,
                entries: entries.iter().copied().collect(),
                has_others: false,
            };
            assert_eq!(found[&name(set)], wanted, "{set}");
            assert!(
                kind == IpsetType::Port || wanted.max == MAX_ENTRIES,
                "{set}"
            );
            assert_eq!(ipset.sizes().unwrap()[&name(set)], entries.len());
        }
        // What prints is what restores.
        run("ipset destroy");
        let input: String = make_samples().iter().map(|op| format!("{op}\n")).collect();
        run_with("ipset restore", &input);
        assert_eq!(printed(), lines);
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
        let create = IpsetOp::Create {
            set: name("KUBE-I"),
            kind: IpsetType::Port,
            max: 0,
        };
        let add = |set, port| IpsetOp::Add(name(set), IpsetEntry::Port(port));
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
            "cannot apply `ipset add KUBE-NONE 2`: no set of that name exists (and 1 more)"
        );
        // The others were made, and making them again is no failure.
        assert_eq!(ipset.sizes().unwrap()[&name("KUBE-I")], 2);
        let again = [
            add("KUBE-I", 1),
            IpsetOp::Delete(name("KUBE-I"), IpsetEntry::Port(9)),
        ];
        assert_eq!(ipset.apply(&again).unwrap(), [0, 1]);
        let full = IpsetOp::Create {
            set: name("KUBE-A"),
            kind: IpsetType::Ip(Family::V4),
            max: 1,
        };
        let entry =
            |last: u8| IpsetOp::Add(name("KUBE-A"), IpsetEntry::Ip([10, 0, 0, last].into()));
        let error = ipset.apply(&[full, entry(1), entry(2)]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot apply `ipset add KUBE-A 10.0.0.2`: the set is full"
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
        let error = ipset.apply(&[IpsetOp::Destroy(set())]).unwrap_err();
        assert!(error.to_string().contains("refer to it"), "{error}");
        let ops = [
            IpsetOp::Create {
                set: name("KUBE-NEW"),
                kind: IpsetType::Ip(Family::V4),
                max: MAX_ENTRIES,
            },
            IpsetOp::Add(name("KUBE-NEW"), IpsetEntry::Ip([10, 0, 0, 1].into())),
            IpsetOp::Swap(set(), name("KUBE-NEW")),
            IpsetOp::Destroy(name("KUBE-NEW")),
        ];
        ipset.apply(&ops).unwrap();
        let sets = ipset.list().unwrap();
        assert_eq!(sets.len(), 1);
        assert_eq!(sets[&set()].max, MAX_ENTRIES);
        assert_eq!(sets[&set()].entries.len(), 1);
        run("iptables-legacy -F INPUT");
        ipset.apply(&[IpsetOp::Destroy(set())]).unwrap();
        assert_eq!(run("ipset save"), "");
    });
}
