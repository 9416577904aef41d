//! The completed document as values: the last step to a [`Config`].

use std::iter;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ferrovia_core::desired::{LocalSetting, NoEndpoints, NodeSettings};
use ferrovia_core::family::{Family, PerFamily};
use ferrovia_core::model::{ExternalIpPolicy, ServiceLimits, ServicePolicy, parse_cidr};
use ferrovia_core::plan::iptables::DROP_MARK;
use ipnet::IpNet;

use super::defaults::{ADMIN_SOCKET, WEB_PORT, add_port};
use super::file::Document;
use super::flags::Typed;
use super::gates::FeatureGates;
use super::validate::Checks;
use super::{Action, Config, ConfigError, ConfigFile, Remark, Source, WhenOwned, logs};
use crate::conntrack::limits::ConntrackSettings;
use crate::mode::{self, ModeRef, ModeSettings};
use crate::source::kube::{ApiAccess, Encoding};
use crate::sync::Pace;

/// Longer than this makes no sense, and much longer no instant.
const LONGEST_PERIOD: Duration = Duration::from_secs(24 * 3600);
/// The longest path of a socket. The kernel takes 107 bytes; some are for the name it has until it is ready.
const LONGEST_SOCKET: usize = 90;
/// No limit of Services can be set higher, so that products of two stay numbers.
const HIGHEST_LIMIT: i32 = 1 << 24;
/// The version before ours, whose hidden metrics may be shown.
const PREVIOUS_VERSION: &str = "1.35";

impl Config {
    pub(super) fn from_document(
        mut typed: Typed,
        config_file: Option<ConfigFile>,
        mut remarks: Vec<Remark>,
    ) -> Result<Self, ConfigError> {
        let mut checks = Checks::default();
        let gates = checks.gates(&typed.document.feature_gates);
        let mode = configured_mode(&mut checks, &typed.document.mode);
        let pace = pace(&mut checks, &mut typed.document, &mut remarks);
        let masquerade_all = *typed.document.masquerade_all_mut();
        let document = &typed.document;
        masquerade_bits(&mut checks, document);
        let bind_address = checks.bind_address("bindAddress", &document.bind_address);
        let local = checks.local(
            &document.detect_local_mode,
            &document.detect_local,
            &document.cluster_cidr,
        );
        let settings = NodeSettings {
            node_name: node_name(&mut checks, &document.hostname_override)?,
            node_ips: PerFamily::from_fn(|family| {
                bind_address.filter(|ip| Family::of(*ip) == family)
            }),
            egress_except: egress_except(&mut checks, document, &local),
            local,
            masquerade_all,
            masquerade_bit: document
                .masquerade_bit()
                .and_then(|bit| u8::try_from(bit).ok())
                .unwrap_or_default(),
            no_endpoints: no_endpoints(&mut checks, document),
            node_ports: checks
                .node_ports(document.node_port_addresses.as_deref().unwrap_or_default()),
            services: services(&mut checks, document, &gates),
        };
        let config = Self {
            action: action(&typed),
            source: source(&mut checks, document, &typed.master),
            mode,
            settings,
            bind_address,
            pace,
            config_sync_period: checks
                .positive_time("configSyncPeriod", document.config_sync_period)
                .min(LONGEST_PERIOD),
            counters: document.ferrovia.counters.unwrap_or(true),
            once: typed.once,
            when_owned: when_owned(&mut checks, document),
            health: checks.server("healthzBindAddress", &document.healthz_bind_address),
            metrics: checks.server("metricsBindAddress", &document.metrics_bind_address),
            web: web(&mut checks, document),
            admin_socket: admin_socket(&mut checks, document),
            bind_hard_fail: document.bind_address_hard_fail,
            profiling: document.enable_profiling,
            show_hidden_metrics: hidden_metrics(&mut checks, document),
            oom_score_adj: checks.within(
                "oomScoreAdj",
                document.oom_score_adj.unwrap_or_default(),
                -1000,
                1000,
            ),
            conntrack: conntrack(&mut checks, document),
            log: logs::settings(&mut checks, &document.logging, &gates, &typed),
            localhost_node_ports: document.iptables.localhost_node_ports.unwrap_or(true),
            modes: ModeSettings::of(&mut checks, document),
            gates,
            document: serde_json::to_value(document).unwrap_or_default(),
            flags: typed.values(),
            config_file,
            remarks,
        };
        match checks.into_errors() {
            errors if errors.is_empty() => Ok(config),
            errors => Err(ConfigError::Invalid(errors)),
        }
    }
}

