//! Upgrades and rollbacks in place, under traffic.
//!
//! `tables/` has what earlier versions wrote for `services.yaml`, as they sent it to the kernel. After a change of the table's layout
//! `scripts/record-table` adds what the last version before it wrote, as another folder; the tests below take every folder they find.
//!
//! The earlier version itself does not run here. Going forward its table stands in the kernel and packets pass through it. Going back its
//! rules replace ours in our table, which is what it does there, as long as it does not find anything that makes it start from scratch: that
//! no set and no hook of ours is unknown to it is tested too.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use ferrovia_core::dialect::nft::{NftObserved, ObservedSet};
use ferrovia_core::family::Family;
use ferrovia_core::plan::nft::layout::TABLE;
use ferrovia_host::nft::Nft;
use ferrovia_lab::client::{Call, Caller, PATIENCE};
use ferrovia_lab::daemon::{TestNode, answered_throughout};
use ferrovia_lab::{Outcome, Protocol, Role};
use ferrovia_netlink::uapi::netlink::NLM_F_REQUEST;
use ferrovia_netlink::uapi::nf_tables::{
    NFT_MSG_DELRULE, NFT_MSG_NEWCHAIN, NFT_MSG_NEWRULE, NFTA_RULE_TABLE,
};
use ferrovia_netlink::uapi::nfnetlink::{
    NFNL_MSG_BATCH_BEGIN, NFNL_MSG_BATCH_END, NFNL_SUBSYS_NFTABLES,
};
use ferrovia_netlink::{self as netlink, Header, Refusal, Socket, Writer, messages, nfnetlink};

use super::counters::{Counts, counts as counted};
use super::filled_sets::{Client, endpoint};
use crate::FERROVIA;

const SERVICES: &str = include_str!("upgrade/services.yaml");

const NEW_CHAIN: u16 = nfnetlink::message_type(NFNL_SUBSYS_NFTABLES, NFT_MSG_NEWCHAIN);
const NEW_RULE: u16 = nfnetlink::message_type(NFNL_SUBSYS_NFTABLES, NFT_MSG_NEWRULE);
const DELETE_RULE: u16 = nfnetlink::message_type(NFNL_SUBSYS_NFTABLES, NFT_MSG_DELRULE);

/// What one version wrote for each family.
struct Recorded {
    name: String,
    batches: [Vec<u8>; 2],
}

fn recorded() -> Vec<Recorded> {
    let tables = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/daemon/upgrade/tables");
    let folders = fs::read_dir(&tables).expect("the folder is there");
    let mut all: Vec<Recorded> = folders
        .map(|folder| {
            let folder = folder.expect("it can be read").path();
            let batch = |name: &str| fs::read(folder.join(name)).expect("both families are there");
            Recorded {
                name: folder.display().to_string(),
                batches: [batch("ip.batch"), batch("ip6.batch")],
            }
        })
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(!all.is_empty(), "no recorded table in {tables:?}");
    all
}

/// Sends a transaction to nf_tables in the node's namespace.
fn send(node: &TestNode, batch: &[u8]) {
    let _inside = node.world.enter(Role::Node).expect("it can be entered");
    let mut socket = Socket::open(netlink::Protocol::Netfilter).expect("it can be opened");
    socket.send(batch).expect("the kernel takes it");
    while let Some(answers) = socket.try_receive().expect("the kernel answers") {
        for message in messages(answers) {
            if let Some(Err(refusal)) = Refusal::read(&message) {
                panic!("message {}: {refusal}", message.seq);
            }
        }
    }
}

/// The chains and rules of a recorded transaction, in the place of all rules that are there.
fn only_rules(family: u8, batch: &[u8]) -> Vec<u8> {
    let mut writer = Writer::with_capacity(batch.len());
    for message in messages(batch) {
        let header = Header {
            kind: message.kind,
            flags: message.flags,
            seq: message.seq,
        };
        let is_kept = [
            NFNL_MSG_BATCH_BEGIN,
            NEW_CHAIN,
            NEW_RULE,
            NFNL_MSG_BATCH_END,
        ]
        .contains(&message.kind);
        if is_kept {
            writer.message(header, |w| w.raw(message.body));
        }
        if message.kind == NFNL_MSG_BATCH_BEGIN {
            let all_rules = Header {
                kind: DELETE_RULE,
                flags: NLM_F_REQUEST,
                ..header
            };
            writer.message(all_rules, |w| {
                w.raw(&nfnetlink::header(family));
                w.text(NFTA_RULE_TABLE, TABLE);
            });
        }
    }
    writer.finish().expect("it is shorter than it was")
}

fn observe(node: &TestNode, family: Family) -> NftObserved {
    let _inside = node.world.enter(Role::Node).expect("it can be entered");
    let mut nft = Nft::open().expect("nf_tables answers");
    let observed = nft.observe(family, TABLE, &[]);
    observed.expect("the table can be read")
}

