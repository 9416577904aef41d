//! Staying up after the scenes: the proxy follows the folder people edit, and what changes is shown.

use std::collections::BTreeSet;
use std::time::Duration;

use ferrovia_lab::{Place, Pod, rootless};

use crate::report::Report;
use crate::scenes::services::{POD_C, WEB};
use crate::stage::Stage;
use crate::traffic::survey;

/// How often the web service is asked who answers.
const EVERY: Duration = Duration::from_secs(1);

/// Calls each time: so many that no pod is missed by chance.
const CALLS: u32 = 100;

/// Stays until Ctrl-C.
pub(crate) fn stay(stage: &mut Stage, report: &mut Report) -> anyhow::Result<()> {
    stage.start_proxy_on_folder()?;
    invite(stage, report);
    let mut answering = BTreeSet::new();
    loop {
        pass_on_log(stage, report)?;
        let tally = survey(&stage.world, POD_C, WEB, CALLS)?;
        let now: BTreeSet<String> = tally.by_pod.keys().cloned().collect();
        let words = match tally.expect_no_failure() {
            Ok(()) => report.bars(&tally),
            Err(why) => why,
        };
        if now != answering {
            report.live("");
            report.line(&format!("  {WEB} is now answered by: {}", list(&now)));
            answering = now;
        }
        report.live(&format!("  {WEB}  {words}"));
        if stage.interrupt.sleep(EVERY) {
            report.live("");
            report.line("cleaning up");
            return Ok(());
        }
    }
}

/// Says what there is to play with.
fn invite(stage: &mut Stage, report: &mut Report) {
    let pid = stage.proxy().map_or(0, |proxy| proxy.pid());
    let name = |place: Place| stage.world.name(place.role()).to_owned();
    let (pod, node, outside) = (
        name(Place::Pod(Pod::C)),
        name(Place::Node),
        name(Place::Outside),
    );
    let (folder, ferrovia) = (stage.folder().display(), stage.ferrovia().display());
    let terminal = terminal_inside();
    let lines = [
        String::new(),
        format!("ferrovia now follows {folder}/ itself. Try, in another terminal{terminal}:"),
        String::new(),
        format!("  ip netns exec {pod} curl http://10.96.0.10/"),
        format!("  ip netns exec {outside} curl http://198.51.100.10:30080/"),
        format!("  $EDITOR {folder}/web.yaml          # delete an endpoint's line and watch below"),
        format!("  ip netns exec {node} {ferrovia} counters"),
        format!("  ip netns exec {node} nft list table ip ferrovia"),
        format!("  ip netns exec {node} nft flush ruleset"),
        format!("  kill -9 {pid}"),
        String::new(),
        "Ctrl-C ends it and removes everything.".to_owned(),
        String::new(),
    ];
    lines.iter().for_each(|line| report.line(line));
}

/// How a terminal gets to where it can see the demo's namespaces. Without root they exist only in a user namespace.
fn terminal_inside() -> String {
    if !rootless::is_in_user_namespace() {
        return String::new();
    }
    let pid = std::process::id();
    format!(" of `nsenter --preserve-credentials --user --mount --target {pid}`")
}

/// Shows what the proxy logged, such as which line of a manifest is wrong. One that somebody
/// killed is started again, as a supervisor would.
fn pass_on_log(stage: &mut Stage, report: &mut Report) -> anyhow::Result<()> {
    let Some(proxy) = stage.proxy() else {
        return Ok(());
    };
    let is_running = proxy.is_running();
    for line in proxy.take_log() {
        // Without the time: it is now.
        let (_, message) = line.split_once(' ').unwrap_or(("", &line));
        report.live("");
        report.line(&format!("  ferrovia: {}", message.trim_start()));
    }
    if !is_running {
        stage.start_proxy_on_folder()?;
        let pid = stage.proxy().map_or(0, |proxy| proxy.pid());
        report.live("");
        report.line(&format!(
            "  ferrovia was killed, and has been started again as {pid}"
        ));
    }
    Ok(())
}

fn list(pods: &BTreeSet<String>) -> String {
    if pods.is_empty() {
        return "nobody".to_owned();
    }
    pods.iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}
