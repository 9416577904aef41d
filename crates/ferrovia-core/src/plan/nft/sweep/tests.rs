use std::convert::Infallible;
use std::net::IpAddr;

use super::super::layout::port_id;
use super::*;

fn affinity(client: u32, port: u32, expires: u64) -> DynamicEntry {
    let client = IpAddr::from(client.to_be_bytes());
    let key = KeyBuilder::new().ip(client).number(port_id(port)).build();
    DynamicEntry { key, expires }
}

/// Where a connection went does not matter.
fn count(address: [u8; 4], port: u16, expires: u64) -> DynamicEntry {
    let went = KeyBuilder::new().ip([10, 244, 1, 10].into()).port(8080);
    let key = went
        .ip(address.into())
        .proto(Protocol::Tcp)
        .port(port)
        .build();
    DynamicEntry { key, expires }
}

fn tcp(address: Option<[u8; 4]>, port: u16) -> PacketDestination {
    PacketDestination {
        address: address.map(Into::into),
        protocol: Protocol::Tcp.number(),
        port,
    }
}

fn departed(frontends: impl IntoIterator<Item = PacketDestination>) -> RemovedFrontends {
    RemovedFrontends {
        frontends: frontends.into_iter().collect(),
        ..RemovedFrontends::default()
    }
}

/// A table with these elements.
fn table(
    has: Vec<(NftSetId, ElementKey)>,
) -> impl FnMut(NftSetId, ElementKey) -> Result<bool, Infallible> {
    move |set, key| Ok(has.contains(&(set, key)))
}

fn first_slot(port: u32) -> (NftSetId, ElementKey) {
    let key = KeyBuilder::new().number(port_id(port)).number(0).build();
    (NftSetId::StickySlots, key)
}

fn frontend(set: NftSetId, to: PacketDestination) -> (NftSetId, ElementKey) {
    (set, destination_key(to.address, Protocol::Tcp, to.port))
}

fn read(entries: Vec<DynamicEntry>, was_full: bool) -> DynamicSetDump {
    DynamicSetDump {
        entries,
        is_all: true,
        was_full,
    }
}