fn action(typed: &Typed) -> Action {
    if let Some(path) = &typed.write_config_to {
        Action::WriteConfig(path.clone())
    } else if typed.cleanup {
        Action::Cleanup { force: typed.force }
    } else if typed.init_only {
        Action::InitOnly
    } else {
        Action::Run
    }
}

fn when_owned(checks: &mut Checks, document: &Document) -> WhenOwned {
    let words = [
        ("", WhenOwned::Wait),
        ("wait", WhenOwned::Wait),
        ("exit", WhenOwned::Exit),
    ];
    let given = &document.ferrovia.when_owned;
    checks
        .word("ferrovia.whenOwned", given, &words)
        .unwrap_or_default()
}

fn source(checks: &mut Checks, document: &Document, master: &str) -> Source {
    let client = &document.client_connection;
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    if !document.ferrovia.manifests.is_empty() {
        if !client.kubeconfig.is_empty() || !master.is_empty() {
            checks.forbidden(
                "ferrovia.manifests",
                "objects come from a folder or from an API server (clientConnection.kubeconfig, --master), not from both",
            );
        }
        return Source::Manifests(document.ferrovia.manifests.as_str().into());
    }
    if !client.qps.is_finite() {
        checks.invalid("clientConnection.qps", client.qps, "must be a number");
    }
    Source::Kube(ApiAccess {
        kubeconfig: some(&client.kubeconfig).map(Into::into),
        master: some(master),
        qps: client.qps,
        burst: checks.not_negative("clientConnection.burst", client.burst),
        encoding: Encoding::preferred(match &*client.accept_content_types {
            "" => &client.content_type,
            accepted => accepted,
        }),
    })
}

fn configured_mode(checks: &mut Checks, name: &str) -> Option<ModeRef> {
    let modes = mode::by_name()
        .iter()
        .map(|mode| (mode.name(), Some(*mode)));
    let words: Vec<_> = [("", None)].into_iter().chain(modes).collect();
    checks.word("mode", name, &words).flatten()
}

/// The host name, if there is no other. Endpoints are compared with it as it is, so blanks and capitals go.
fn node_name(checks: &mut Checks, given: &str) -> Result<String, ConfigError> {
    let name = if given.is_empty() {
        std::fs::read_to_string("/proc/sys/kernel/hostname").map_err(ConfigError::HostName)?
    } else {
        given.to_owned()
    };
    let name = name.trim().to_lowercase();
    if name.is_empty() {
        checks.invalid_text("hostnameOverride", given, "the name is empty");
    }
    Ok(name)
}

fn pace(checks: &mut Checks, document: &mut Document, remarks: &mut Vec<Remark>) -> Pace {
    let section = document.section().name;
    let (sync, min) = (*document.sync_period_mut(), *document.min_sync_period_mut());
    let field = format!("{section}.syncPeriod");
    let min_field = format!("{section}.minSyncPeriod");
    let sync_period = checks.positive_time(&field, sync);
    let min_sync_period = checks.time(&min_field, min);
    if min > sync {
        let why = format!("must be greater than or equal to {min_field} ({min})");
        checks.invalid_text(&field, &sync.to_string(), &why);
    }
    if sync_period > LONGEST_PERIOD {
        remarks.push(Remark {
            is_warning: false,
            text: format!("{field}: {sync} is more than a day; the rules are checked daily"),
        });
    }
    Pace {
        sync_period: sync_period.min(LONGEST_PERIOD),
        min_sync_period: min_sync_period.min(LONGEST_PERIOD),
    }
}

