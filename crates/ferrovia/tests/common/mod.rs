//! What the test binaries share: a cluster whose node runs the engine, and the same on paper.
#![allow(dead_code, reason = "every test binary uses another part of this")]

pub(crate) mod cluster;
pub(crate) mod objects;
pub(crate) mod paper;
pub(crate) mod prediction;
pub(crate) mod random;

use std::collections::BTreeMap;

use clap::Parser;
use ferrovia::cli::ShapeFlags;
use ferrovia_core::desired::NodeSettings;

/// The option of a case that is none: it is of the world the case is played in.
const WORLD_OPTION: &str = "bridge";

/// Options of a case are the flags of `ferrovia run`.
#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    shape: ShapeFlags,
}

/// The settings that a case's options mean.
pub(crate) fn settings(options: &BTreeMap<String, String>) -> NodeSettings {
    let flags = options
        .iter()
        .filter(|(key, value)| key.as_str() != WORLD_OPTION && *value != "false")
        .map(|(key, value)| {
            if value == "true" {
                format!("--{key}")
            } else {
                format!("--{key}={value}")
            }
        });
    let flags = ["case", "--node-name=node-1"]
        .map(String::from)
        .into_iter()
        .chain(flags);
    let flags = Flags::try_parse_from(flags).unwrap_or_else(|error| panic!("node.yaml: {error}"));
    flags
        .shape
        .settings()
        .unwrap_or_else(|error| panic!("node.yaml: {error:#}"))
}