fn keys(entries: &[DynamicEntry]) -> Vec<ElementKey> {
    let mut keys: Vec<ElementKey> = entries.iter().map(|entry| entry.key.clone()).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn affinities_of_ports_without_a_list_go() {
    let live = [affinity(1, 7, 5), affinity(2, 7, 5)];
    let dead = [affinity(1, 8, 5)];
    let entries = [&live[..], &dead[..]].concat();
    let Ok(swept) = sweep(
        Family::V4,
        NftSetId::Affinity,
        read(entries, false),
        &RemovedFrontends::anything(),
        table(vec![first_slot(7)]),
    );
    assert_eq!(swept.service_gone, keys(&dead));
    assert_eq!(swept.no_room, []);
}

#[test]
fn counts_of_a_frontend_go_with_it_even_if_another_service_has_it_by_now() {
    let (a, b) = ([10, 96, 0, 1], [10, 96, 0, 2]);
    let entries = vec![count(a, 80, 5), count(b, 80, 5)];
    let both = [tcp(Some(a), 80), tcp(Some(b), 80)];
    let Ok(swept) = sweep(
        Family::V4,
        NftSetId::Connections,
        read(entries.clone(), false),
        &departed([tcp(Some(a), 80)]),
        table(both.map(|to| frontend(NftSetId::Services, to)).to_vec()),
    );
    assert_eq!(swept.service_gone, keys(&entries[..1]));
}

#[test]
fn counts_of_a_node_port_go_with_it_unless_an_address_has_the_same_number() {
    let (node, listed) = ([192, 0, 2, 1], [192, 0, 2, 2]);
    let entries = vec![count(node, 30080, 5), count(listed, 30080, 5)];
    let Ok(swept) = sweep(
        Family::V4,
        NftSetId::Connections,
        read(entries.clone(), false),
        &departed([tcp(None, 30080)]),
        table(vec![frontend(NftSetId::Services, tcp(Some(listed), 30080))]),
    );
    assert_eq!(swept.service_gone, keys(&entries[..1]));
}

#[test]
fn after_a_restart_counts_stay_that_any_frontend_has() {
    let entries = vec![
        count([10, 96, 0, 1], 80, 5),
        count([10, 96, 0, 2], 80, 5),
        count([192, 0, 2, 1], 30080, 5),
        count([10, 96, 0, 3], 80, 5),
    ];
    let has = vec![
        frontend(NftSetId::Services, tcp(Some([10, 96, 0, 1]), 80)),
        frontend(NftSetId::RejectedServices, tcp(Some([10, 96, 0, 2]), 80)),
        frontend(NftSetId::DroppedNodePorts, tcp(None, 30080)),
    ];
    let Ok(swept) = sweep(
        Family::V4,
        NftSetId::Connections,
        read(entries.clone(), false),
        &RemovedFrontends::anything(),
        table(has),
    );
    assert_eq!(swept.service_gone, keys(&entries[3..]));
}

#[test]
fn a_full_affinity_map_takes_from_the_port_that_holds_most_what_expires_first() {
    let flooded = (0..200_000).map(|n| affinity(n, 1, u64::from(n)));
    let modest = (0..50_000).map(|n| affinity(n, 2, 0));
    let entries: Vec<DynamicEntry> = flooded.chain(modest).collect();
    let Ok(swept) = sweep(
        Family::V4,
        NftSetId::Affinity,
        read(entries, true),
        &RemovedFrontends::default(),
        table(vec![first_slot(1), first_slot(2)]),
    );
    let room = 262_144 / 100 * KEPT;
    let gone: Vec<DynamicEntry> = (0..250_000 - room as u32)
        .map(|n| affinity(n, 1, 0))
        .collect();
    assert_eq!(swept.no_room, keys(&gone));
}

#[test]
fn a_sample_of_a_full_map_makes_as_much_room_and_is_as_fair() {
    let sample = enough(Family::V4, NftSetId::Affinity, &RemovedFrontends::default()) as u32;
    let flooded = (0..sample - 1000).map(|n| affinity(n, 1, u64::from(n)));
    let modest = (0..1000).map(|n| affinity(n, 2, 0));
    let Ok(swept) = sweep(
        Family::V4,
        NftSetId::Affinity,
        DynamicSetDump {
            is_all: false,
            ..read(flooded.chain(modest).collect(), true)
        },
        &RemovedFrontends::default(),
        table(vec![first_slot(1), first_slot(2)]),
    );
    let gone = (0..262_144 / 100 * 25).map(|n| affinity(n, 1, 0));
    assert_eq!(swept.no_room, keys(&gone.collect::<Vec<_>>()));
}

#[test]
fn a_full_set_of_counts_forgets_those_that_have_not_grown_for_longest() {
    let has = vec![frontend(NftSetId::NodePorts, tcp(None, 80))];
    let address = |n: u32| n.to_be_bytes();
    let entries: Vec<DynamicEntry> = (0..131_072)
        .map(|n| count(address(n), 80, u64::from(n)))
        .collect();
    let Ok(swept) = sweep(
        Family::V4,
        NftSetId::Connections,
        read(entries.clone(), false),
        &RemovedFrontends::default(),
        table(has),
    );
    let kept = 131_072 / 100 * KEPT;
    assert_eq!(swept.no_room, keys(&entries[..131_072 - kept]));
}

#[test]
fn shares_are_fair() {
    assert_eq!(fair_share(vec![10, 20], 30), usize::MAX);
    assert_eq!(fair_share(vec![10, 20], 29), 19);
    assert_eq!(fair_share(vec![100, 1, 100], 21), 10);
    assert_eq!(fair_share(vec![], 10), usize::MAX);
}
