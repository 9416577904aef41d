//! The modes: the trait that each of them implements, and the only list of them.
//!
//! Nothing outside of this module names a mode; `tests/config/modes.rs` checks that. ARCHITECTURE.md says how to add one.

mod config_section;
mod installed;
mod iptables;
mod iptables_tools;
mod ipvs;
mod listeners;
mod nftables;
mod port_failures;
mod remove;
mod settings;
mod userspace;

use std::fmt;
use std::sync::{Arc, LazyLock};

use ferrovia_core::desired::{Delta, Desired, Frontend, ServicePort};
use ferrovia_core::difference::Difference;
use ferrovia_core::family::Family;
use ferrovia_core::plan::{ObservedPolicy, Planner};
use ferrovia_core::trace::in_kernel::KernelObject;
use ferrovia_core::trace::{Trace, TraceProfile};
use ferrovia_host::portals::Directory;

pub use self::config_section::ConfigSection;
pub use self::installed::{InstallContext, Installed, Listen, TakeOver, Watcher};
pub use self::iptables::IptablesMode;
pub use self::ipvs::{IpvsMode, IpvsSettings};
pub use self::nftables::NftablesMode;
pub use self::nftables::dynamic_sets::{DynamicSets, Report as DynamicSetReport};
pub use self::remove::{KubeProxyNames, OwnChains, Removal, RemovalSteps, Removed, remove_all};
pub use self::settings::ModeSettings;
pub use self::userspace::{PortalSetting, UserspaceMode, UserspaceSettings};
use crate::config::Config;
use crate::inspect::counters::Counts;
use crate::inspect::doctor::{Facts, Finding};
use crate::inspect::migrate::Migration;
use crate::serve::metrics::{FailureMetrics, ReadConnections};
use crate::sync::Inputs;
use crate::sync::backend::SyncError;

/// A mode from the list, with default settings.
pub type ModeRef = &'static dyn Mode;

/// All modes, in the order in which a takeover removes what they left in the kernel: the ipvs mode may wait for connections, so what can go at
/// once goes before it, and the iptables chains that IPVS connections pass go after it.
pub static ALL: [ModeRef; 4] = [
    &nftables::DEFAULT,
    &ipvs::DEFAULT,
    &iptables::DEFAULT,
    &userspace::DEFAULT,
];

/// The mode that commands assume, that the self-test runs and that `ferrovia migrate` leads to.
pub static DEFAULT: ModeRef = &nftables::DEFAULT;

/// The mode whose section of the configuration file applies if no mode is set, as in kube-proxy.
pub static KUBE_PROXY_DEFAULT: ModeRef = &iptables::DEFAULT;

/// If no mode is set, the first of these that this machine supports is used, and the last one if it supports none.
static PREFERRED: [ModeRef; 2] = [&nftables::DEFAULT, &iptables::DEFAULT];

/// One way to program the kernel.
///
/// An implementation holds the mode's settings. The ones in [`ALL`] have defaults; [`Mode::configured`] makes one from a configuration.
pub trait Mode: fmt::Debug + Send + Sync {
    /// The name, as the configuration spells it.
    fn name(&self) -> &'static str;

    /// This mode with the settings of a configuration.
    fn configured(&self, config: &Config) -> Arc<dyn Mode>;

    /// Where the configuration file has the settings that all modes have, and how they are read.
    fn config_section(&self) -> &'static ConfigSection;

    /// How packets are treated, where modes differ.
    fn trace_profile(&self) -> TraceProfile;

    /// What the daemon and the doctor need to know about it.
    fn properties(&self) -> Properties;

    /// The series that count failed syncs.
    fn failure_metrics(&self) -> FailureMetrics;

    /// The mode whose kernel objects this one uses besides its own. They stay when this mode takes over.
    fn builds_on(&self) -> Option<ModeRef> {
        None
    }

    /// Whether this machine supports it.
    fn check_support(&self) -> Result<(), SyncError> {
        Ok(())
    }

    /// Does what has to be done once with full privileges, for processes that have fewer later.
    fn prepare(&self) -> Result<(), SyncError> {
        Ok(())
    }

