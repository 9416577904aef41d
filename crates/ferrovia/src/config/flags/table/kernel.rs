//! Flags for what is written into the kernel.

use super::super::values::{any, boolean, int32, list};
use super::Kind::{Bool, List, Value};
use super::{Flag, flag, put, put_some, text};

/// How rules are written.
pub(super) const RULES: &[Flag] = &[
    flag(
        "proxy-mode",
        Value("MODE"),
        "",
        "How the kernel is programmed: nftables, iptables, ipvs or userspace [default: the best this machine can do]",
        |t, v| text(&mut t.document.mode, v),
    ),
    flag(
        "sync-period",
        Value("TIME"),
        "30s",
        "How often to check that nobody has changed our rules, and the longest pause before a failed write is tried again",
        |t, v| put_some(&mut t.periods.sync, any(v)),
    )
    .beats_file(),
    flag(
        "min-sync-period",
        Value("TIME"),
        "0s",
        "Least time between two writes; a change is written at once if this is 0",
        |t, v| put_some(&mut t.periods.min, any(v)),
    )
    .beats_file(),
    flag(
        "masquerade-all",
        Bool,
        "false",
        "Give all traffic to cluster IPs this node's address as source",
        |t, v| put_some(&mut t.masquerade_all, boolean(v)),
    ),
    flag(
        "masquerade-bit",
        Value("BIT"),
        "14",
        "Bit of the packet mark that asks for masquerading, 0 to 31",
        |t, v| {
            let bit = int32(v)?;
            t.document.iptables.masquerade_bit = Some(bit);
            t.document.nftables.masquerade_bit = Some(bit);
            Ok(())
        },
    )
    .beats_file(),
    flag(
        "no-endpoints",
        Value("reject|drop"),
        "reject",
        "What becomes of packets to a Service without endpoints: refused at once, or dropped, so that clients keep trying",
        |t, v| text(&mut t.document.ferrovia.no_endpoints, v),
    )
    .beats_file(),
    flag(
        "external-ips",
        Value("allow|deny|CIDR[,CIDR]"),
        "allow",
        "External IPs of Services that are served: all, none, or those in these ranges",
        |t, v| text(&mut t.document.ferrovia.external_ips, v),
    )
    .beats_file(),
    flag(
        "egress-masquerade",
        Bool,
        "false",
        "Give what pods send out of the cluster this node's address as source",
        |t, v| put(&mut t.document.ferrovia.egress_masquerade.enabled, boolean(v)),
    )
    .beats_file(),
    flag(
        "egress-masquerade-except",
        List("CIDR[,CIDR]"),
        "",
        "Ranges outside of the cluster that pods reach under their own address",
        |t, v| {
            let egress = &mut t.document.ferrovia.egress_masquerade;
            egress.except_cidrs.get_or_insert_default().extend(list(v));
            Ok(())
        },
    )
    .beats_file(),
    flag(
        "no-counters",
        Bool,
        "false",
        "Do not count connections",
        |t, v| {
            t.document.ferrovia.counters = Some(!boolean(v)?);
            Ok(())
        },
    )
    .beats_file(),
];