/// The bit of the mode that kube-proxy defaults to is checked in every mode, as kube-proxy does.
fn masquerade_bits(checks: &mut Checks, document: &Document) {
    let default = mode::KUBE_PROXY_DEFAULT.config_section();
    let used = document.section();
    let is_another = used.masquerade_bit_field != default.masquerade_bit_field;
    for section in iter::once(default).chain(is_another.then_some(used)) {
        let bit = (section.masquerade_bit)(document).unwrap_or_default();
        checks.within(section.masquerade_bit_field, bit, 0, 31);
    }
}

/// What becomes of packets to Services without endpoints. Some modes need a mark to drop them.
fn no_endpoints(checks: &mut Checks, document: &Document) -> NoEndpoints {
    let words = [
        ("", NoEndpoints::Reject),
        ("reject", NoEndpoints::Reject),
        ("drop", NoEndpoints::Drop),
    ];
    let field = "ferrovia.noEndpoints";
    let chosen = checks.word(field, &document.ferrovia.no_endpoints, &words);
    let drop_bit = i32::try_from(DROP_MARK.trailing_zeros()).ok();
    if chosen == Some(NoEndpoints::Drop)
        && document.section().drops_by_mark
        && document.masquerade_bit() == drop_bit
    {
        checks.forbidden(
            field,
            "drop marks packets with bit 15, which is iptables.masqueradeBit; choose another bit there",
        );
    }
    chosen.unwrap_or_default()
}

/// The ranges that pods reach under their own address, the cluster's among them, if what they send elsewhere is masqueraded.
fn egress_except(
    checks: &mut Checks,
    document: &Document,
    local: &LocalSetting,
) -> Option<Vec<IpNet>> {
    let egress = &document.ferrovia.egress_masquerade;
    let mut except = checks.cidrs(
        "ferrovia.egressMasquerade.exceptCIDRs",
        egress.except_cidrs.as_deref().unwrap_or_default(),
    );
    if !egress.enabled {
        return None;
    }
    let field = "ferrovia.egressMasquerade.enabled";
    match local {
        LocalSetting::ClusterCidr(nets) => except.extend(nets),
        LocalSetting::NodeCidr => except.extend(checks.cluster_cidr(&document.cluster_cidr)),
        LocalSetting::Interface(_) | LocalSetting::InterfacePrefix(_) => checks.forbidden(
            field,
            "pods must be told by their address: detectLocalMode ClusterCIDR or NodeCIDR",
        ),
    }
    if document.cluster_cidr.is_empty() {
        checks.forbidden(
            field,
            "needs clusterCIDR, so that traffic between pods is left alone",
        );
    }
    Some(except)
}

/// What of a Service is served. Kubernetes' gate goes before our own policy.
fn services(checks: &mut Checks, document: &Document, gates: &FeatureGates) -> ServicePolicy {
    let mut external_ips = external_ips(checks, &document.ferrovia.external_ips);
    if !gates.is_enabled("AllowServiceExternalIPs") {
        external_ips = ExternalIpPolicy::Deny;
    }
    let given = &document.ferrovia.limits;
    let defaults = ServiceLimits::default();
    let mut limit = |name: &str, given: Option<i32>, default: usize| {
        let Some(given) = given else { return default };
        let field = format!("ferrovia.limits.{name}");
        let number = checks.within(&field, given, 1, HIGHEST_LIMIT);
        usize::try_from(number).unwrap_or(default)
    };
    let limits = ServiceLimits {
        frontends_per_service: limit(
            "frontendsPerService",
            given.frontends_per_service,
            defaults.frontends_per_service,
        ),
        ports_per_namespace: limit(
            "portsPerNamespace",
            given.ports_per_namespace,
            defaults.ports_per_namespace,
        ),
        external_ip_frontends_per_namespace: limit(
            "externalIPFrontendsPerNamespace",
            given.external_ip_frontends_per_namespace,
            defaults.external_ip_frontends_per_namespace,
        ),
        source_ranges_per_service: limit(
            "sourceRangesPerService",
            given.source_ranges_per_service,
            defaults.source_ranges_per_service,
        ),
    };
    ServicePolicy {
        external_ips,
        limits,
    }
}

