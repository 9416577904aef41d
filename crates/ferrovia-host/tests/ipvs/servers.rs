//! Virtual servers, compared with what ipvsadm prints.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use ferrovia_core::dialect::ipvs::{
    DestinationRemoval, FLAG_FALLBACK, FLAG_PORT, IpvsDestination, IpvsOp, Scheduler,
    VirtualServer, VirtualServerKey,
};
use ferrovia_core::family::Family;
use ferrovia_core::model::Protocol;
use ferrovia_host::ipvs::{Error, Ipvs};
use ferrovia_lab::uml::suite::Test;

use crate::support::{in_namespace, run, run_with};

pub(crate) const TESTS: [Test; 6] = [
    (
        "servers are as the tool prints them",
        servers_are_as_the_tool_prints_them,
    ),
    (
        "what is there is changed in place",
        what_is_there_is_changed_in_place,
    ),
    (
        "a refused change of a server is named",
        a_refused_change_is_named,
    ),
    (
        "what is gone need not be removed",
        what_is_gone_need_not_be_removed,
    ),
    (
        "what is made and removed in one batch is gone",
        what_is_made_and_removed_in_one_batch_is_gone,
    ),
    (
        "foreign servers stay and are read",
        foreign_servers_stay_and_are_read,
    ),
];

pub(crate) fn key(protocol: Protocol, at: &str) -> VirtualServerKey {
    let at: SocketAddr = at.parse().unwrap();
    VirtualServerKey {
        address: at.ip(),
        port: at.port(),
        protocol,
    }
}

pub(crate) fn server(key: VirtualServerKey, scheduler: &str) -> VirtualServer {
    VirtualServer {
        key,
        scheduler: Scheduler::new(scheduler).unwrap(),
        flags: 0,
        persistence: None,
    }
}

pub(crate) fn put(server: VirtualServerKey, to: &str, weight: u32) -> IpvsOp {
    let address = to.parse().unwrap();
    IpvsOp::PutDestination(server, IpvsDestination { address, weight })
}

pub(crate) fn remove(server: VirtualServerKey, to: &str, removal: DestinationRemoval) -> IpvsOp {
    IpvsOp::RemoveDestination {
        server,
        destination: to.parse().unwrap(),
        removal,
    }
}

