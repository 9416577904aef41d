//! `ferrovia doctor`

use std::process::ExitCode;

use clap::Args;
use ferrovia_core::store::Store;

use super::objects::{SourceFlags, read};
use super::output::{Format, is_coloured, print};
use crate::inspect::doctor::text::{Colour, Text};
use crate::inspect::doctor::{Asked, NodePort, examine, gather, to_json};

/// What the program ends with if it could not look.
const COULD_NOT_LOOK: u8 = 3;

/// Flags of `ferrovia doctor`.
#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    #[command(flatten)]
    source: SourceFlags,

    /// Name of this node [default: the host name]
    #[arg(long, value_name = "NAME", alias = "hostname-override")]
    node_name: Option<String>,

    /// How to print the report
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Format,

    /// Leave out the self-test, which calls Services in a network namespace made for the purpose
    #[arg(long)]
    no_self_test: bool,
}

/// Looks at this node and prints what it found. Could it not even begin, that is another exit code than bad news.
pub(super) fn doctor(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let asked = match asked(args) {
        Ok(asked) => asked,
        Err(error) => {
            eprintln!("ferrovia: {error:#}");
            return Ok(ExitCode::from(COULD_NOT_LOOK));
        }
    };
    let report = examine(&gather(&asked));
    match args.output {
        Format::Json => print(format_args!("{:#}\n", to_json(&report)))?,
        Format::Text => print(Text {
            report: &report,
            colour: if is_coloured() {
                Colour::On
            } else {
                Colour::Off
            },
        })?,
    }
    Ok(ExitCode::from(report.exit_code()))
}

fn asked(args: &DoctorArgs) -> anyhow::Result<Asked> {
    let mut asked = Asked {
        self_test: !args.no_self_test,
        ..Asked::default()
    };
    if args.source.is_named() {
        let node_name = args.node_name.as_deref();
        let config = args.source.configuration(node_name, Vec::new(), None)?;
        asked.mode = config.mode;
        asked.node_ports = Some(node_ports(&mut read(&config)?.checked()?));
    }
    Ok(asked)
}

fn node_ports(store: &mut Store) -> Vec<NodePort> {
    let keys = store.take_touched().services;
    let services = keys.iter().filter_map(|key| store.service(key));
    let mut found = Vec::new();
    for service in services {
        for port in &service.ports {
            let Some(node_port) = port.node_port else {
                continue;
            };
            let service = match &*port.name {
                "" => service.key.to_string(),
                name => format!("{}:{name}", service.key),
            };
            found.push(NodePort {
                port: node_port,
                protocol: port.protocol,
                service,
            });
        }
    }
    found
}