fn external_ips(checks: &mut Checks, given: &str) -> ExternalIpPolicy {
    match given {
        "" | "allow" => ExternalIpPolicy::Allow,
        "deny" => ExternalIpPolicy::Deny,
        ranges => {
            let parsed: Option<Vec<IpNet>> =
                ranges.split(',').map(str::trim).map(parse_cidr).collect();
            if parsed.is_none() {
                let why = "must be allow, deny, or CIDRs with commas between them, such as 203.0.113.0/24,2001:db8::/32";
                checks.invalid_text("ferrovia.externalIPs", ranges, why);
            }
            parsed.map_or(ExternalIpPolicy::Deny, ExternalIpPolicy::Within)
        }
    }
}

/// Nowhere unless an address is given: on loopback every user of the machine can read it, and so can pods on the host's network.
fn web(checks: &mut Checks, document: &Document) -> Option<SocketAddr> {
    let mut address = document.ferrovia.web.bind_address.clone()?;
    if address.is_empty() {
        return None;
    }
    add_port(&mut address, WEB_PORT.into());
    checks.server("ferrovia.web.bindAddress", &address)
}

fn admin_socket(checks: &mut Checks, document: &Document) -> Option<PathBuf> {
    let field = "ferrovia.admin.socket";
    let given = document.ferrovia.admin.socket.as_deref();
    let path = given.unwrap_or(ADMIN_SOCKET);
    if path.is_empty() {
        return None;
    }
    if !path.starts_with('/') {
        checks.invalid_text(field, path, "must be an absolute path, or empty");
    }
    if path.len() > LONGEST_SOCKET {
        let why = format!("must have at most {LONGEST_SOCKET} bytes, as the kernel takes no more");
        checks.invalid_text(field, path, &why);
    }
    Some(path.into())
}

fn hidden_metrics(checks: &mut Checks, document: &Document) -> bool {
    let version = &document.show_hidden_metrics_for_version;
    if !version.is_empty() && version != PREVIOUS_VERSION {
        let why = format!("must be empty or the version before ours, {PREVIOUS_VERSION}");
        checks.invalid_text("showHiddenMetricsForVersion", version, &why);
    }
    !version.is_empty()
}

fn some_time(time: Duration) -> Option<Duration> {
    (!time.is_zero()).then_some(time)
}

fn conntrack(checks: &mut Checks, document: &Document) -> ConntrackSettings {
    let given = &document.conntrack;
    let number = |checks: &mut Checks, field, value: Option<i32>| {
        checks.not_negative(field, value.unwrap_or_default())
    };
    let time = |checks: &mut Checks, field, value| some_time(checks.time(field, value));
    ConntrackSettings {
        max: given
            .max
            .map(|max| checks.not_negative("conntrack.max", max)),
        max_per_core: number(checks, "conntrack.maxPerCore", given.max_per_core),
        min: number(checks, "conntrack.min", given.min),
        tcp_established: time(
            checks,
            "conntrack.tcpEstablishedTimeout",
            given.tcp_established_timeout.unwrap_or_default(),
        ),
        tcp_close_wait: time(
            checks,
            "conntrack.tcpCloseWaitTimeout",
            given.tcp_close_wait_timeout.unwrap_or_default(),
        ),
        be_liberal: given.tcp_be_liberal,
        udp: checks.time("conntrack.udpTimeout", given.udp_timeout),
        udp_stream: checks.time("conntrack.udpStreamTimeout", given.udp_stream_timeout),
    }
}
