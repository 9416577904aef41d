//! What the tools need by themselves, without any proxy, to bring about the state that the daemon has written: each gets all of it in one
//! call, in the words in which it saved it, in a namespace of its own.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use ferrovia_core::plan::ipvs::DEVICE;
use ferrovia_lab::{Role, Spec, World};

use crate::api::daemon::Node;
use crate::feed::feed;

/// What the tools needed.
pub(super) struct Floor {
    /// `ipvsadm -R`.
    pub(super) servers: Duration,
    /// `ipset restore`.
    pub(super) sets: Duration,
    /// `ip -batch`, for the device's addresses.
    pub(super) addresses: Duration,
}

/// Measures it in a world of its own.
pub(super) fn measure(node: &Node) -> anyhow::Result<Floor> {
    let servers = said(node, "ipvsadm", &["-Sn"])?;
    let sets = said(node, "ipset", &["save"])?;
    let addresses = said(node, "ip", &["-o", "addr", "show", "dev", DEVICE])?;
    let addresses: String = addresses.lines().filter_map(addition).collect();

    let world = World::new(Spec {
        ports: Vec::new(),
        ..Spec::default()
    })?;
    // This thread goes there itself: to start a program elsewhere, this whole process, which is large, would have to be copied first.
    let _inside = world.enter(Role::Node)?;
    let run = |program: &str, arguments: &[&str], input: &str| {
        feed(Command::new(program).args(arguments), input)
    };
    run("ip", &["link", "add", DEVICE, "type", "dummy"], "")?;
    Ok(Floor {
        servers: run("ipvsadm", &["-R"], &servers)?,
        sets: run("ipset", &["restore"], &sets)?,
        addresses: run("ip", &["-batch", "-"], &addresses)?,
    })
}

/// What adds an address that the tool has listed, as `7: kube-ipvs0    inet 10.96.0.1/32 scope …`.
fn addition(line: &str) -> Option<String> {
    let mut words = line
        .split_whitespace()
        .skip_while(|word| !word.starts_with("inet"));
    let (_, address) = (words.next()?, words.next()?);
    Some(format!("addr add {address} dev {DEVICE}\n"))
}

fn said(node: &Node, program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = node.world.exec(Role::Node, program);
    let output = command.args(arguments).output();
    let output = output.with_context(|| format!("cannot start {program}"))?;
    ensure!(output.status.success(), "{program} {arguments:?} fails");
    Ok(String::from_utf8(output.stdout)?)
}
