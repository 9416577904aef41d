//! Every flag of the daemon: its name, what it takes, its default, what it says of itself, and what it sets.

use super::Typed;
use super::values::{
    any, boolean, gates, int32, ip, ip_and_port, list, verbosity, version, vmodule,
};
use crate::config::duration::GoDuration;

/// What stands behind a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing, or `=true`, `=false`.
    Bool,
    /// Nothing, or `=` and something.
    Optional(&'static str),
    /// One value.
    Value(&'static str),
    /// One value, or several with commas; may be given several times.
    List(&'static str),
}

impl Kind {
    /// It needs nothing behind it.
    pub fn stands_alone(self) -> bool {
        matches!(self, Self::Bool | Self::Optional(_))
    }
}

/// One flag.
#[derive(Debug)]
pub struct Flag {
    /// Its name without the dashes.
    pub name: &'static str,
    /// Other names that mean the same.
    pub aliases: &'static [&'static str],
    /// One letter that means the same.
    pub short: Option<char>,
    /// What it takes.
    pub kind: Kind,
    /// What holds without it, as text.
    pub default: &'static str,
    /// What it does, in a sentence.
    pub help: &'static str,
    /// It counts although there is a configuration file.
    pub beats_file: bool,
    /// The flag to use in place of this one, which is about to go.
    pub deprecated: Option<&'static str>,
    /// Sets what it sets; answers with the reason if the value is no good.
    pub(super) set: fn(&mut Typed, &str) -> Result<(), String>,
}

const fn flag(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    help: &'static str,
    set: fn(&mut Typed, &str) -> Result<(), String>,
) -> Flag {
    Flag {
        name,
        aliases: &[],
        short: None,
        kind,
        default,
        help,
        beats_file: false,
        deprecated: None,
        set,
    }
}

impl Flag {
    const fn beats_file(self) -> Self {
        Self {
            beats_file: true,
            ..self
        }
    }

    const fn aliases(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    const fn short(self, letter: char) -> Self {
        Self {
            short: Some(letter),
            ..self
        }
    }

    const fn deprecated(self, instead: &'static str) -> Self {
        Self {
            deprecated: Some(instead),
            ..self
        }
    }
}

use Kind::{Bool, List, Optional, Value};

/// All flags under their headings, in the order in which help shows them.
pub const GROUPS: [(&str, &[Flag]); 9] = [
    ("What to do", ACTIONS),
    ("Where Services and EndpointSlices come from", SOURCES),
    ("This node", NODE),
    ("How rules are written", RULES),
    ("The modes iptables and ipvs", OTHER_MODES),
    ("Connection tracking", CONNTRACK),
    ("Health and metrics", SERVERS),
    ("Logging", LOGGING),
    ("Other", OTHER),
];

/// All flags.
pub fn flags() -> impl Iterator<Item = &'static Flag> {
    GROUPS.iter().flat_map(|(_, flags)| *flags)
}

/// Puts a value that was read where it belongs.
fn put<T>(place: &mut T, value: Result<T, String>) -> Result<(), String> {
    *place = value?;
    Ok(())
}

/// The same for what may be absent.
fn put_some<T>(place: &mut Option<T>, value: Result<T, String>) -> Result<(), String> {
    *place = Some(value?);
    Ok(())
}

fn text(place: &mut String, value: &str) -> Result<(), String> {
    value.clone_into(place);
    Ok(())
}

/// An empty path is none.
fn path(place: &mut Option<std::path::PathBuf>, value: &str) -> Result<(), String> {
    *place = (!value.is_empty()).then(|| value.into());
    Ok(())
}

/// An empty address turns the server off; that is written as port 0, because to a file an empty address is none given.
fn server(place: &mut String, value: &str) -> Result<(), String> {
    *place = ip_and_port(value)?;
    if place.is_empty() {
        "0.0.0.0:0".clone_into(place);
    }
    Ok(())
}

const ACTIONS: &[Flag] = &[
    flag(
        "config",
        Value("FILE"),
        "",
        "Configuration file (KubeProxyConfiguration); most flags below are then without effect",
        |t, v| path(&mut t.config, v),
    )
    .beats_file(),
    flag(
        "write-config-to",
        Value("FILE"),
        "",
        "Write the configuration that would be used into this file, then end",
        |t, v| path(&mut t.write_config_to, v),
    )
    .beats_file(),
    flag(
        "once",
        Bool,
        "false",
        "Write the rules once, then end; exit code 1 if they cannot be written",
        |t, v| put(&mut t.once, boolean(v)),
    )
    .beats_file(),
    flag(
        "init-only",
        Bool,
        "false",
        "Do what needs full privileges, then end; afterwards CAP_NET_ADMIN is enough",
        |t, v| put(&mut t.init_only, boolean(v)),
    )
    .beats_file(),
    flag(
        "cleanup",
        Bool,
        "false",
        "Remove our rules and those of a kube-proxy, then end",
        |t, v| put(&mut t.cleanup, boolean(v)),
    )
    .beats_file(),
    flag(
        "version",
        Optional("raw"),
        "false",
        "Print the version, then end",
        |t, v| put(&mut t.version, version(v)),
    )
    .beats_file(),
    flag("help", Bool, "false", "Print this, then end", |t, v| {
        put(&mut t.wants_help, boolean(v))
    })
    .beats_file()
    .short('h'),
];

const SOURCES: &[Flag] = &[
    flag(
        "manifests",
        Value("DIR"),
        "",
        "Take objects from the YAML and JSON files of this folder instead of an API server, and follow them as they change",
        |t, v| text(&mut t.document.ferrovia.manifests, v),
    )
    .beats_file(),
    flag(
        "kubeconfig",
        Value("FILE"),
        "",
        "How to reach the API server [default: as a pod does, by its service account]",
        |t, v| text(&mut t.document.client_connection.kubeconfig, v),
    ),
    flag(
        "master",
        Value("URL"),
        "",
        "Address of the API server, instead of the kubeconfig's",
        |t, v| text(&mut t.master, v),
    )
    .beats_file(),
    flag(
        "kube-api-content-type",
        Value("TYPE"),
        "application/vnd.kubernetes.protobuf",
        "Format to ask the API server for",
        |t, v| text(&mut t.document.client_connection.content_type, v),
    ),
    flag(
        "kube-api-qps",
        Value("NUMBER"),
        "5",
        "Requests to the API server a second; negative for no limit",
        |t, v| put(&mut t.document.client_connection.qps, any(v)),
    ),
    flag(
        "kube-api-burst",
        Value("NUMBER"),
        "10",
        "Requests to the API server at once before that limit holds",
        |t, v| put(&mut t.document.client_connection.burst, int32(v)),
    ),
    flag(
        "config-sync-period",
        Value("TIME"),
        "15m0s",
        "How often all objects are looked at anew",
        |t, v| put(&mut t.document.config_sync_period, any(v)),
    ),
];

const NODE: &[Flag] = &[
    flag(
        "hostname-override",
        Value("NAME"),
        "",
        "Name of this node: endpoints with this nodeName are local [default: the host name]",
        |t, v| text(&mut t.hostname_override, v),
    )
    .beats_file()
    .aliases(&["node-name"]),
    flag(
        "bind-address",
        Value("IP"),
        "0.0.0.0",
        "This node's address, instead of the Node object's; nothing is bound to it",
        |t, v| match v {
            // As kube-proxy has it: an empty address changes nothing.
            "" => Ok(()),
            _ => ip(v).and_then(|_| text(&mut t.document.bind_address, v)),
        },
    ),
    flag(
        "detect-local-mode",
        Value("MODE"),
        "ClusterCIDR",
        "How to tell traffic of this node's pods: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix",
        |t, v| text(&mut t.document.detect_local_mode, v),
    ),
    flag(
        "cluster-cidr",
        Value("CIDR[,CIDR]"),
        "",
        "Ranges of pod addresses, one of each family (for ClusterCIDR)",
        |t, v| text(&mut t.document.cluster_cidr, v),
    ),
    flag(
        "pod-bridge-interface",
        Value("NAME"),
        "",
        "Bridge the pods are attached to (for BridgeInterface)",
        |t, v| text(&mut t.document.detect_local.bridge_interface, v),
    ),
    flag(
        "pod-interface-name-prefix",
        Value("PREFIX"),
        "",
        "What the names of the pods' interfaces begin with (for InterfaceNamePrefix)",
        |t, v| text(&mut t.document.detect_local.interface_name_prefix, v),
    ),
    flag(
        "nodeport-addresses",
        List("CIDR[,CIDR]|primary|all"),
        "",
        "Where node ports answer: `primary` (the node's addresses; the default with --manifests and in nftables mode), `all`, or ranges that local addresses must be in",
        |t, v| {
            let addresses = t.document.node_port_addresses.get_or_insert_default();
            addresses.extend(list(v));
            Ok(())
        },
    ),
    flag(
        "oom-score-adj",
        Value("NUMBER"),
        "-999",
        "How unlikely the kernel is to end this process when memory is short, -1000 to 1000",
        |t, v| put_some(&mut t.document.oom_score_adj, int32(v)),
    ),
];

const RULES: &[Flag] = &[
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

const OTHER_MODES: &[Flag] = &[
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
];

const CONNTRACK: &[Flag] = &[
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

const SERVERS: &[Flag] = &[
    flag(
        "healthz-bind-address",
        Value("IP:PORT"),
        "0.0.0.0:10256",
        "Where health is served; empty or port 0 for nowhere [with --manifests: 127.0.0.1:10256]",
        |t, v| server(&mut t.document.healthz_bind_address, v),
    ),
    flag(
        "metrics-bind-address",
        Value("IP:PORT"),
        "127.0.0.1:10249",
        "Where metrics are served; empty or port 0 for nowhere",
        |t, v| server(&mut t.document.metrics_bind_address, v),
    ),
    flag(
        "healthz-port",
        Value("PORT"),
        "10256",
        "Port of the health server",
        |t, v| put_some(&mut t.healthz_port, int32(v)),
    )
    .deprecated("healthz-bind-address"),
    flag(
        "metrics-port",
        Value("PORT"),
        "10249",
        "Port of the metrics server",
        |t, v| put_some(&mut t.metrics_port, int32(v)),
    )
    .deprecated("metrics-bind-address"),
    flag(
        "bind-address-hard-fail",
        Bool,
        "false",
        "End if one of these addresses cannot be bound, instead of trying again",
        |t, v| put(&mut t.document.bind_address_hard_fail, boolean(v)),
    ),
    flag(
        "profiling",
        Bool,
        "false",
        "Serve /debug/pprof and /debug/flags/v where metrics are served",
        |t, v| put(&mut t.document.enable_profiling, boolean(v)),
    ),
    flag(
        "show-hidden-metrics-for-version",
        Value("VERSION"),
        "",
        "Show metrics hidden since this version, which must be the one before ours",
        |t, v| text(&mut t.document.show_hidden_metrics_for_version, v),
    ),
];

const LOGGING: &[Flag] = &[
    flag(
        "v",
        Value("LEVEL"),
        "0",
        "How much to log: 0 for what matters, 4 for every sync, 6 for every rule written (FERROVIA_LOG overrides it)",
        |t, v| put(&mut t.document.logging.verbosity, verbosity(v)),
    )
    .beats_file()
    .short('v')
    .aliases(&["verbosity"]),
    flag(
        "vmodule",
        List("PATTERN=LEVEL[,...]"),
        "",
        "How much single source files log",
        |t, v| {
            t.document.logging.vmodule.extend(vmodule(v)?);
            Ok(())
        },
    )
    .beats_file(),
    flag(
        "logging-format",
        Value("FORMAT"),
        "text",
        "text or json",
        |t, v| text(&mut t.document.logging.format, v),
    )
    .beats_file(),
    flag(
        "log-flush-frequency",
        Value("TIME"),
        "5s",
        "How often buffered lines are written",
        |t, v| put(&mut t.document.logging.flush_frequency, any::<GoDuration>(v)),
    )
    .beats_file(),
    flag(
        "log-text-split-stream",
        Bool,
        "false",
        "Format text: information to standard output, errors to standard error (needs the gate LoggingAlphaOptions)",
        |t, v| put(&mut t.document.logging.options.text.split_stream, boolean(v)),
    )
    .beats_file(),
    flag(
        "log-text-info-buffer-size",
        Value("SIZE"),
        "0",
        "Format text: how much of standard output is buffered (needs the gate LoggingAlphaOptions)",
        |t, v| text(&mut t.document.logging.options.text.info_buffer_size, v),
    )
    .beats_file(),
    flag(
        "log-json-split-stream",
        Bool,
        "false",
        "Format json: information to standard output, errors to standard error (needs the gate LoggingAlphaOptions)",
        |t, v| put(&mut t.document.logging.options.json.split_stream, boolean(v)),
    )
    .beats_file(),
    flag(
        "log-json-info-buffer-size",
        Value("SIZE"),
        "0",
        "Format json: how much of standard output is buffered (needs the gate LoggingAlphaOptions)",
        |t, v| text(&mut t.document.logging.options.json.info_buffer_size, v),
    )
    .beats_file(),
];

const OTHER: &[Flag] = &[
    flag(
        "feature-gates",
        List("NAME=BOOL[,...]"),
        "",
        "Kubernetes' feature gates; those that do not concern a service proxy are accepted without effect",
        |t, v| {
            t.document.feature_gates.extend(gates(v)?);
            Ok(())
        },
    ),
    flag(
        "boot-id-file",
        Value("FILE"),
        "/proc/sys/kernel/random/boot_id",
        "Without effect, accepted because kube-proxy has it",
        |_, _| Ok(()),
    )
    .beats_file(),
    flag(
        "machine-id-file",
        Value("FILE"),
        "/etc/machine-id,/var/lib/dbus/machine-id",
        "Without effect, accepted because kube-proxy has it",
        |_, _| Ok(()),
    )
    .beats_file(),
];