/// What the tool prints, as a set: the kernel's order is that of its hash table.
fn saved() -> BTreeSet<String> {
    let text = run("ipvsadm -S -n");
    text.lines()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

fn lines(text: &[&str]) -> BTreeSet<String> {
    text.iter().map(|&line| line.to_owned()).collect()
}

/// A server of each protocol and of IPv6, with destinations.
fn samples() -> (Vec<VirtualServer>, Vec<IpvsOp>) {
    let (tcp, udp) = (
        key(Protocol::Tcp, "10.96.0.1:443"),
        key(Protocol::Udp, "10.96.0.10:53"),
    );
    let (sctp, six) = (
        key(Protocol::Sctp, "10.96.0.11:9"),
        key(Protocol::Tcp, "[fd00::1]:80"),
    );
    let with = |server: VirtualServer, flags, persistence| VirtualServer {
        flags,
        persistence,
        ..server
    };
    let servers = vec![
        with(server(tcp, "rr"), 0, Some(10800)),
        with(server(udp, "mh"), FLAG_FALLBACK | FLAG_PORT, None),
        with(server(sctp, "sh"), FLAG_FALLBACK, None),
        with(server(six, "wrr"), 0, Some(600)),
    ];
    let destinations = vec![
        put(tcp, "10.244.1.5:6443", 1),
        put(tcp, "10.244.1.6:6443", 100),
        put(udp, "10.244.1.5:53", 0),
        put(sctp, "10.244.1.5:9", 1),
        put(six, "[fd00::5]:8080", 3),
    ];
    (servers, destinations)
}

const SAMPLES: [&str; 9] = [
    "-A -t 10.96.0.1:443 -s rr -p 10800",
    "-a -t 10.96.0.1:443 -r 10.244.1.5:6443 -m -w 1",
    "-a -t 10.96.0.1:443 -r 10.244.1.6:6443 -m -w 100",
    "-A -u 10.96.0.10:53 -s mh -b mh-fallback,mh-port",
    "-a -u 10.96.0.10:53 -r 10.244.1.5:53 -m -w 0",
    "-A --sctp-service 10.96.0.11:9 -s sh -b sh-fallback",
    "-a --sctp-service 10.96.0.11:9 -r 10.244.1.5:9 -m -w 1",
    "-A -t [fd00::1]:80 -s wrr -p 600",
    "-a -t [fd00::1]:80 -r [fd00::5]:8080 -m -w 3",
];

fn servers_are_as_the_tool_prints_them() {
    in_namespace(|| {
        let mut ipvs = Ipvs::open().unwrap();
        let (servers, destinations) = samples();
        let mut ops: Vec<IpvsOp> = servers.iter().copied().map(IpvsOp::PutServer).collect();
        ops.extend(destinations);
        let applied = ipvs.apply(&ops).unwrap();
        assert_eq!((applied.made, applied.deleted), (4, 0));
        assert_eq!(saved(), lines(&SAMPLES));
        // What is read is what was written.
        for family in Family::ALL {
            let is_of = |server: &VirtualServer| Family::of(server.key.address) == family;
            let mut read: Vec<VirtualServer> = Vec::new();
            read.extend(ipvs.servers(family).unwrap().iter().map(|one| one.server));
            let mut written: Vec<VirtualServer> = servers.iter().copied().filter(is_of).collect();
            read.sort_by_key(|server| server.key);
            written.sort_by_key(|server| server.key);
            assert_eq!(read, written);
        }
        let found = ipvs.destinations(&servers[0].key).unwrap();
        let mut weights: Vec<u32> = found.iter().map(|to| to.weight).collect();
        weights.sort_unstable();
        assert_eq!(weights, [1, 100]);
        let deletes: Vec<_> = servers
            .iter()
            .map(|one| IpvsOp::DeleteServer(one.key))
            .collect();
        assert_eq!(ipvs.apply(&deletes).unwrap().deleted, 4);
        assert_eq!(saved(), BTreeSet::new());
    });
}

fn what_is_there_is_changed_in_place() {
    in_namespace(|| {
        let mut ipvs = Ipvs::open().unwrap();
        let key = key(Protocol::Tcp, "10.96.0.1:80");
        ipvs.apply(&[
            IpvsOp::PutServer(server(key, "rr")),
            put(key, "10.244.1.5:80", 1),
        ])
        .unwrap();
        let changed = VirtualServer {
            persistence: Some(60),
            ..server(key, "wlc")
        };
        let applied = ipvs
            .apply(&[
                IpvsOp::PutServer(changed),
                put(key, "10.244.1.5:80", 7),
                put(key, "10.244.1.6:80", 2),
            ])
            .unwrap();
        assert_eq!(applied.made, 0);
        assert_eq!(
            saved(),
            lines(&[
                "-A -t 10.96.0.1:80 -s wlc -p 60",
                "-a -t 10.96.0.1:80 -r 10.244.1.5:80 -m -w 7",
                "-a -t 10.96.0.1:80 -r 10.244.1.6:80 -m -w 2",
            ])
        );
        // Persistence goes again.
        ipvs.apply(&[IpvsOp::PutServer(server(key, "wlc"))])
            .unwrap();
        assert!(saved().contains("-A -t 10.96.0.1:80 -s wlc"));
    });
}

fn a_refused_change_is_named() {
    in_namespace(|| {
        let mut ipvs = Ipvs::open().unwrap();
        let (one, none, two) = (
            key(Protocol::Tcp, "10.96.0.1:80"),
            key(Protocol::Tcp, "10.96.0.2:80"),
            key(Protocol::Tcp, "10.96.0.3:80"),
        );
        let ops = [
            IpvsOp::PutServer(server(one, "rr")),
            put(none, "10.244.1.5:80", 1),
            IpvsOp::PutServer(server(none, "nonesuch")),
            IpvsOp::PutServer(server(two, "rr")),
            put(two, "10.244.1.5:80", 1),
        ];
        let error = ipvs.apply(&ops).unwrap_err();
        assert!(matches!(&error, Error::Refused { op, others: 1, .. } if *op == ops[1]));
        assert_eq!(
            error.to_string(),
            "cannot apply `ipvs -a -t 10.96.0.2:80 -r 10.244.1.5:80 -m -w 1`: there is no such virtual server (and 1 more)"
        );
        // The others were made.
        assert_eq!(ipvs.servers(Family::V4).unwrap().len(), 2);
        assert_eq!(ipvs.destinations(&two).unwrap().len(), 1);
    });
}

fn what_is_gone_need_not_be_removed() {
    in_namespace(|| {
        let mut ipvs = Ipvs::open().unwrap();
        let (there, none) = (
            key(Protocol::Tcp, "10.96.0.1:80"),
            key(Protocol::Tcp, "10.96.0.2:80"),
        );
        ipvs.apply(&[IpvsOp::PutServer(server(there, "rr"))])
            .unwrap();
        let applied = ipvs.apply(&[
            IpvsOp::DeleteServer(none),
            remove(none, "10.244.1.5:80", DestinationRemoval::AtOnce),
            remove(there, "10.244.1.5:80", DestinationRemoval::Drain),
            remove(there, "10.244.1.5:80", DestinationRemoval::AtOnce),
        ]);
        assert_eq!(applied.unwrap().deleted, 0);
    });
}

/// Whether it was there before or not, and the other way round too: the last word holds.
fn what_is_made_and_removed_in_one_batch_is_gone() {
    in_namespace(|| {
        let mut ipvs = Ipvs::open().unwrap();
        let (one, two) = (
            key(Protocol::Tcp, "10.96.0.1:80"),
            key(Protocol::Tcp, "10.96.0.2:80"),
        );
        let put_one = [
            IpvsOp::PutServer(server(one, "rr")),
            put(one, "10.244.1.5:80", 1),
            put(one, "10.244.1.6:80", 1),
        ];
        let removed = [
            remove(one, "10.244.1.5:80", DestinationRemoval::AtOnce),
            remove(one, "10.244.1.6:80", DestinationRemoval::Drain),
        ];
        let gone = [
            IpvsOp::PutServer(server(two, "rr")),
            put(two, "10.244.1.5:80", 1),
            IpvsOp::DeleteServer(two),
        ];
        for was_there in [false, true] {
            if was_there {
                ipvs.apply(&[&put_one[..], &gone[..2]].concat()).unwrap();
            }
            let made = usize::from(!was_there);
            let applied = ipvs
                .apply(&[&put_one[..], &removed, &gone].concat())
                .unwrap();
            assert_eq!((applied.made, applied.deleted), (2 * made, 1));
            assert_eq!(
                saved(),
                lines(&[
                    "-A -t 10.96.0.1:80 -s rr",
                    "-a -t 10.96.0.1:80 -r 10.244.1.6:80 -m -w 0",
                ])
            );
            let ops = [&removed[..], &[IpvsOp::DeleteServer(one)], &put_one].concat();
            ipvs.apply(&ops).unwrap();
            assert_eq!(saved().len(), 3);
        }
    });
}

fn foreign_servers_stay_and_are_read() {
    in_namespace(|| {
        let foreign = "-A -f 7 -s rr\n-a -f 7 -r 10.0.0.1:0 -g -w 1\n\
                       -A -t 192.0.2.1:80 -s wlc\n-a -t 192.0.2.1:80 -r 10.0.0.1:80 -g -w 5\n";
        run_with("ipvsadm -R", foreign);
        let before = saved();
        let mut ipvs = Ipvs::open().unwrap();
        let key = key(Protocol::Tcp, "10.96.0.1:80");
        ipvs.apply(&[
            IpvsOp::PutServer(server(key, "rr")),
            put(key, "10.244.1.5:80", 1),
        ])
        .unwrap();
        // A server of a firewall mark has no address.
        assert_eq!(ipvs.servers(Family::V4).unwrap().len(), 2);
        ipvs.apply(&[IpvsOp::DeleteServer(key)]).unwrap();
        assert_eq!(saved(), before);
    });
}
