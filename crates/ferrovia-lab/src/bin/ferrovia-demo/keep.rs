//! `--keep`: after the scenes the proxy follows the original folder, and changes are shown.

use std::collections::BTreeSet;
use std::time::Duration;

use ferrovia_lab::{ClientHost, Pod, rootless};

use crate::cluster::DemoCluster;
use crate::report::DemoReport;
use crate::scenes::services::{POD_C, WEB};
use crate::traffic::survey;

/// How often the web Service is called.
const EVERY: Duration = Duration::from_secs(1);

/// Calls each time: enough that no pod is missed by chance.
const CALLS: u32 = 100;

/// Keeps the cluster running until Ctrl-C.
pub(crate) fn run_until_interrupted(
    cluster: &mut DemoCluster,
    report: &mut DemoReport,
) -> anyhow::Result<()> {
    cluster.start_proxy_on_folder()?;
    print_suggestions(cluster, report);
    let mut answering = BTreeSet::new();
    loop {
        forward_log(cluster, report)?;
        let tally = survey(&cluster.world, POD_C, WEB, CALLS)?;
        let now: BTreeSet<String> = tally.by_pod.keys().cloned().collect();
        let words = match tally.expect_no_failure() {
            Ok(()) => report.bars(&tally),
            Err(why) => why,
        };
        if now != answering {
            report.live("");
            report.line(&format!("  endpoints of {WEB}: {}", list(&now)));
            answering = now;
        }
        report.live(&format!("  {WEB}  {words}"));
        if cluster.interrupt.sleep(EVERY) {
            report.live("");
            report.line("Cleaning up");
            return Ok(());
        }
    }
}

/// Prints commands to try.
fn print_suggestions(cluster: &mut DemoCluster, report: &mut DemoReport) {
    let pid = cluster.proxy().map_or(0, |proxy| proxy.pid());
    let name = |host: ClientHost| cluster.world.name(host.role()).to_owned();
    let (pod, node, outside) = (
        name(ClientHost::Pod(Pod::C)),
        name(ClientHost::Node),
        name(ClientHost::Outside),
    );
    let (folder, ferrovia) = (cluster.folder().display(), cluster.ferrovia().display());
    let terminal = terminal_inside();
    let lines = [
        String::new(),
        format!("ferrovia now watches {folder}/. Try in another terminal{terminal}:"),
        String::new(),
        format!("  ip netns exec {pod} curl http://10.96.0.10/"),
        format!("  ip netns exec {outside} curl http://198.51.100.10:30080/"),
        format!(
            "  $EDITOR {folder}/web.yaml          # delete an endpoint and watch the line below"
        ),
        format!("  ip netns exec {node} {ferrovia} counters"),
        format!("  ip netns exec {node} nft list table ip ferrovia"),
        format!("  ip netns exec {node} nft flush ruleset"),
        format!("  kill -9 {pid}"),
        String::new(),
        "Press Ctrl-C to stop and to remove everything.".to_owned(),
        String::new(),
    ];
    lines.iter().for_each(|line| report.line(line));
}

/// How a terminal can see the demo's namespaces. Without root they exist only in a user namespace.
fn terminal_inside() -> String {
    if !rootless::is_in_user_namespace() {
        return String::new();
    }
    let pid = std::process::id();
    format!(" of `nsenter --preserve-credentials --user --mount --target {pid}`")
}

/// Prints the proxy's log, such as errors in a manifest. Restarts a proxy that was killed, as a
/// supervisor would.
fn forward_log(cluster: &mut DemoCluster, report: &mut DemoReport) -> anyhow::Result<()> {
    let Some(proxy) = cluster.proxy() else {
        return Ok(());
    };
    let is_running = proxy.is_running();
    for line in proxy.take_log() {
        // Without the timestamp.
        let (_, message) = line.split_once(' ').unwrap_or(("", &line));
        report.live("");
        report.line(&format!("  ferrovia: {}", message.trim_start()));
    }
    if !is_running {
        cluster.start_proxy_on_folder()?;
        let pid = cluster.proxy().map_or(0, |proxy| proxy.pid());
        report.live("");
        report.line(&format!(
            "  ferrovia exited and was restarted with pid {pid}"
        ));
    }
    Ok(())
}

fn list(pods: &BTreeSet<String>) -> String {
    if pods.is_empty() {
        return "none".to_owned();
    }
    pods.iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}
