//! What Services do: one scene for each manifest.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ferrovia_lab::{ClientHost, Pod};

use crate::cluster::DemoCluster;
use crate::report::{DemoReport, ReportRow};
use crate::traffic::{DemoClient, Destination, ExpectedSource, expect_silence, survey};

/// The web Service, inside the cluster.
pub(crate) const WEB: Destination = Destination::Http(v4(10, 96, 0, 10, 80));
/// The web Service for outside clients.
pub(crate) const WEB_NODE_PORT: Destination = Destination::Http(v4(198, 51, 100, 10, 30080));
/// The name servers.
pub(crate) const DNS: SocketAddr = v4(10, 96, 0, 53, 53);
const SHOP: Destination = Destination::Http(v4(203, 0, 113, 20, 80));
const CART: Destination = Destination::Http(v4(10, 96, 0, 30, 80));
const CANARY: Destination = Destination::Http(v4(10, 96, 0, 40, 80));
const DUAL_IPV6: Destination = Destination::Http(SocketAddr::new(
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x10, 0x96, 0, 0, 0, 0, 0x60)),
    80,
));

/// A client outside of the cluster.
pub(crate) const OUTSIDE: DemoClient = DemoClient::at(ClientHost::Outside);
/// An outside client that is not in loadBalancerSourceRanges.
const REJECTED_CLIENT: DemoClient = DemoClient {
    host: ClientHost::Outside,
    source: Some(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 200))),
};
/// A client on the node itself.
pub(crate) const NODE: DemoClient = DemoClient::at(ClientHost::Node);
/// A client in a pod.
pub(crate) const POD_C: DemoClient = DemoClient::in_pod(Pod::C);
/// A client in another pod.
pub(crate) const POD_D: DemoClient = DemoClient::in_pod(Pod::D);

/// The endpoints of the web Service, with equal weights.
const WEB_PODS: [(Pod, u32); 4] = [(Pod::A, 1), (Pod::B, 1), (Pod::X, 1), (Pod::Y, 1)];

/// Calls of a row: enough for visibly even shares.
const CALLS: u32 = 400;

pub(super) fn cluster_ip(cluster: &mut DemoCluster, report: &mut DemoReport) -> anyhow::Result<()> {
    report.scene(
        "Cluster IP: one stable address for pods on two nodes",
        "web.yaml",
    );
    answered(cluster, report, POD_C, WEB, &WEB_PODS, ExpectedSource::Kept)?;
    answered(cluster, report, NODE, WEB, &WEB_PODS, ExpectedSource::Kept)
}

pub(super) fn node_port(cluster: &mut DemoCluster, report: &mut DemoReport) -> anyhow::Result<()> {
    report.scene("Node port: the same pods for clients outside", "web.yaml");
    answered(
        cluster,
        report,
        OUTSIDE,
        WEB_NODE_PORT,
        &WEB_PODS,
        ExpectedSource::Node,
    )
}

pub(super) fn load_balancer(
    cluster: &mut DemoCluster,
    report: &mut DemoReport,
) -> anyhow::Result<()> {
    report.scene(
        "Load balancer: local pods only, for clients in 192.0.2.0/24 only",
        "load-balancer.yaml",
    );
    let local = [(Pod::A, 1), (Pod::B, 1)];
    answered(cluster, report, OUTSIDE, SHOP, &local, ExpectedSource::Kept)?;
    let verdict = expect_silence(&cluster.world, REJECTED_CLIENT, SHOP)?;
    let words = if verdict.is_ok() {
        "dropped"
    } else {
        "accepted"
    };
    report.row(ReportRow {
        client: REJECTED_CLIENT,
        target: SHOP,
        words: words.to_owned(),
        bars: None,
        verdict,
    });
    Ok(())
}

pub(super) fn affinity(cluster: &mut DemoCluster, report: &mut DemoReport) -> anyhow::Result<()> {
    report.scene(
        "Session affinity: each client stays with its first pod",
        "session-affinity.yaml",
    );
    for client in [POD_C, POD_D, OUTSIDE] {
        let tally = survey(&cluster.world, client, CART, CALLS)?;
        let pods: Vec<&str> = tally.by_pod.keys().map(String::as_str).collect();
        let verdict = tally
            .expect_no_failure()
            .and_then(|()| match pods.as_slice() {
                [_] => Ok(()),
                pods => Err(format!("{} pods answered", pods.len())),
            });
        report.row(ReportRow {
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

pub(super) fn weights(cluster: &mut DemoCluster, report: &mut DemoReport) -> anyhow::Result<()> {
    report.scene(
        "Weights: a canary gets 10 % of the connections",
        "canary.yaml",
    );
    let shares = [(Pod::A, 9), (Pod::B, 1)];
    answered(
        cluster,
        report,
        POD_C,
        CANARY,
        &shares,
        ExpectedSource::Kept,
    )
}

pub(super) fn udp(cluster: &mut DemoCluster, report: &mut DemoReport) -> anyhow::Result<()> {
    report.scene("UDP", "dns.yaml");
    let shares = [(Pod::B, 1), (Pod::X, 1)];
    answered(
        cluster,
        report,
        POD_C,
        Destination::Udp(DNS),
        &shares,
        ExpectedSource::Kept,
    )
}

pub(super) fn dual_stack(cluster: &mut DemoCluster, report: &mut DemoReport) -> anyhow::Result<()> {
    report.scene("IPv6", "dual-stack.yaml");
    let shares = [(Pod::A, 1), (Pod::X, 1)];
    answered(
        cluster,
        report,
        POD_C,
        DUAL_IPV6,
        &shares,
        ExpectedSource::Kept,
    )
}

/// Makes calls that must all be answered, by these pods, which see this source address.
fn answered(
    cluster: &DemoCluster,
    report: &mut DemoReport,
    client: DemoClient,
    target: Destination,
    shares: &[(Pod, u32)],
    source: ExpectedSource,
) -> anyhow::Result<()> {
    let tally = survey(&cluster.world, client, target, CALLS)?;
    let verdict = tally
        .expect_no_failure()
        .and_then(|()| tally.expect_shares(shares))
        .and_then(|()| tally.expect_source(source));
    report.row(ReportRow {
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