/// Two modes.
pub(super) const OTHER_MODES: &[Flag] = &[
    flag(
        "iptables-sync-period",
        Value("TIME"),
        "30s",
        "The sync period in every mode but ipvs",
        |t, v| put_some(&mut t.iptables_periods.sync, any(v)),
    ),
    flag(
        "iptables-min-sync-period",
        Value("TIME"),
        "0s",
        "The least time between two writes in every mode but ipvs",
        |t, v| put_some(&mut t.iptables_periods.min, any(v)),
    ),
    flag(
        "iptables-masquerade-bit",
        Value("BIT"),
        "14",
        "The masquerade bit in the modes iptables and ipvs",
        |t, v| put_some(&mut t.document.iptables.masquerade_bit, int32(v)),
    ),
    flag(
        "iptables-localhost-nodeports",
        Bool,
        "true",
        "Node ports answer on 127.0.0.1 in iptables mode",
        |t, v| put_some(&mut t.document.iptables.localhost_node_ports, boolean(v)),
    ),
    flag(
        "ipvs-sync-period",
        Value("TIME"),
        "30s",
        "The sync period in ipvs mode",
        |t, v| put_some(&mut t.ipvs_periods.sync, any(v)),
    ),
    flag(
        "ipvs-min-sync-period",
        Value("TIME"),
        "0s",
        "The least time between two writes in ipvs mode",
        |t, v| put_some(&mut t.ipvs_periods.min, any(v)),
    ),
    flag(
        "ipvs-scheduler",
        Value("NAME"),
        "",
        "How ipvs chooses an endpoint [default: rr]",
        |t, v| text(&mut t.document.ipvs.scheduler, v),
    ),
    flag(
        "ipvs-exclude-cidrs",
        List("CIDR[,CIDR]"),
        "",
        "Virtual servers that are not ours to remove",
        |t, v| {
            let cidrs = t.document.ipvs.exclude_cidrs.get_or_insert_default();
            cidrs.extend(list(v));
            Ok(())
        },
    ),
    flag(
        "ipvs-strict-arp",
        Bool,
        "false",
        "Answer ARP only on the interface that has the address",
        |t, v| put(&mut t.document.ipvs.strict_arp, boolean(v)),
    ),
    flag(
        "ipvs-tcp-timeout",
        Value("TIME"),
        "0s",
        "Time-out of idle TCP connections in ipvs mode; 0 leaves the kernel's",
        |t, v| put(&mut t.document.ipvs.tcp_timeout, any(v)),
    ),
    flag(
        "ipvs-tcpfin-timeout",
        Value("TIME"),
        "0s",
        "Time-out of TCP connections after a FIN in ipvs mode; 0 leaves the kernel's",
        |t, v| put(&mut t.document.ipvs.tcp_fin_timeout, any(v)),
    ),
    flag(
        "ipvs-udp-timeout",
        Value("TIME"),
        "0s",
        "Time-out of UDP in ipvs mode; 0 leaves the kernel's",
        |t, v| put(&mut t.document.ipvs.udp_timeout, any(v)),
    ),
    flag(
        "ipvs-local-fallback",
        Bool,
        "false",
        "Where a traffic policy wants local endpoints and there are none, use the others, as kube-proxy's ipvs mode does",
        |t, v| put(&mut t.document.ferrovia.ipvs.local_fallback, boolean(v)),
    )
    .beats_file(),
    flag(
        "proxy-port-range",
        Value("PORTS"),
        "",
        "Ports that the userspace mode may proxy by: first-last, first+number, or one [default: the kernel chooses]",
        |t, v| text(&mut t.document.port_range, v),
    ),
    flag(
        "userspace-portals",
        Value("iptables|bind"),
        "iptables",
        "How clients' packets come to the proxy in userspace mode: by rules, or by service addresses on an interface, without any rule",
        |t, v| text(&mut t.document.ferrovia.userspace.portals, v),
    )
    .beats_file(),
    flag(
        "userspace-interface",
        Value("NAME"),
        "",
        "Interface that service addresses are put on with --userspace-portals=bind [default: a dummy device of our own]",
        |t, v| text(&mut t.document.ferrovia.userspace.interface, v),
    )
    .beats_file(),
    flag(
        "udp-timeout",
        Value("TIME"),
        "30s",
        "How long a flow of UDP lives without any datagram in userspace mode",
        |t, v| put(&mut t.document.ferrovia.userspace.udp_idle_timeout, any(v)),
    )
    .beats_file(),
];

/// Connection tracking.
pub(super) const CONNTRACK: &[Flag] = &[
    flag(
        "conntrack-max",
        Value("NUMBER"),
        "",
        "Connections to track, whatever the next two say; 0 leaves the kernel's limit",
        |t, v| put_some(&mut t.document.conntrack.max, int32(v)),
    )
    .beats_file(),
    flag(
        "conntrack-max-per-core",
        Value("NUMBER"),
        "32768",
        "Connections to track for each CPU; 0 leaves the kernel's limit",
        |t, v| put_some(&mut t.document.conntrack.max_per_core, int32(v)),
    ),
    flag(
        "conntrack-min",
        Value("NUMBER"),
        "131072",
        "The least number of connections to track",
        |t, v| put_some(&mut t.document.conntrack.min, int32(v)),
    ),
    flag(
        "conntrack-tcp-timeout-established",
        Value("TIME"),
        "24h0m0s",
        "Time-out of idle TCP connections; 0 leaves the kernel's",
        |t, v| put_some(&mut t.document.conntrack.tcp_established_timeout, any(v)),
    ),
    flag(
        "conntrack-tcp-timeout-close-wait",
        Value("TIME"),
        "1h0m0s",
        "Time-out of half-closed TCP connections; 0 leaves the kernel's",
        |t, v| put_some(&mut t.document.conntrack.tcp_close_wait_timeout, any(v)),
    ),
    flag(
        "conntrack-tcp-be-liberal",
        Bool,
        "false",
        "Let TCP packets outside the window pass",
        |t, v| put(&mut t.document.conntrack.tcp_be_liberal, boolean(v)),
    ),
    flag(
        "conntrack-udp-timeout",
        Value("TIME"),
        "0s",
        "Time-out of UDP without an answer; 0 leaves the kernel's",
        |t, v| put(&mut t.document.conntrack.udp_timeout, any(v)),
    ),
    flag(
        "conntrack-udp-timeout-stream",
        Value("TIME"),
        "0s",
        "Time-out of UDP with answers; 0 leaves the kernel's",
        |t, v| put(&mut t.document.conntrack.udp_stream_timeout, any(v)),
    ),
];
