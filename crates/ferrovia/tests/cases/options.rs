//! The options of a case (`node.yaml`) as settings of the proxy.

use std::collections::BTreeMap;

use clap::Parser;
use ferrovia::cli::ShapeFlags;
use ferrovia::mode::IptablesMode;
use ferrovia_core::desired::{NodePortSetting, NodeSettings};

/// The option of a case that is not a flag: it describes the lab.
const WORLD_OPTION: &str = "bridge";

/// Options of a case are the flags of `ferrovia run`.
#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    shape: ShapeFlags,
}

/// The settings for the options of a case.
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

/// The iptables mode for the options of a case. Node ports answer on loopback only where they answer on all addresses.
pub(crate) fn iptables_mode(options: &BTreeMap<String, String>) -> IptablesMode {
    IptablesMode {
        localhost_node_ports: matches!(settings(options).node_ports, NodePortSetting::Any),
    }
}
