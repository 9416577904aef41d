//! Settings that mean something else, or nothing.

use std::time::Duration;

use super::{Change, From, Node};

pub(super) fn changes(node: &Node<'_>) -> Vec<Change> {
    let of_both = [
        masquerade_bit(node),
        masquerade_all(node),
        periods(node),
        forwarding(node),
    ];
    let of_mode = match node.from {
        From::Iptables => vec![invalid(node)],
        From::Ipvs => vec![
            scheduler(node),
            strict_arp(node),
            exclude_cidrs(node),
            timeouts(node),
        ],
    };
    of_both.into_iter().chain(of_mode).flatten().collect()
}

fn of_setting(
    setting: &'static str,
    change: &'static str,
    what: impl Into<String>,
    remedy: impl Into<String>,
) -> Change {
    Change {
        change,
        setting: Some(setting),
        services: Vec::new(),
        what: what.into(),
        remedy: remedy.into(),
    }
}

fn masquerade_bit(node: &Node<'_>) -> Option<Change> {
    let (old, new) = (
        node.old.settings.masquerade_bit,
        node.new.settings.masquerade_bit,
    );
    (old != new).then(|| {
        of_setting(
            "nftables.masqueradeBit",
            "masquerade-bit",
            format!("Packets to be masqueraded are marked with bit {new} instead of bit {old}: the nftables mode does not read iptables.masqueradeBit."),
            format!("If others look at the mark or use bit {new}, set nftables.masqueradeBit: {old}."),
        )
    })
}

fn masquerade_all(node: &Node<'_>) -> Option<Change> {
    let (old, new) = (
        node.old.settings.masquerade_all,
        node.new.settings.masquerade_all,
    );
    (old != new).then(|| {
        of_setting(
            "nftables.masqueradeAll",
            "masquerade-all",
            format!("Traffic to cluster IPs is {}masqueraded altogether: the nftables mode does not read iptables.masqueradeAll.", if new { "" } else { "not " }),
            format!("To keep it as it is, set nftables.masqueradeAll: {old}."),
        )
    })
}

fn periods(node: &Node<'_>) -> Option<Change> {
    let (old, new) = (node.old.pace, node.new.pace);
    let of = |pace: crate::sync::Pace| (pace.sync_period, pace.min_sync_period);
    (of(old) != of(new)).then(|| {
        of_setting(
            "nftables.syncPeriod, nftables.minSyncPeriod",
            "sync-periods",
            format!(
                "Rules are checked every {} instead of every {}, with a pause of {} instead of {} between two writes: the nftables mode has a section of its own.",
                seconds(new.sync_period),
                seconds(old.sync_period),
                seconds(new.min_sync_period),
                seconds(old.min_sync_period)
            ),
            "Nothing; a change costs little in this mode. Copy the periods to the section nftables if you want them.",
        )
    })
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

fn forwarding(node: &Node<'_>) -> Option<Change> {
    let chains = node.evidence.forward_refused.as_ref()?;
    (!chains.is_empty()).then(|| Change {
        change: "forwarding",
        setting: None,
        services: Vec::new(),
        what: format!(
            "Forwarded packets of Services are not let through this node's firewall any more: {} accepted them by itself, the nftables mode leaves that to the firewall, which refuses what is not allowed ({}).",
            node.from.name(),
            chains.join(", ")
        ),
        remedy: "Let the firewall pass packets from and to the pods' addresses, before the switch.".to_owned(),
    })
}

fn invalid(node: &Node<'_>) -> Option<Change> {
    let dropped = match node.evidence.invalid_packets {
        Some(0) => return None,
        Some(packets) => format!("The kernel has counted {packets} on this node."),
        None => "How many there are cannot be seen here; kubeproxy_iptables_ct_state_invalid_dropped_packets_total of the old proxy tells.".to_owned(),
    };
    (!node.old.conntrack.be_liberal).then(|| {
        of_setting(
            "conntrack.tcpBeLiberal",
            "invalid-packets",
            format!("Forwarded packets that fit into no connection are not dropped any more; one that reaches a client makes it reset the connection. {dropped}"),
            "If clients then see \"connection reset by peer\", set conntrack.tcpBeLiberal: true.",
        )
    })
}

fn scheduler(node: &Node<'_>) -> Option<Change> {
    let scheduler = node.old.ipvs.scheduler.as_str();
    let remedy = match scheduler {
        "rr" => return None,
        "sh" | "mh" | "dh" => {
            "Give Services whose clients have to stay with their endpoint sessionAffinity: ClientIP, or the annotation ferrovia.io/algorithm: source-hash."
        }
        _ => {
            "Where endpoints differ in what they can take, give them weights; there is no counting of open connections in this mode."
        }
    };
    Some(of_setting(
        "ipvs.scheduler",
        "scheduler",
        format!(
            "Endpoints are chosen at random, in equal shares, and not by ipvs' scheduler {scheduler}."
        ),
        remedy,
    ))
}

fn strict_arp(node: &Node<'_>) -> Option<Change> {
    node.old.ipvs.strict_arp.then(|| {
        of_setting(
            "ipvs.strictARP",
            "strict-arp",
            "The setting has no effect and is not needed: no interface holds the Services' addresses. arp_ignore and arp_announce stay as the old mode set them.",
            "If nobody else needs them: sysctl -w net.ipv4.conf.all.arp_ignore=0 net.ipv4.conf.all.arp_announce=0",
        )
    })
}

fn exclude_cidrs(node: &Node<'_>) -> Option<Change> {
    (!node.old.ipvs.exclude_cidrs.is_empty()).then(|| {
        of_setting(
            "ipvs.excludeCIDRs",
            "exclude-cidrs",
            "The setting has no effect: the nftables mode touches no virtual servers. But a kube-proxy that is told to clean up removes all of them, these too.",
            "Do not use kube-proxy --cleanup on this node; remove its virtual servers one by one with ipvsadm -D.",
        )
    })
}

fn timeouts(node: &Node<'_>) -> Option<Change> {
    let ipvs = &node.old.ipvs;
    let is_set = [ipvs.tcp_timeout, ipvs.tcp_fin_timeout, ipvs.udp_timeout]
        .iter()
        .any(Option::is_some);
    is_set.then(|| {
        of_setting(
            "ipvs.tcpTimeout, ipvs.tcpFinTimeout, ipvs.udpTimeout",
            "timeouts",
            "These have no effect: how long an idle connection is remembered is up to connection tracking.",
            "Set conntrack.tcpEstablishedTimeout, conntrack.tcpCloseWaitTimeout and conntrack.udpTimeout as you need them.",
        )
    })
}
