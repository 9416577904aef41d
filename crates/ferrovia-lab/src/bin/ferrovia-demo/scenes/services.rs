//! What services do: one scene for each kind of service in the manifests.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ferrovia_lab::{Place, Pod};

use crate::report::{Report, Row};
use crate::stage::Stage;
use crate::traffic::{Client, Source, Target, expect_silence, survey};

/// The web service, inside the cluster.
pub(crate) const WEB: Target = Target::Http(v4(10, 96, 0, 10, 80));
/// The same one, for the world outside.
pub(crate) const WEB_NODE_PORT: Target = Target::Http(v4(198, 51, 100, 10, 30080));
/// The name servers.
pub(crate) const DNS: SocketAddr = v4(10, 96, 0, 53, 53);
const SHOP: Target = Target::Http(v4(203, 0, 113, 20, 80));
const CART: Target = Target::Http(v4(10, 96, 0, 30, 80));
const CANARY: Target = Target::Http(v4(10, 96, 0, 40, 80));
const DUAL_IPV6: Target = Target::Http(SocketAddr::new(
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x10, 0x96, 0, 0, 0, 0, 0x60)),
    80,
));

/// A client beyond the cluster.
pub(crate) const OUTSIDE: Client = Client::at(Place::Outside);
/// Another one, whom the load balancer does not let in.
const STRANGER: Client = Client {
    place: Place::Outside,
    source: Some(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 200))),
};
/// A program on the node itself.
pub(crate) const NODE: Client = Client::at(Place::Node);
/// A client in a pod.
pub(crate) const POD_C: Client = Client::in_pod(Pod::C);
/// A client in another pod.
pub(crate) const POD_D: Client = Client::in_pod(Pod::D);

/// The endpoints of the web service, all alike.
const WEB_PODS: [(Pod, u32); 4] = [(Pod::A, 1), (Pod::B, 1), (Pod::X, 1), (Pod::Y, 1)];

/// Calls of a row: enough for shares to be even to the eye.
const CALLS: u32 = 400;

pub(super) fn cluster_ip(stage: &mut Stage, report: &mut Report) -> anyhow::Result<()> {
    report.scene(
        "Cluster IP: one stable address for pods on two nodes",
        "web.yaml",
    );
    answered(stage, report, POD_C, WEB, &WEB_PODS, Source::Kept)?;
    answered(stage, report, NODE, WEB, &WEB_PODS, Source::Kept)
}

pub(super) fn node_port(stage: &mut Stage, report: &mut Report) -> anyhow::Result<()> {
    report.scene("Node port: the same pods for clients outside", "web.yaml");
    answered(
        stage,
        report,
        OUTSIDE,
        WEB_NODE_PORT,
        &WEB_PODS,
        Source::Node,
    )
}

pub(super) fn load_balancer(stage: &mut Stage, report: &mut Report) -> anyhow::Result<()> {
    report.scene(
        "Load balancer: local pods only, for clients in 192.0.2.0/24 only",
        "load-balancer.yaml",
    );
    let local = [(Pod::A, 1), (Pod::B, 1)];
    answered(stage, report, OUTSIDE, SHOP, &local, Source::Kept)?;
    let verdict = expect_silence(&stage.world, STRANGER, SHOP)?;
    let words = if verdict.is_ok() { "dropped" } else { "let in" };
    report.row(Row {
        client: STRANGER,
        target: SHOP,
        words: words.to_owned(),
        bars: None,
        verdict,
    });
    Ok(())
}

pub(super) fn affinity(stage: &mut Stage, report: &mut Report) -> anyhow::Result<()> {
    report.scene(
        "Session affinity: each client keeps the pod it first got",
        "session-affinity.yaml",
    );
    for client in [POD_C, POD_D, OUTSIDE] {
        let tally = survey(&stage.world, client, CART, CALLS)?;
        let pods: Vec<&str> = tally.by_pod.keys().map(String::as_str).collect();
        let verdict = tally
            .expect_no_failure()
            .and_then(|()| match pods.as_slice() {
                [_] => Ok(()),
                pods => Err(format!("{} pods answered", pods.len())),
            });
        report.row(Row {
            client,
            target: CART,
            words: format!(
                "{} calls, all answered by {}",
                tally.answered(),
                pods.join(", ")
            ),
            bars: None,
            verdict,
        });
    }
    Ok(())
}

pub(super) fn weights(stage: &mut Stage, report: &mut Report) -> anyhow::Result<()> {
    report.scene("Weights: a canary gets a tenth", "canary.yaml");
    let shares = [(Pod::A, 9), (Pod::B, 1)];
    answered(stage, report, POD_C, CANARY, &shares, Source::Kept)
}

pub(super) fn udp(stage: &mut Stage, report: &mut Report) -> anyhow::Result<()> {
    report.scene("UDP", "dns.yaml");
    let shares = [(Pod::B, 1), (Pod::X, 1)];
    answered(
        stage,
        report,
        POD_C,
        Target::Udp(DNS),
        &shares,
        Source::Kept,
    )
}

pub(super) fn dual_stack(stage: &mut Stage, report: &mut Report) -> anyhow::Result<()> {
    report.scene("IPv6", "dual-stack.yaml");
    let shares = [(Pod::A, 1), (Pod::X, 1)];
    answered(stage, report, POD_C, DUAL_IPV6, &shares, Source::Kept)
}

/// A row of calls that must all be answered, by these pods, which see this source.
fn answered(
    stage: &Stage,
    report: &mut Report,
    client: Client,
    target: Target,
    shares: &[(Pod, u32)],
    source: Source,
) -> anyhow::Result<()> {
    let tally = survey(&stage.world, client, target, CALLS)?;
    let verdict = tally
        .expect_no_failure()
        .and_then(|()| tally.expect_shares(shares))
        .and_then(|()| tally.expect_source(source));
    report.row(Row {
        client,
        target,
        words: format!(
            "{} calls, {} failed; pods see {}",
            tally.answered(),
            tally.failed,
            tally.seen_source()
        ),
        bars: Some(&tally),
        verdict,
    });
    Ok(())
}

const fn v4(a: u8, b: u8, c: u8, d: u8, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), port)
}
