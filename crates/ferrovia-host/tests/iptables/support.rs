//! Namespaces, the tools, and a node under test.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::{Arc, Once};
use std::{env, thread};

use ferrovia_core::desired::{Delta, Desired, PortChange};
use ferrovia_core::dialect::iptables::Restore;
use ferrovia_core::family::Family;
use ferrovia_core::plan::iptables::IptablesPlanner;
use ferrovia_core::plan::{ObservedPolicy, Planner};
use ferrovia_host::Applier;
use ferrovia_host::iptables::{AcctCounter, ApplyError, Backend, IptablesApplier, detect};
use ferrovia_lab::namespace::{enter_new, succeed};

use ferrovia_lab::kube_proxy_rules::{self, ServiceShape};

/// Both backends.
pub(crate) const BACKENDS: [Backend; 2] = [Backend::Nft, Backend::Legacy];

/// Runs a test in a fresh network namespace, which goes with the thread.
pub(crate) fn in_namespace<T: Send>(test: impl FnOnce() -> T + Send) -> T {
    static LOCK_FILE: Once = Once::new();
    LOCK_FILE.call_once(|| {
        let path = env::temp_dir().join("ferrovia-test-xtables.lock");
        // SAFETY: every test comes here before it does anything else, and none reads the environment other than through std, which locks.
        unsafe { env::set_var("XTABLES_LOCKFILE", path) };
    });
    thread::scope(|scope| {
        let ran = scope.spawn(|| {
            enter_new();
            test()
        });
        ran.join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Runs a program that must succeed.
pub(crate) fn run(program: &str, args: &[&str], input: &str) -> String {
    succeed(Command::new(program).args(args), input)
}

/// A family's tool of a backend.
pub(crate) fn tool(family: Family, backend: Backend) -> String {
    let name = backend.as_str();
    match family {
        Family::V4 => name.to_owned(),
        Family::V6 => name.replace("iptables", "ip6tables"),
    }
}

/// Does to the rules what another process would.
pub(crate) fn restore(family: Family, backend: Backend, input: &str) {
    let args = ["--noflush", "-w", "300"];
    run(&format!("{}-restore", tool(family, backend)), &args, input);
}

/// The shape of a name.
pub(crate) fn shape(name: &str) -> ServiceShape {
    let mut all = kube_proxy_rules::all().into_iter();
    all.find(|shape| shape.name == name).unwrap()
}

/// A node in this namespace whose state is that of a shape.
pub(crate) struct Node {
    pub(crate) backend: Backend,
    pub(crate) desired: Desired,
    pub(crate) planner: IptablesPlanner,
    pub(crate) applier: IptablesApplier,
    shape: ServiceShape,
}

impl Node {
    /// A node that has written nothing yet. The kubelet says which backend it uses.
    pub(crate) fn new(shape: &ServiceShape, backend: Backend) -> Self {
        let family = shape.family;
        restore(
            family,
            backend,
            "*mangle\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n",
        );
        let mut detected = detect(&[family]).unwrap();
        assert_eq!(detected.backend, backend);
        let tool = detected.tools[family].take().unwrap();
        let applier = IptablesApplier::new(tool)
            .with_counters(&[AcctCounter::Invalid, AcctCounter::Localhost])
            .with_localhost_node_ports();
        Self {
            backend,
            desired: shape.desired(),
            planner: planner(shape, backend),
            applier,
            shape: shape.clone(),
        }
    }

    /// The same with its rules written.
    pub(crate) fn written(shape: &ServiceShape, backend: Backend) -> Self {
        let mut node = Self::new(shape, backend);
        node.full(ObservedPolicy::Adopt).unwrap();
        node
    }

    /// Reads the kernel back and writes what differs.
    pub(crate) fn full(&mut self, found: ObservedPolicy) -> Result<Restore, ApplyError> {
        let observed = self.applier.observe()?;
        let plan = self.planner.full(&self.desired, &observed, found);
        self.applier.apply(&plan)?;
        Ok(plan)
    }

    /// Writes a change to another state.
    pub(crate) fn change(&mut self, desired: Desired) -> Result<Restore, ApplyError> {
        let old = std::mem::replace(&mut self.desired, desired);
        let keys: BTreeSet<_> = old.ports.keys().chain(self.desired.ports.keys()).collect();
        let changes = keys.into_iter().map(|key| PortChange {
            key: key.clone(),
            old: old.ports.get(key).map(Arc::clone),
            new: self.desired.ports.get(key).map(Arc::clone),
        });
        let delta = Delta {
            node: old.node != self.desired.node,
            ports: changes.filter(|change| change.old != change.new).collect(),
            checks: Vec::new(),
        };
        let plan = self.planner.incremental(&self.desired, &delta);
        self.applier.apply(&plan)?;
        Ok(plan)
    }

    /// Forgets everything, as a new process would.
    pub(crate) fn restart(&mut self) {
        self.planner = planner(&self.shape, self.backend);
    }

    /// What is in the kernel.
    pub(crate) fn save(&mut self) -> String {
        self.applier.observe().unwrap().save
    }
}

fn planner(shape: &ServiceShape, backend: Backend) -> IptablesPlanner {
    let mut options = shape.options;
    options.commits = backend.commits();
    IptablesPlanner::new(shape.family, options)
}
