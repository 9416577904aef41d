//! A plan of the ipvs mode as differences.

use std::collections::BTreeMap;

use super::Difference;
use crate::dialect::{ipset, ipvs};
use crate::plan::ipvs::{AddressOp, DEVICE, IpvsObserved, IpvsPlan, IpvsStep};

/// What a full plan would change in what was found.
pub fn differences(plan: &IpvsPlan, observed: &IpvsObserved) -> Vec<Difference> {
    let mut collected = IpvsDifferences::default();
    let mut differences = Vec::new();
    for step in &plan.steps {
        match step {
            IpvsStep::Device => collected.wanted(device(), "the device".to_owned()),
            IpvsStep::NoDevice => collected.found(device(), "the device".to_owned()),
            IpvsStep::Sets(ops) => ops.iter().for_each(|op| collected.set(op)),
            IpvsStep::Servers(ops) => ops.iter().for_each(|op| collected.server(op, observed)),
            IpvsStep::Addresses(ops) => ops.iter().for_each(|op| match op {
                AddressOp::Bind(ip) => collected.wanted(device(), ip.to_string()),
                AddressOp::Unbind(ip) => collected.found(device(), ip.to_string()),
            }),
            IpvsStep::Rules(rules) => {
                differences.extend(super::iptables::differences(rules, &observed.rules));
            }
        }
    }
    differences.extend(collected.differences());
    differences
}

fn device() -> String {
    format!("device {DEVICE}")
}

/// Observed and desired text, by object.
#[derive(Default)]
struct IpvsDifferences(BTreeMap<String, (Vec<String>, Vec<String>)>);

impl IpvsDifferences {
    fn found(&mut self, place: String, text: String) {
        self.0.entry(place).or_default().0.push(text);
    }

    fn wanted(&mut self, place: String, text: String) {
        self.0.entry(place).or_default().1.push(text);
    }

    fn set(&mut self, op: &ipset::IpsetOp) {
        let place = |set: &ipset::IpsetName| format!("set {set}");
        match op {
            ipset::IpsetOp::Create { set, .. } => self.wanted(place(set), "the set".to_owned()),
            ipset::IpsetOp::Destroy(set) => self.found(place(set), "the set".to_owned()),
            ipset::IpsetOp::Add(set, entry) => self.wanted(place(set), entry.to_string()),
            ipset::IpsetOp::Delete(set, entry) => self.found(place(set), entry.to_string()),
            ipset::IpsetOp::Swap(set, other) => {
                self.wanted(place(set), format!("what {other} was filled with"));
            }
        }
    }

    fn server(&mut self, op: &ipvs::IpvsOp, observed: &IpvsObserved) {
        let place = |key: &ipvs::VirtualServerKey| format!("virtual server {key}");
        match op {
            ipvs::IpvsOp::PutServer(server) => {
                if let Some((found, _)) = observed.servers.get(&server.key) {
                    self.found(
                        place(&server.key),
                        ipvs::IpvsOp::PutServer(*found).to_string(),
                    );
                }
                self.wanted(place(&server.key), op.to_string());
            }
            ipvs::IpvsOp::DeleteServer(key) => self.found(place(key), "the server".to_owned()),
            ipvs::IpvsOp::PutDestination(key, to) => {
                let destinations = observed.servers.get(key).map(|(_, all)| all);
                if let Some(weight) = destinations.and_then(|all| all.get(&to.address)) {
                    self.found(place(key), format!("{} weight {weight}", to.address));
                }
                self.wanted(place(key), format!("{} weight {}", to.address, to.weight));
            }
            ipvs::IpvsOp::RemoveDestination {
                server,
                destination,
                ..
            } => self.found(place(server), destination.to_string()),
        }
    }

    fn differences(self) -> impl Iterator<Item = Difference> {
        let collected = self.0.into_iter();
        collected.map(|(place, (found, wanted))| Difference::new(place, found, wanted))
    }
}
