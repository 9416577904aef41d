//! The whole applier: steps, what is read back, failures in the middle.

use std::collections::BTreeSet;
use std::ffi::OsStr;

use ferrovia_core::dialect::ipset::{IpsetEntry, IpsetOp as SetOp, IpsetType, MAX_ENTRIES};
use ferrovia_core::dialect::ipvs::IpvsOp;
use ferrovia_core::family::Family;
use ferrovia_core::model::Protocol;
use ferrovia_core::plan::ipvs::{AddressOp, IpvsPlan, IpvsStep};
use ferrovia_host::Applier as _;
use ferrovia_host::iptables::{Backend, Tool};
use ferrovia_host::ipvs::IpvsApplier;
use ferrovia_lab::uml::suite::Test;

use crate::servers::{key, put, server};
use crate::support::{in_namespace, name, run};

pub(crate) const TESTS: [Test; 3] = [
    (
        "what a plan says is read back",
        what_a_plan_says_is_read_back,
    ),
    (
        "a plan that fails stops there",
        a_plan_that_fails_stops_there,
    ),
    (
        "other people's changes are noticed",
        other_peoples_changes_are_noticed,
    ),
];

/// An applier for IPv4.
pub(crate) fn applier() -> IpvsApplier {
    applier_of(Family::V4)
}

/// An applier. The kernel here has only the legacy kind of rules.
pub(crate) fn applier_of(family: Family) -> IpvsApplier {
    let path = std::env::var_os("PATH").unwrap();
    let path = format!("{}:/usr/sbin:/sbin", path.to_string_lossy());
    let tool = Tool::find(OsStr::new(&path), family, Backend::Legacy);
    IpvsApplier::new(tool.unwrap()).unwrap()
}

pub(crate) fn plan(steps: Vec<IpvsStep>) -> IpvsPlan {
    IpvsPlan {
        steps,
        notes: Vec::new(),
    }
}

fn sample() -> IpvsPlan {
    let key = key(Protocol::Tcp, "10.96.0.1:80");
    let kind = IpsetType::IpPort(Family::V4);
    let set = || name("KUBE-CLUSTER-IP");
    plan(vec![
        IpvsStep::Device,
        IpvsStep::Sets(vec![
            SetOp::Create {
                set: set(),
                kind,
                max: MAX_ENTRIES,
            },
            SetOp::Add(
                set(),
                IpsetEntry::IpPort(key.address, key.protocol, key.port),
            ),
        ]),
        IpvsStep::Servers(vec![
            IpvsOp::PutServer(server(key, "rr")),
            put(key, "10.244.1.5:8080", 1),
        ]),
        IpvsStep::Addresses(vec![AddressOp::Bind(key.address)]),
    ])
}

fn what_a_plan_says_is_read_back() {
    in_namespace(|| {
        let mut applier = applier();
        let empty = applier.observe().unwrap();
        assert!(!empty.device && empty.servers.is_empty() && empty.sets.is_empty());
        assert!(!applier.apply(&plan(Vec::new())).unwrap());
        assert!(applier.apply(&sample()).unwrap());
        let observed = applier.observe().unwrap();
        assert!(observed.device);
        let key = key(Protocol::Tcp, "10.96.0.1:80");
        assert_eq!(observed.addresses, BTreeSet::from([key.address]));
        let (found, to) = &observed.servers[&key];
        assert_eq!((*found, to.len()), (server(key, "rr"), 1));
        assert_eq!(observed.sets[&name("KUBE-CLUSTER-IP")].entries.len(), 1);
        let away = vec![
            IpvsStep::Addresses(vec![AddressOp::Unbind(key.address)]),
            IpvsStep::Servers(vec![IpvsOp::DeleteServer(key)]),
            IpvsStep::Sets(vec![SetOp::Destroy(name("KUBE-CLUSTER-IP"))]),
            IpvsStep::NoDevice,
        ];
        // The other family's addresses keep the device.
        run("ip address add fd00::1/128 dev kube-ipvs0");
        applier.apply(&plan(away)).unwrap();
        assert!(applier.observe().unwrap().device);
        run("ip address delete fd00::1/128 dev kube-ipvs0");
        applier.apply(&plan(vec![IpvsStep::NoDevice])).unwrap();
        let mut gone = applier.observe().unwrap();
        gone.rules = empty.rules.clone();
        assert_eq!(gone, empty);
    });
}

fn a_plan_that_fails_stops_there() {
    in_namespace(|| {
        run("ip link add kube-ipvs0 type bridge");
        let mut applier = applier();
        let error = applier.apply(&sample()).unwrap_err();
        assert!(error.to_string().contains("kind is bridge"), "{error}");
        assert_eq!(run("ipvsadm -S -n"), "");
        assert!(!applier.is_untouched().unwrap());
        // After it is removed, the same plan succeeds.
        run("ip link delete kube-ipvs0");
        applier.apply(&sample()).unwrap();
        assert_eq!(run("ipvsadm -S -n").lines().count(), 2);
    });
}

fn other_peoples_changes_are_noticed() {
    in_namespace(|| {
        let mut applier = applier();
        run("iptables-legacy -N KUBE-IPVS-FILTER");
        applier.observe().unwrap();
        applier.apply(&sample()).unwrap();
        assert!(applier.is_untouched().unwrap());
        let changes = [
            (
                "ipvsadm -D -t 10.96.0.1:80",
                "ipvsadm -A -t 10.96.0.1:80 -s rr",
            ),
            (
                "ip address delete 10.96.0.1/32 dev kube-ipvs0",
                "ip address add 10.96.0.1/32 dev kube-ipvs0",
            ),
            (
                "ipset flush KUBE-CLUSTER-IP",
                "ipset add KUBE-CLUSTER-IP 10.96.0.1,tcp:80",
            ),
            (
                "iptables-legacy -X KUBE-IPVS-FILTER",
                "iptables-legacy -N KUBE-IPVS-FILTER",
            ),
        ];
        for (change, repair) in changes {
            run(change);
            assert!(!applier.is_untouched().unwrap(), "{change}");
            run(repair);
            assert!(applier.is_untouched().unwrap(), "{repair}");
        }
    });
}
