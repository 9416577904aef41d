//! A plan of the ipvs mode as differences.

use std::collections::BTreeMap;

use super::Difference;
use crate::dialect::{ipset, ipvs};
use crate::plan::ipvs::{AddressOp, DEVICE, IpvsPlan, Observed, Step};

/// What a full plan would change in what was found.
pub fn differences(plan: &IpvsPlan, observed: &Observed) -> Vec<Difference> {
    let mut told = Teller::default();
    let mut differences = Vec::new();
    for step in &plan.steps {
        match step {
            Step::Device => told.wanted(device(), "the device".to_owned()),
            Step::NoDevice => told.found(device(), "the device".to_owned()),
            Step::Sets(ops) => ops.iter().for_each(|op| told.set(op)),
            Step::Servers(ops) => ops.iter().for_each(|op| told.server(op, observed)),
            Step::Addresses(ops) => ops.iter().for_each(|op| match op {
                AddressOp::Bind(ip) => told.wanted(device(), ip.to_string()),
                AddressOp::Unbind(ip) => told.found(device(), ip.to_string()),
            }),
            Step::Rules(rules) => {
                differences.extend(super::iptables::differences(rules, &observed.rules));
            }
        }
    }
    differences.extend(told.differences());
    differences
}

fn device() -> String {
    format!("device {DEVICE}")
}

/// What is found and what is wanted instead, by place.
#[derive(Default)]
struct Teller(BTreeMap<String, (Vec<String>, Vec<String>)>);

impl Teller {
    fn found(&mut self, place: String, text: String) {
        self.0.entry(place).or_default().0.push(text);
    }

    fn wanted(&mut self, place: String, text: String) {
        self.0.entry(place).or_default().1.push(text);
    }

    fn set(&mut self, op: &ipset::Op) {
        let place = |set: &ipset::SetName| format!("set {set}");
        match op {
            ipset::Op::Create { set, .. } => self.wanted(place(set), "the set".to_owned()),
            ipset::Op::Destroy(set) => self.found(place(set), "the set".to_owned()),
            ipset::Op::Add(set, entry) => self.wanted(place(set), entry.to_string()),
            ipset::Op::Delete(set, entry) => self.found(place(set), entry.to_string()),
            ipset::Op::Swap(set, other) => {
                self.wanted(place(set), format!("what {other} was filled with"));
            }
        }
    }

    fn server(&mut self, op: &ipvs::Op, observed: &Observed) {
        let place = |key: &ipvs::ServerKey| format!("virtual server {key}");
        match op {
            ipvs::Op::PutServer(server) => {
                if let Some((found, _)) = observed.servers.get(&server.key) {
                    self.found(place(&server.key), ipvs::Op::PutServer(*found).to_string());
                }
                self.wanted(place(&server.key), op.to_string());
            }
            ipvs::Op::DeleteServer(key) => self.found(place(key), "the server".to_owned()),
            ipvs::Op::PutDestination(key, to) => {
                let destinations = observed.servers.get(key).map(|(_, all)| all);
                if let Some(weight) = destinations.and_then(|all| all.get(&to.address)) {
                    self.found(place(key), format!("{} weight {weight}", to.address));
                }
                self.wanted(place(key), format!("{} weight {}", to.address, to.weight));
            }
            ipvs::Op::RemoveDestination {
                server,
                destination,
                ..
            } => self.found(place(server), destination.to_string()),
        }
    }

    fn differences(self) -> impl Iterator<Item = Difference> {
        let told = self.0.into_iter();
        told.map(|(place, (found, wanted))| Difference::new(place, found, wanted))
    }
}