    /// Checks that this machine supports it and opens connections to the kernel.
    fn install(&self, context: &InstallContext) -> Result<Installed, SyncError>;

    /// Removes from the kernel what this mode wrote, and a kube-proxy in the same mode if `removal` says so.
    fn remove(&self, removal: &Removal, steps: &mut RemovalSteps);

    /// Removes what other settings of this mode, or a kube-proxy in the same mode, left beside the rules of this one. Part of its takeover.
    fn remove_own_leftovers(&self, _removal: &Removal, _steps: &mut RemovalSteps) {}

    /// What it would write into an empty kernel, as text.
    fn plan(&self, desired: &Desired) -> String;

    /// What it would write to get from one state to another, as text.
    fn plan_change(&self, old: &Desired, new: &Desired, delta: &Delta) -> String;

    /// Where the kernel differs from the desired state. Only reads. `proxies` are those of this process, if it is the daemon.
    fn compare(
        &self,
        desired: &Desired,
        counters: bool,
        proxies: Option<&Directory>,
    ) -> Result<Vec<Difference>, SyncError>;

    /// The kernel objects that decide about a traced packet. Only reads.
    fn find_in_kernel(&self, trace: &Trace) -> Result<Vec<KernelObject>, SyncError>;

    /// A command that shows what the kernel has for a frontend. Names need no quoting: they are checked API names.
    fn inspect_command(
        &self,
        family: Family,
        port: &ServicePort,
        frontend: Frontend,
    ) -> Option<String>;

    /// Opens the kernel's counters of connections by service and endpoint; none if the kernel does not count in this mode.
    fn counts(&self) -> Result<Option<Box<dyn Counts>>, SyncError> {
        Ok(None)
    }

    /// The kernel's counters as text, of services whose name starts so; none if this mode has written nothing that counts. Only reads.
    fn counter_report(&self, _service: Option<&str>) -> Result<Option<String>, SyncError> {
        Ok(None)
    }

    /// The kernel modules it needs, of which the doctor reads whether they are there.
    fn kernel_modules(&self) -> &'static [&'static str] {
        &[]
    }

    /// The doctor's checks of what the kernel supports. Called for every mode, whichever one is used.
    fn kernel_checks(&self, _facts: &Facts) -> Vec<Finding> {
        Vec::new()
    }

    /// The doctor's checks for what this mode left in the kernel. Called unless `facts.mode` is this one or builds on it.
    fn leftover_checks(&self, _facts: &Facts) -> Vec<Finding> {
        Vec::new()
    }

    /// Its rules are in force, so the doctor takes it for the node's mode if none is configured.
    fn is_in_force(&self, _facts: &Facts) -> bool {
        false
    }

    /// What changes for a node that goes from this mode to [`DEFAULT`]; none if `ferrovia migrate` does not support it.
    fn migration(&self) -> Option<&'static Migration> {
        None
    }
}

/// What the daemon and the doctor need to know about a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// It runs the iptables tools all the time, and not only during a takeover.
    pub needs_iptables_tools: bool,
    /// It listens on ports below 1024.
    pub needs_low_ports: bool,
    /// Services are served only while this process runs.
    pub stops_with_process: bool,
    /// Its rules accept forwarded packets of Services, whatever the firewall's policy is.
    pub accepts_forwarded_packets: bool,
    /// Its iptables chains have the names of kube-proxy's.
    pub shares_kube_proxy_chains: bool,
    /// It sets `route_localnet` for node ports on 127.0.0.1.
    pub sets_route_localnet: bool,
}

impl PartialEq for dyn Mode {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for dyn Mode {}

/// All modes in the order of their names, as people see them listed.
pub fn by_name() -> &'static [ModeRef] {
    static SORTED: LazyLock<Vec<ModeRef>> = LazyLock::new(|| {
        let mut modes = ALL.to_vec();
        modes.sort_by_key(|mode| mode.name());
        modes
    });
    &SORTED
}

