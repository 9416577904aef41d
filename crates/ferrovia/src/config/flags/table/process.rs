//! Flags for the process itself: what it does, serves and logs.

use super::super::values::{any, boolean, gates, int32, ip_and_port, verbosity, version, vmodule};
use super::Kind::{Bool, List, Optional, Value};
use super::{Flag, flag, path, put, put_some, server, text};
use crate::config::duration::GoDuration;

/// What to do.
pub(super) const ACTIONS: &[Flag] = &[
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
        "force",
        Bool,
        "false",
        "With --cleanup: remove them even while a proxy runs, which may write them again",
        |t, v| put(&mut t.force, boolean(v)),
    )
    .beats_file(),
    flag(
        "when-owned",
        Value("wait|exit"),
        "wait",
        "What to do while another Ferrovia writes rules in this network namespace: wait until it exits, or exit with an error",
        |t, v| text(&mut t.document.ferrovia.when_owned, v),
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

/// Health and metrics.
pub(super) const SERVERS: &[Flag] = &[
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
        "End if one of these two addresses cannot be bound, instead of trying again",
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

/// What people and commands see.
pub(super) const VIEWS: &[Flag] = &[
    flag(
        "web-bind-address",
        Value("IP:PORT"),
        "",
        "Where the page that shows services, traces and changes is served, such as 127.0.0.1:10247; empty or port 0 for nowhere",
        |t, v| {
            t.document.ferrovia.web.bind_address = Some(ip_and_port(v)?);
            Ok(())
        },
    )
    .beats_file(),
    flag(
        "admin-socket",
        Value("PATH"),
        "/run/ferrovia/admin.sock",
        "Socket on which commands ask the daemon, for its user only; empty for none",
        |t, v| {
            t.document.ferrovia.admin.socket = Some(v.to_owned());
            Ok(())
        },
    )
    .beats_file(),
];

/// Logging.
pub(super) const LOGGING: &[Flag] = &[
    flag(
        "v",
        Value("LEVEL"),
        "0",
        "How much to log: 0 for what matters, 4 for every sync, 6 for single steps (FERROVIA_LOG overrides it)",
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

/// All others.
pub(super) const OTHER: &[Flag] = &[
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
