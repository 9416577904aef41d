//! What is shown, in order. A scene prints its rows and asserts every one of them; an error is only
//! what keeps the demo itself from going on.

mod changes;
pub(crate) mod services;

use crate::report::Report;
use crate::stage::Stage;

/// A scene: shows one thing on the stage.
type Scene = fn(&mut Stage, &mut Report) -> anyhow::Result<()>;

/// Everything that is shown. First what services do, then what they survive.
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

/// Plays the scenes, to the end or to the first sign that somebody wants the demo to stop.
pub(crate) fn play(stage: &mut Stage, report: &mut Report) -> anyhow::Result<()> {
    for scene in SCENES {
        if stage.interrupt.is_raised() {
            break;
        }
        scene(stage, report)?;
    }
    Ok(())
}