/// The mode of this name.
pub fn find(name: &str) -> Option<ModeRef> {
    ALL.into_iter().find(|mode| mode.name() == name)
}

/// The mode to use: the configured one, or else the best that this machine supports.
pub fn choose(config: &Config) -> Arc<dyn Mode> {
    config.mode.unwrap_or_else(best).configured(config)
}

fn best() -> ModeRef {
    let [first, others @ ..] = PREFERRED;
    let mut chosen = first;
    for next in others {
        match chosen.check_support() {
            Ok(()) => break,
            Err(error) => {
                tracing::warn!(mode = chosen.name(), %error, instead = next.name(), "This machine does not support the preferred mode; using another one");
                chosen = next;
            }
        }
    }
    tracing::info!(mode = chosen.name(), "No mode is configured; chose one");
    chosen
}

/// Reads how many connections each service and endpoint got, where the kernel counts them. The loop behind `inputs` is asked for names.
pub fn read_connections(
    mode: &dyn Mode,
    inputs: Inputs,
) -> Result<Option<ReadConnections>, SyncError> {
    use crate::inspect::counters::Totals;
    Ok(mode.counts()?.map(|counts| -> ReadConnections {
        let mut totals = Totals::new(counts, inputs);
        Box::new(move |out| totals.read(out))
    }))
}

/// What a planner writes into an empty kernel, as text.
fn full_plan<P: Planner>(mut planner: P, desired: &Desired) -> String
where
    P::Observed: Default,
{
    planner
        .full(desired, &P::Observed::default(), ObservedPolicy::Adopt)
        .to_string()
}

/// What a planner that has written one state writes for another, as text.
fn plan_of_change<P: Planner>(mut planner: P, old: &Desired, new: &Desired, delta: &Delta) -> String
where
    P::Observed: Default,
{
    planner.full(old, &P::Observed::default(), ObservedPolicy::Adopt);
    planner.incremental(new, delta).to_string()
}

#[cfg(test)]
mod tests {
    use ferrovia_core::desired::{Builder, NodeSettings};
    use ferrovia_core::store::{Event, Store};
    use ferrovia_core::wire::Object;
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_unique_and_agree_with_the_trace() {
        let names: std::collections::BTreeSet<_> = ALL.iter().map(|mode| mode.name()).collect();
        assert_eq!(names.len(), ALL.len());
        for mode in ALL {
            assert_eq!(mode.trace_profile().mode, mode.name());
            assert_eq!(find(mode.name()), Some(mode));
        }
    }

    #[test]
    fn each_mode_has_a_command_that_shows_a_cluster_ip() {
        let service = json!({
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"clusterIP": "10.96.0.10", "ports": [{"name": "http", "port": 80}]},
        });
        let mut store = Store::new("node-1");
        let service = serde_json::from_value(service).unwrap();
        store.handle(Event::Applied(Box::new(Object::Service(service))));
        let mut builder = Builder::new(NodeSettings::of_node("node-1"));
        let touched = store.take_touched();
        builder.update(&store, touched, &[]);
        let desired = builder.desired(Family::V4);
        let port = desired.ports.values().next().unwrap();
        let command = |mode: &dyn Mode| mode.inspect_command(Family::V4, port, port.frontends[0]);
        let bind_portals = UserspaceMode {
            settings: UserspaceSettings {
                portals: PortalSetting::Bind,
                ..UserspaceSettings::default()
            },
            ..UserspaceMode::default()
        };
        for (mode, expected) in [
            (
                &NftablesMode::default() as &dyn Mode,
                "nft get element ip ferrovia rejected-services '{ 10.96.0.10 . tcp . 80 }'",
            ),
            (
                &IptablesMode::default(),
                "iptables-save | grep -F 'shop/web:http '",
            ),
            (
                &IpvsMode::default(),
                "ipvsadm --list --numeric --tcp-service 10.96.0.10:80",
            ),
            (
                &bind_portals,
                "ss --no-header --listening --numeric --tcp src 10.96.0.10:80",
            ),
        ] {
            assert_eq!(command(mode).as_deref(), Some(expected));
        }
    }
}
