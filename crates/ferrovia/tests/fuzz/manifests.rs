//! Manifest files: an error always has a position in the file, and valid objects never result in rules that the kernel would reject.

use std::net::IpAddr;
use std::path::Path;

use clap::Parser as _;
use ferrovia::cli::ShapeFlags;
use ferrovia::source::manifest::decode::{Format, decode};
use ferrovia_core::desired::{Builder, NodeSettings};
use ferrovia_core::dialect::{iptables, nft};
use ferrovia_core::family::Family;
use ferrovia_core::plan::iptables::{IptablesObserved, IptablesOptions, IptablesPlanner};
use ferrovia_core::plan::nft::NftPlanner;
use ferrovia_core::plan::{ObservedPolicy, Planner as _};
use ferrovia_core::store::{Event, Store};
use ferrovia_core::wire::Kind;
use ferrovia_lab::fuzz::FuzzTarget;
use ferrovia_lab::layout::NODE_ADDRESSES;

use super::corpus;

/// Tokens of the parsers and of later stages.
const PIECES: &[&[u8]] = &[
    b"---\n",
    b"...\n",
    b"\n",
    b"\r\n",
    b"\t",
    b"  ",
    b": ",
    b"- ",
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b"'",
    b"&a ",
    b"*a",
    b"<<: ",
    b"|\n",
    b"null",
    b"!!binary ",
    b"%YAML 1.2\n",
    b"\xef\xbb\xbf",
    b"\xff",
    b"kind: List\n",
    b"0",
    b"-1",
    b"65536",
    b"1e99",
    b"::",
    b"0.0.0.0",
    b"::ffff:10.0.0.1",
    b"/0",
    b"; drop",
    b"\\n-A",
    b"IPv6",
    b"SCTP",
    b"Local",
    b"ClientIP",
    b"ExternalName",
    b"loadBalancerSourceRanges: [0.0.0.0/0, ::/0]\n",
];

#[test]
fn mutated_files_give_objects_or_an_error_with_a_position() {
    let folder = corpus("manifest");
    let target = FuzzTarget {
        name: "manifests",
        corpus: &folder,
        pieces: PIECES,
        longest: 16 * 1024,
    };
    let settings = default_settings();
    target.run(|seed, bytes| {
        let format = Format::of(Path::new(&seed.name)).unwrap();
        let objects = check(bytes, format);
        if !objects.is_empty() {
            check_rules(&settings, objects);
        }
    });
}

/// The flags of `ferrovia run` that settings are made from.
#[derive(clap::Parser)]
struct Flags {
    #[command(flatten)]
    shape: ShapeFlags,
}

fn default_settings() -> NodeSettings {
    let flags = Flags::parse_from(["fuzz", "--node-name=node-1"]);
    flags.shape.settings().unwrap()
}

/// The events of a cluster with a Node and no Services.
fn empty_cluster() -> Vec<Event> {
    const NODE: &str = "{ kind: Node, metadata: { name: node-1 }, status: { addresses: [
        { type: InternalIP, address: 198.51.100.10 }, { type: InternalIP, address: '2001:db8:51::10' }] } }";
    let node = decode(NODE.as_bytes(), Format::Yaml).unwrap();
    let applied = node.into_iter().map(|node| Event::Applied(node.object));
    applied.chain(Kind::ALL.map(Event::Listed)).collect()
}

fn check(bytes: &[u8], format: Format) -> Vec<Event> {
    // In YAML a carriage return alone ends a line, too.
    let is_end = |byte: &&u8| matches!(**byte, b'\n' | b'\r');
    let lines = 1 + bytes.iter().filter(is_end).count();
    match decode(bytes, format) {
        Ok(objects) => {
            for found in &objects {
                assert!((1..=lines).contains(&found.line), "line {}", found.line);
                assert!(!found.object.metadata().name.is_empty());
            }
            let applied = objects
                .into_iter()
                .map(|found| Event::Applied(found.object));
            applied.collect()
        }
        Err(error) => {
            assert!((1..=lines).contains(&error.line), "{error}, of {lines}");
            assert!(
                error.column != Some(0) && !error.what.is_empty(),
                "{error:?}"
            );
            assert!(!error.what.contains(char::is_control), "{error:?}");
            Vec::new()
        }
    }
}

/// Strict simulators of the kernel accept the plans of both modes.
fn check_rules(settings: &NodeSettings, objects: Vec<Event>) {
    let mut store = Store::new(&settings.node_name);
    let mut builder = Builder::new(settings.clone());
    let addresses: [IpAddr; 4] = NODE_ADDRESSES;
    for event in empty_cluster().into_iter().chain(objects) {
        for warning in store.handle(event) {
            one_line(&warning.to_string());
        }
    }
    let mut touched = store.take_touched();
    touched.node = true;
    let update = builder.update(&store, touched, &addresses);
    for warning in &update.warnings {
        one_line(&warning.to_string());
    }
    for family in Family::ALL {
        let desired = builder.desired(family);
        let nothing = nft::NftObserved::default();
        let plan = NftPlanner::new(family, true).full(desired, &nothing, ObservedPolicy::Adopt);
        let mut kernel = nft::sim::NftSim::default();
        kernel
            .apply(&plan)
            .unwrap_or_else(|why| panic!("{why}\n{plan}"));
        let mut planner = IptablesPlanner::new(family, IptablesOptions::default());
        let plan = planner.full(desired, &IptablesObserved::default(), ObservedPolicy::Adopt);
        let mut kernel = iptables::sim::IptablesSim::default();
        let restored = kernel.restore(&plan.to_string());
        restored.unwrap_or_else(|why| panic!("{why}\n{plan}"));
    }
}

/// Asserts that a text fits on one line of a log.
fn one_line(text: &str) {
    assert!(!text.contains(char::is_control), "{text:?}");
}
