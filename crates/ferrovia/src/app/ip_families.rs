//! Whether the address families of the configuration, the Node and this machine go together. Pure.
//!
//! A node has a primary family: that of the address it was given by hand, or of the first one its Node object lists. Where the machine
//! has both families, both are served and a setting of the other family is at most odd; where it has only one, it may mean that nothing
//! works.

use std::net::{IpAddr, SocketAddr};

use ferrovia_core::desired::{LocalSetting, NodePortSetting, NodeSettings};
use ferrovia_core::family::{Family, PerFamily};
use ferrovia_core::model::node::Node;
use ipnet::IpNet;

/// What has a family and has to fit.
#[derive(Clone, Copy, Debug)]
pub struct Check<'a> {
    /// The families this machine can do.
    pub supported: PerFamily<bool>,
    /// What shapes traffic.
    pub settings: &'a NodeSettings,
    /// Our Node, if it is known.
    pub node: Option<&'a Node>,
    /// Virtual servers of others that the ipvs mode must leave alone.
    pub exclude_cidrs: &'a [IpNet],
    /// Where health is served.
    pub health: Option<SocketAddr>,
    /// Where metrics are served.
    pub metrics: Option<SocketAddr>,
}

/// What belongs to one setting.
struct Ranges<'a> {
    name: &'static str,
    nets: &'a [IpNet],
}

impl Check<'_> {
    /// The family of this node's first address.
    pub fn primary(&self) -> Family {
        let by_hand = Family::ALL
            .into_iter()
            .find(|family| self.settings.node_ips[*family].is_some());
        by_hand
            .or_else(|| self.node?.primary_family())
            .unwrap_or(Family::V4)
    }

    /// What is odd and should be told, or the reason why nothing can work.
    pub fn run(&self) -> Result<Vec<String>, String> {
        let primary = self.primary();
        if !self.supported[primary] {
            return Err(format!(
                "this node's primary address is {primary}, but this machine has no {primary}; set --bind-address to an address of the other family, or turn {primary} on"
            ));
        }
        let is_dual = Family::ALL.into_iter().all(|family| self.supported[family]);
        let mut oddities = Vec::new();
        self.check_detection(primary, is_dual, &mut oddities)?;
        if !is_dual {
            self.check_single(primary, &mut oddities);
        }
        self.check_node_ports(primary, is_dual, &mut oddities);
        Ok(oddities)
    }

    fn cluster_cidrs(&self) -> Ranges<'_> {
        let nets = match &self.settings.local {
            LocalSetting::ClusterCidr(nets) => nets.as_slice(),
            _ => &[],
        };
        Ranges {
            name: "clusterCIDR",
            nets,
        }
    }

    fn pod_cidrs(&self) -> Ranges<'_> {
        Ranges {
            name: "the Node's podCIDRs",
            nets: self.node.map_or(&[], |node| &node.pod_cidrs),
        }
    }

    fn node_port_cidrs(&self) -> Ranges<'_> {
        let nets = match &self.settings.node_ports {
            NodePortSetting::Cidrs(nets) => nets.as_slice(),
            NodePortSetting::Any | NodePortSetting::Primary => &[],
        };
        Ranges {
            name: "nodePortAddresses",
            nets,
        }
    }

    fn exclude_cidrs(&self) -> Ranges<'_> {
        Ranges {
            name: "ipvs.excludeCIDRs",
            nets: self.exclude_cidrs,
        }
    }

    /// Without a range of the primary family, none of its traffic would count as a pod's.
    fn check_detection(
        &self,
        primary: Family,
        is_dual: bool,
        oddities: &mut Vec<String>,
    ) -> Result<(), String> {
        let clusters = self.cluster_cidrs();
        if clusters.lacks(primary) {
            let problem = clusters.problem(primary);
            if !is_dual {
                return Err(problem);
            }
            oddities.push(problem);
        }
        let pods = self.pod_cidrs();
        if pods.lacks(primary) {
            let problem = pods.problem(primary);
            if matches!(self.settings.local, LocalSetting::NodeCidr) {
                return Err(problem);
            }
            oddities.push(problem);
        }
        Ok(())
    }

    fn check_single(&self, primary: Family, oddities: &mut Vec<String>) {
        let excluded = self.exclude_cidrs();
        if excluded.lacks(primary) {
            oddities.push(excluded.problem(primary));
        }
        for (name, address) in [
            ("healthzBindAddress", self.health),
            ("metricsBindAddress", self.metrics),
        ] {
            let ip = address
                .map(|address| address.ip())
                .filter(|ip| !ip.is_unspecified());
            if ip.is_some_and(|ip: IpAddr| Family::of(ip) != primary) {
                oddities.push(format!(
                    "{name} is not {primary}, the only family of this machine"
                ));
            }
        }
    }

    fn check_node_ports(&self, primary: Family, is_dual: bool, oddities: &mut Vec<String>) {
        if matches!(self.settings.node_ports, NodePortSetting::Any) {
            oddities.push(
                "nodePortAddresses is not set, so node ports answer on every local address; `primary` would keep them to the node's own"
                    .into(),
            );
            return;
        }
        let node_ports = self.node_port_cidrs();
        if node_ports.lacks(primary) {
            oddities.push(node_ports.problem(primary));
        }
        let others = [self.cluster_cidrs(), self.exclude_cidrs(), self.pod_cidrs()];
        let looks_dual = is_dual && others.iter().any(Ranges::is_dual);
        if looks_dual && !node_ports.nets.is_empty() && !node_ports.is_dual() {
            let missing = if node_ports.lacks(Family::V4) {
                Family::V4
            } else {
                Family::V6
            };
            oddities.push(format!(
                "nodePortAddresses has no {missing} range although the cluster is dual-stack, so {missing} node ports answer on every local address"
            ));
        }
    }
}

impl Ranges<'_> {
    fn has(&self, family: Family) -> bool {
        self.nets.iter().any(|net| Family::of_net(net) == family)
    }

    /// There are ranges, but none of the family.
    fn lacks(&self, family: Family) -> bool {
        !self.nets.is_empty() && !self.has(family)
    }

    fn is_dual(&self) -> bool {
        Family::ALL.into_iter().all(|family| self.has(family))
    }

    fn problem(&self, primary: Family) -> String {
        format!(
            "{} has no range of this node's primary family, {primary}",
            self.name
        )
    }
}

#[cfg(test)]
mod tests;