/// Clients of the Service with affinity, by an address of each family.
const CLIENTS: [(Client, &str); 8] = [
    ((Role::PodC, None), "10.96.0.40:80"),
    ((Role::PodD, None), "10.96.0.40:80"),
    ((Role::Outside, Some("192.0.2.9")), "203.0.113.40:80"),
    ((Role::Outside, Some("192.0.2.77")), "203.0.113.40:80"),
    ((Role::Outside, Some("203.0.113.200")), "10.96.0.40:80"),
    ((Role::PodC, None), "[fd00:10:96::40]:80"),
    ((Role::PodD, None), "[fd00:10:96::40]:80"),
    ((Role::Outside, None), "[fd00:10:96::40]:80"),
];

/// What must not be lost.
struct Before {
    connection: Call,
    endpoints: Vec<SocketAddr>,
    counts: Vec<Counts>,
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address and port")
}

fn clients(node: &TestNode) -> Vec<SocketAddr> {
    let endpoints = CLIENTS.map(|(client, to)| endpoint(node, client, address(to)));
    endpoints.into()
}

fn counts(node: &TestNode) -> Vec<Counts> {
    let families = ["IPv4", "IPv6"];
    families
        .map(|family| counted(node, "default/sticky", family))
        .into()
}

impl Before {
    fn of(node: &TestNode) -> Self {
        let caller = Caller::enter(&node.world, Role::Outside).expect("it can be entered");
        let to = address("198.51.100.10:30080");
        let mut connection = caller
            .start(Protocol::Tcp, None, to)
            .expect("it can be started");
        let outcome = connection.finish(std::time::Instant::now() + PATIENCE);
        assert!(matches!(outcome, Outcome::Answer(_)), "{outcome}");
        drop(caller);
        let endpoints = clients(node);
        Self {
            connection,
            endpoints,
            counts: counts(node),
        }
    }

    /// Nothing was lost: one more call of each client goes where the first went, and is counted with it.
    fn check(mut self, node: &TestNode) {
        let echo = self.connection.repeat(PATIENCE);
        echo.expect("the connection lives on");
        assert_eq!(counts(node), self.counts, "{}", node.log());
        assert_eq!(clients(node), self.endpoints, "{}", node.log());
        let twice = |counts: &Counts| -> Counts {
            let twice = counts.iter().map(|(of, count)| (of.clone(), 2 * count));
            twice.collect()
        };
        let expected: Vec<Counts> = self.counts.iter().map(twice).collect();
        assert_eq!(counts(node), expected, "{}", node.log());
    }
}

#[test]
fn tables_of_earlier_versions_are_taken_over_without_loss() {
    for recorded in recorded() {
        let node = TestNode::new(FERROVIA);
        node.write("services.yaml", SERVICES);
        recorded.batches.iter().for_each(|batch| send(&node, batch));
        let before = Before::of(&node);
        answered_throughout(&node, || node.start());
        before.check(&node);
    }
}

#[test]
fn earlier_versions_take_our_table_back_without_loss() {
    for recorded in recorded() {
        let theirs = TestNode::new(FERROVIA);
        recorded
            .batches
            .iter()
            .for_each(|batch| send(&theirs, batch));
        let node = TestNode::new(FERROVIA);
        node.write("services.yaml", SERVICES);
        node.start();
        for family in Family::ALL {
            assert_fits(&observe(&node, family), &observe(&theirs, family));
        }
        let before = Before::of(&node);
        node.stop(libc::SIGTERM);
        answered_throughout(&node, || {
            let families = [libc::NFPROTO_IPV4, libc::NFPROTO_IPV6];
            for (family, batch) in families.into_iter().zip(&recorded.batches) {
                send(&node, &only_rules(family as u8, batch));
            }
        });
        before.check(&node);
        // And forward again.
        answered_throughout(&node, || node.start());
        let endpoints = clients(&node);
        assert_eq!(clients(&node), endpoints, "{}", node.log());
    }
}

/// An earlier version starts from scratch if it finds a set or a hook that it would not make, and all counts and affinities are lost.
fn assert_fits(ours: &NftObserved, theirs: &NftObserved) {
    let without_elements = |observed: &NftObserved| -> BTreeMap<String, ObservedSet> {
        let sets = observed.sets.iter().map(|(name, set)| {
            let set = ObservedSet {
                elements: Default::default(),
                ..set.clone()
            };
            (name.clone(), set)
        });
        sets.collect()
    };
    let known = without_elements(theirs);
    for (name, set) in without_elements(ours) {
        assert_eq!(Some(&set), known.get(&name), "set {name}");
    }
    let hooks = ours.chains.iter().filter(|(_, chain)| chain.hook.is_some());
    for (name, chain) in hooks {
        let known = theirs.chains.get(name).and_then(|chain| chain.hook);
        assert_eq!(chain.hook, known, "hook {name}");
    }
    assert_eq!(ours.oddities, [""; 0]);
}
