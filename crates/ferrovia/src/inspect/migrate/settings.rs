//! Settings that mean something else, or nothing.

use std::time::Duration;

use super::{Change, Node};

pub(super) fn changes(node: &Node<'_>) -> Vec<Change> {
    let of_all = [masquerade_bit, masquerade_all, periods, forwarding];
    let of_mode = node.from.migration.settings.iter();
    let changes = of_all.into_iter().chain(of_mode.copied());
    changes.filter_map(|change| change(node)).collect()
}

pub(crate) fn of_setting(
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
