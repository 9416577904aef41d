//! Reading and deleting, below any judgement.

use std::net::{SocketAddrV4, UdpSocket};

use ferrovia_core::family::Family;
use ferrovia_host::conntrack::{FlowDeleter, FlowKey, FlowReader, SentTo};
use ferrovia_lab::conntrack::cleanup::at;
use ferrovia_lab::conntrack::{ConntrackEntry, SCTP, TCP, create};

use crate::support::{drop_privileges, entries, in_namespace, run, udp_flows};

fn keys(family: Family, sent_to: SentTo) -> Vec<FlowKey> {
    let mut keys = Vec::new();
    let mut reader = FlowReader::open().unwrap();
    reader
        .each(family, sent_to, |flow| keys.push(flow.key()))
        .unwrap();
    keys
}

fn v4(text: &str) -> SocketAddrV4 {
    text.parse().unwrap()
}

fn delete(family: Family, keys: &[FlowKey]) -> usize {
    FlowDeleter::open()
        .unwrap()
        .delete(family, keys.iter())
        .unwrap()
}

fn sample() -> Vec<ConntrackEntry> {
    let udp = |client, to, by| ConntrackEntry::udp(at(client), at(to), at(by));
    let tcp = udp("10.1.0.1:1000", "10.96.0.10:53", "10.244.0.1:53");
    vec![
        tcp,
        ConntrackEntry {
            protocol: TCP,
            ..tcp
        },
        ConntrackEntry {
            protocol: SCTP,
            ..tcp
        },
        udp("10.1.0.1:1001", "10.96.0.10:54", "10.244.0.1:54"),
        udp("10.1.0.1:1002", "10.96.0.11:53", "10.244.0.1:53"),
        udp("[fd00::1]:1000", "[fd96::10]:53", "[fd44::1]:53"),
    ]
}

#[test]
fn kernel_sends_only_flows_that_match_the_filter() {
    in_namespace(|| {
        create(sample().into_iter()).unwrap();
        let count = |family, sent_to| keys(family, sent_to).len();
        assert_eq!(count(Family::V4, SentTo::Anywhere), 3);
        assert_eq!(count(Family::V6, SentTo::Anywhere), 1);
        assert_eq!(count(Family::V4, SentTo::V4(v4("10.96.0.10:53"))), 1);
        assert_eq!(count(Family::V4, SentTo::V4(v4("10.96.0.12:53"))), 0);
        assert_eq!(count(Family::V4, SentTo::Port(53)), 2);
        assert_eq!(count(Family::V6, SentTo::Port(53)), 1);
        assert_eq!(count(Family::V6, SentTo::Port(54)), 0);
    });
}

#[test]
fn a_named_flow_goes_and_no_other() {
    in_namespace(|| {
        create(sample().into_iter()).unwrap();
        let one = keys(Family::V4, SentTo::V4(v4("10.96.0.10:53")));
        assert_eq!(delete(Family::V4, &one), 1);
        assert_eq!(entries(), 5);
        assert_eq!(delete(Family::V4, &one), 0, "it is gone");
        assert_eq!(delete(Family::V4, &[]), 0);
        assert_eq!(delete(Family::V6, &keys(Family::V6, SentTo::Anywhere)), 1);
        assert_eq!(entries(), 4);
    });
}

#[test]
fn refusal_of_one_flow_does_not_affect_the_next() {
    in_namespace(|| {
        create(sample().into_iter()).unwrap();
        let all = keys(Family::V4, SentTo::Anywhere);
        let mut deleter = FlowDeleter::open().unwrap();
        // No flow of this family can be named so: each of them is refused.
        let refused = deleter.delete(Family::V6, all.iter()).unwrap_err();
        assert!(
            refused.to_string().starts_with("cannot delete UDP flows: "),
            "{refused}"
        );
        assert_eq!(deleter.delete(Family::V4, all.iter()).unwrap(), all.len());
    });
}

