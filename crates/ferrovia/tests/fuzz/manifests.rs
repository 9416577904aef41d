//! Files of objects: an error always points into the file, and objects that could be read never make rules that a kernel would refuse.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use ferrovia::source::manifest::decode::{Format, decode};
use ferrovia_core::desired::{Builder, NodeSettings};
use ferrovia_core::dialect::{iptables, nft};
use ferrovia_core::family::Family;
use ferrovia_core::plan::iptables::{IptablesObserved, IptablesOptions, IptablesPlanner};
use ferrovia_core::plan::nft::NftPlanner;
use ferrovia_core::plan::{ObservedPolicy, Planner as _};
use ferrovia_core::store::{Event, Store};
use ferrovia_lab::fuzz::Target;
use ferrovia_lab::layout::NODE_ADDRESSES;

use super::common::objects::Objects;
use super::{common, corpus};

/// Pieces that mean something to the parsers, and to what comes after them.
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
fn hostile_files_give_objects_or_an_error_inside_the_file() {
    let folder = corpus("manifest");
    let target = Target {
        name: "manifests",
        corpus: &folder,
        pieces: PIECES,
        longest: 16 * 1024,
    };
    let settings = common::settings(&BTreeMap::new());
    target.run(|seed, bytes| {
        let format = Format::of(Path::new(&seed.name)).unwrap();
        let objects = check(bytes, format);
        if !objects.is_empty() {
            rules_are_right(&settings, objects);
        }
    });
}

fn check(bytes: &[u8], format: Format) -> Vec<Event> {
    // To YAML a carriage return alone ends a line, too.
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

/// Strict stand-ins for the kernel take what both modes make of the objects.
fn rules_are_right(settings: &NodeSettings, objects: Vec<Event>) {
    let mut store = Store::new(&settings.node_name);
    let mut builder = Builder::new(settings.clone());
    let addresses: [IpAddr; 4] = NODE_ADDRESSES;
    let start = Objects::default().start().into_iter();
    for event in start.chain(objects) {
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

/// Goes into a log.
fn one_line(text: &str) {
    assert!(!text.contains(char::is_control), "{text:?}");
}
