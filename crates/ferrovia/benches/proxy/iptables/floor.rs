//! What the restoring tool needs by itself, without any proxy: for the whole ruleset at once, and for the smallest input that makes a change.
//!
//! The ruleset is the one the daemon has written, as the saving tool prints it, loaded into a namespace of its own by one plain call.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use ferrovia_host::iptables::{AcctCounter, AcctCounters, Backend};
use ferrovia_lab::{Pod, Role, Spec, World};

use crate::api::daemon::{Launch, Node};
use crate::api::objects;
use crate::cluster::{PORT, Size, TARGET_PORT};
use crate::feed::feed;
use crate::figures::Samples;

/// What the tool needed.
pub(super) struct Floor {
    /// For the whole ruleset in one call, which nothing is prepared for.
    pub(super) load: Duration,
    /// To lead one service to another endpoint.
    pub(super) change: Samples,
    /// For one service more.
    pub(super) addition: Samples,
}

/// Measures it in a world of its own.
pub(super) fn measure(
    node: &Node,
    launch: &Launch,
    size: Size,
    backend: Backend,
    times: usize,
) -> anyhow::Result<Floor> {
    let save = node
        .world
        .exec(Role::Node, &format!("{backend}-save"))
        .envs(launch.environment.clone())
        .output()
        .with_context(|| format!("cannot start {backend}-save"))?;
    ensure!(save.status.success(), "{backend}-save fails");
    let ruleset = String::from_utf8(save.stdout)?;

    let world = World::new(Spec {
        ports: vec![TARGET_PORT],
        ..Spec::default()
    })?;
    // This thread goes there itself: to start a program elsewhere, this whole process, which is large, would have to be copied first.
    let _inside = world.enter(Role::Node)?;
    make_counters()?;
    let restore = |flags: &[&str], input: &str| {
        let mut command = Command::new(format!("{backend}-restore"));
        feed(command.envs(launch.environment.clone()).args(flags), input)
    };
    let load = restore(&[], &ruleset)?;
    let service = chain_of(&ruleset, size.last())?;
    let (mut change, mut addition) = (Samples::default(), Samples::default());
    for n in 0..times {
        let pod = if n % 2 == 0 { Pod::C } else { Pod::B };
        change.add(restore(&["--noflush"], &changed(service, pod))?);
        addition.add(restore(&["--noflush"], &added(size.services + n))?);
    }
    Ok(Floor {
        load,
        change,
        addition,
    })
}

/// Makes what the rules count into, which the restoring tool cannot.
fn make_counters() -> anyhow::Result<()> {
    let mut counters = AcctCounters::open()?;
    // Where the kernel has none the rules do without.
    for counter in [AcctCounter::Invalid, AcctCounter::Localhost] {
        let _ = counters.ensure(counter);
    }
    Ok(())
}

/// The chain that a service's address leads to.
fn chain_of(ruleset: &str, service: usize) -> anyhow::Result<&str> {
    let address = format!("-A KUBE-SERVICES -d {}/32 ", objects::address(service).ip());
    let rule = ruleset.lines().find(|line| line.starts_with(&address));
    rule.and_then(|rule| rule.split_whitespace().last())
        .with_context(|| format!("no rule for service {service} in the ruleset"))
}

/// The input that leads a service to a pod and to nobody else.
fn changed(service: &str, pod: Pod) -> String {
    let endpoint = format!("KUBE-SEP-FLOOR-{}", pod.name());
    format!(
        "*nat\n:{service} - [0:0]\n{}-A {service} -j {endpoint}\nCOMMIT\n",
        endpoint_chain(&endpoint, pod)
    )
}

/// The input that adds a service.
fn added(number: usize) -> String {
    let (service, endpoint) = (
        format!("KUBE-SVC-FLOOR-{number}"),
        format!("KUBE-SEP-FLOOR-{number}"),
    );
    let address = *objects::address(number).ip();
    format!(
        "*nat\n:{service} - [0:0]\n{}-A {service} -j {endpoint}\n\
        -I KUBE-SERVICES -d {address}/32 -p tcp -m tcp --dport {PORT} -j {service}\nCOMMIT\n",
        endpoint_chain(&endpoint, Pod::B)
    )
}

fn endpoint_chain(name: &str, pod: Pod) -> String {
    let address = pod.v4();
    format!(
        ":{name} - [0:0]\n-A {name} -s {address}/32 -j KUBE-MARK-MASQ\n\
        -A {name} -p tcp -m tcp -j DNAT --to-destination {address}:{TARGET_PORT}\n"
    )
}
