//! The rules of the ipvs mode by both kinds of tools. The mode itself is tested in user-mode Linux, where there is only one kind.

use std::collections::BTreeMap;

use ferrovia_core::dialect::ipvs::IpvsOp;
use ferrovia_core::plan::ipvs::{
    AddressOp, IpvsObserved, IpvsOptions, IpvsPlan, IpvsPlanner, IpvsStep, cleanup,
};
use ferrovia_core::plan::{ObservedPolicy, Planner as _};
use ferrovia_host::Applier as _;
use ferrovia_host::ipset::Ipset;
use ferrovia_host::iptables::{Backend, IptablesApplier, Tool};
use ferrovia_lab::kube_proxy_rules::{self, ServiceShape};

use crate::support::{BACKENDS, in_namespace};

/// The match of the load balancer itself, which this kernel need not have.
const NEEDS_IPVS: &str = "-m ipvs";

#[test]
fn rules_and_sets_of_the_ipvs_mode_are_read_back_as_written() {
    let mut tried = 0;
    for shape in kube_proxy_rules::all() {
        let plan = planner(&shape).full(
            &shape.desired(),
            &IpvsObserved::default(),
            ObservedPolicy::Adopt,
        );
        if plan.to_string().contains(NEEDS_IPVS) {
            continue;
        }
        tried += 1;
        for backend in BACKENDS {
            in_namespace(|| check(&shape, backend, &plan));
        }
    }
    assert!(tried > 5, "only {tried} shapes");
}

fn check(shape: &ServiceShape, backend: Backend, plan: &IpvsPlan) {
    let mut kernel = Kernel::new(shape, backend);
    kernel.apply(plan);
    let observed = kernel.observe();
    let again = planner(shape).full(&shape.desired(), &observed, ObservedPolicy::Adopt);
    let what = format!("{} with {backend}", shape.name);
    assert!(again.is_empty(), "{what}: a restart writes\n{again}");

    let plan = cleanup(shape.family, &observed, &shape.desired().node.addresses);
    assert_eq!(plan.notes, [""; 0], "{what}");
    kernel.apply(&plan);
    assert_eq!(kernel.observe().sets, BTreeMap::new(), "{what}");
}

fn planner(shape: &ServiceShape) -> IpvsPlanner {
    IpvsPlanner::new(shape.family, IpvsOptions::default())
}

/// Sets and rules of the real kernel; device and servers on paper.
struct Kernel {
    sets: Ipset,
    rules: IptablesApplier,
    paper: IpvsObserved,
}

impl Kernel {
    fn new(shape: &ServiceShape, backend: Backend) -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let tool = Tool::find(&path, shape.family, backend).unwrap();
        Self {
            sets: Ipset::open().unwrap(),
            rules: IptablesApplier::new(tool),
            paper: IpvsObserved::default(),
        }
    }

    fn apply(&mut self, plan: &IpvsPlan) {
        for step in &plan.steps {
            match step {
                IpvsStep::Sets(ops) => drop(self.sets.apply(ops).unwrap()),
                IpvsStep::Rules(rules) => assert!(self.rules.apply(rules).unwrap()),
                IpvsStep::Device => self.paper.device = true,
                IpvsStep::NoDevice => self.paper.device = false,
                IpvsStep::Servers(ops) => ops.iter().for_each(|op| self.server(*op)),
                IpvsStep::Addresses(ops) => ops.iter().for_each(|op| self.address(*op)),
            }
        }
    }

    fn server(&mut self, op: IpvsOp) {
        let servers = &mut self.paper.servers;
        match op {
            IpvsOp::PutServer(server) => {
                servers.insert(server.key, (server, BTreeMap::new()));
            }
            IpvsOp::PutDestination(key, to) => {
                let (_, destinations) = servers.get_mut(&key).unwrap();
                destinations.insert(to.address, to.weight);
            }
            IpvsOp::DeleteServer(key) => drop(servers.remove(&key)),
            IpvsOp::RemoveDestination { .. } => panic!("nothing was there: {op}"),
        }
    }

    fn address(&mut self, op: AddressOp) {
        match op {
            AddressOp::Bind(ip) => self.paper.addresses.insert(ip),
            AddressOp::Unbind(ip) => self.paper.addresses.remove(&ip),
        };
    }

    fn observe(&mut self) -> IpvsObserved {
        IpvsObserved {
            sets: self.sets.list().unwrap(),
            rules: self.rules.observe().unwrap(),
            ..self.paper.clone()
        }
    }
}
