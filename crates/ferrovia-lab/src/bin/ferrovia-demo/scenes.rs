//! The scenes in order. A scene prints rows and asserts each of them; an `Err` means that the demo itself
//! cannot continue.

mod changes;
pub(crate) mod services;

use crate::cluster::DemoCluster;
use crate::report::DemoReport;

/// Shows one feature.
type Scene = fn(&mut DemoCluster, &mut DemoReport) -> anyhow::Result<()>;

/// All scenes: first what Services do, then what they survive.
const SCENES: [Scene; 10] = [
    services::cluster_ip,
    services::node_port,
    services::load_balancer,
    services::affinity,
    services::weights,
    services::udp,
    services::dual_stack,
    changes::endpoint_removed,
    changes::proxy_killed,
    changes::rules_flushed,
];

/// Runs the scenes until the end or an interruption.
pub(crate) fn run(cluster: &mut DemoCluster, report: &mut DemoReport) -> anyhow::Result<()> {
    for scene in SCENES {
        if cluster.interrupt.is_raised() {
            break;
        }
        scene(cluster, report)?;
    }
    Ok(())
}