#[test]
fn a_later_flow_between_the_same_ends_is_not_hit() {
    in_namespace(|| {
        let old = ConntrackEntry::udp(
            at("10.1.0.1:1000"),
            at("10.96.0.10:53"),
            at("10.244.0.1:53"),
        );
        let new = ConntrackEntry {
            answered_by: at("10.244.0.2:53"),
            ..old
        };
        create([old].into_iter()).unwrap();
        let named = keys(Family::V4, SentTo::Anywhere);
        assert_eq!(delete(Family::V4, &named), 1);
        create([new].into_iter()).unwrap();
        // In the same place of the kernel's memory it would have the same number; then something else must take that place.
        for n in 1..=100 {
            if keys(Family::V4, SentTo::Anywhere) != named {
                break;
            }
            assert_eq!(delete(Family::V4, &named), 1);
            let filler = ConntrackEntry {
                client: at(&format!("10.1.0.2:{n}")),
                protocol: SCTP,
                ..new
            };
            create([filler, new].into_iter()).unwrap();
        }
        assert_eq!(delete(Family::V4, &named), 0);
        assert_eq!(
            udp_flows(Family::V4),
            [(new.sent_to, new.answered_by)],
            "only its ends are the same"
        );
    });
}

#[test]
fn flows_are_found_in_every_zone() {
    in_namespace(|| {
        let plain = ConntrackEntry::udp(
            at("10.1.0.1:1000"),
            at("10.96.0.10:53"),
            at("10.244.0.1:53"),
        );
        create([ConntrackEntry { zone: 7, ..plain }, plain].into_iter()).unwrap();
        let both = keys(Family::V4, SentTo::V4(v4("10.96.0.10:53")));
        assert_eq!(both.len(), 2);
        assert_eq!(delete(Family::V4, &both), 2);
        assert_eq!(entries(), 0);
    });
}

#[test]
fn the_kernel_deletes_between_two_ends_by_itself() {
    in_namespace(|| {
        let mut all = sample();
        let moved = |n: u16| ConntrackEntry {
            client: at(&format!("10.1.0.9:{n}")),
            ..all[0]
        };
        let more: Vec<_> = (1..100).map(moved).collect();
        all.extend(more);
        // Neither to the same address by another endpoint, nor to another address by the same.
        all.push(ConntrackEntry {
            client: at("10.1.0.8:1"),
            answered_by: at("10.244.0.2:53"),
            ..all[0]
        });
        create(all.into_iter()).unwrap();
        let before = entries();
        let mut deleter = FlowDeleter::open().unwrap();
        let can = deleter
            .delete_between(v4("10.96.0.10:53"), v4("10.244.0.1:53"))
            .unwrap();
        let gone = if can { 100 } else { 0 };
        assert_eq!(
            entries(),
            before - gone,
            "all of them or, if it cannot, none"
        );
    });
}

#[test]
fn a_flow_that_packets_made_is_read_and_deleted_like_any_other() {
    in_namespace(|| {
        run("ip link set lo up");
        run("ip addr add 192.0.2.1/32 dev lo");
        run("ip route add 10.96.0.0/16 dev lo");
        run("nft add table ip t");
        run("nft add chain ip t out { type nat hook output priority -100 ; }");
        run("nft add rule ip t out ip daddr 10.96.0.10 udp dport 53 dnat to 192.0.2.1:5353");
        let server = UdpSocket::bind("192.0.2.1:5353").unwrap();
        let client = UdpSocket::bind("192.0.2.1:0").unwrap();
        client.send_to(b"?", "10.96.0.10:53").unwrap();
        let mut buffer = [0; 8];
        let (_, from) = server.recv_from(&mut buffer).unwrap();
        server.send_to(b"!", from).unwrap();
        client.recv_from(&mut buffer).unwrap();
        let flow = (at("10.96.0.10:53"), at("192.0.2.1:5353"));
        assert_eq!(udp_flows(Family::V4), [flow]);
        let named = keys(Family::V4, SentTo::V4(v4("10.96.0.10:53")));
        assert_eq!(delete(Family::V4, &named), 1);
        assert_eq!(udp_flows(Family::V4), []);
    });
}

#[test]
fn without_the_right_the_error_says_what_was_tried() {
    in_namespace(|| {
        drop_privileges();
        let read = FlowReader::open()
            .and_then(|mut reader| reader.each(Family::V4, SentTo::Anywhere, |_| {}))
            .unwrap_err();
        assert_eq!(
            read.to_string(),
            "cannot read the UDP flows: Operation not permitted"
        );
    });
}
