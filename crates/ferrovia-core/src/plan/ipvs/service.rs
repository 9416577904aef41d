//! A service port as virtual servers, entries of sets and addresses. All of it follows from the port and the node's settings alone.

use std::net::{IpAddr, SocketAddr};

use super::context::IpvsContext;
use super::rules::out_rule;
use super::schedule::schedule;
use super::service_state::ServiceState;
use super::sets::IpvsSetId;
use crate::desired::{Endpoint, Frontend, NoEndpoints, RefusalAction, ServicePort};
use crate::dialect::ipset::IpsetEntry;
use crate::dialect::ipvs::{VirtualServer, VirtualServerKey};
use crate::model::{Protocol, TrafficPolicy};

/// Everything that is written for a service port.
pub(super) fn state(port: &ServicePort, context: &IpvsContext) -> ServiceState {
    let mut maker = ServiceStateBuilder {
        port,
        context,
        state: ServiceState::default(),
    };
    for frontend in &*port.frontends {
        maker.frontend(*frontend);
    }
    for endpoint in port.local_endpoints() {
        let entry = IpsetEntry::IpPortIp(endpoint.ip, port.protocol(), endpoint.port, endpoint.ip);
        maker.state.loops.insert(entry, 1);
    }
    maker.state
}

/// What becomes of packets to a frontend.
enum FrontendOutcome<'a> {
    /// They go to one of these. Without any, the kernel answers that the port is unreachable.
    Serve(&'a [Endpoint]),
    /// Those from inside go to one of these, others are dropped.
    ServeInside(&'a [Endpoint]),
    /// They are dropped by the rules of a set.
    Drop(IpvsSetId),
}

struct ServiceStateBuilder<'a> {
    port: &'a ServicePort,
    context: &'a IpvsContext,
    state: ServiceState,
}

impl<'a> ServiceStateBuilder<'a> {
    fn frontend(&mut self, frontend: Frontend) {
        let mut addresses: Vec<SocketAddr> = Vec::new();
        match frontend {
            Frontend::ClusterIp(at) => {
                addresses.push(at);
                self.list(IpvsSetId::ClusterIp, at);
            }
            Frontend::ExternalIp(at) => {
                addresses.push(at);
                let set = match self.port.external_policy {
                    TrafficPolicy::Cluster => IpvsSetId::ExternalIp,
                    TrafficPolicy::Local => IpvsSetId::ExternalIpLocal,
                };
                self.list(set, at);
            }
            Frontend::LoadBalancer(at) => {
                addresses.push(at);
                self.load_balancer(at);
            }
            Frontend::NodePort(number) => {
                let protocol = self.port.protocol();
                addresses.extend(self.context.node_port_servers(number, protocol));
                self.node_port(number);
            }
        }
        if let Some(at) = frontend
            .address()
            .filter(|at| !self.context.is_nodes(at.ip()))
        {
            self.state.addresses.insert(at.ip(), 1);
        }
        match self.outcome(frontend) {
            FrontendOutcome::Serve(endpoints) => self.serve(&addresses, endpoints),
            FrontendOutcome::ServeInside(endpoints) => {
                self.serve(&addresses, endpoints);
                addresses
                    .iter()
                    .for_each(|at| self.list(IpvsSetId::NoLocal, *at));
            }
            FrontendOutcome::Drop(set) => addresses.iter().for_each(|at| self.list(set, *at)),
        }
    }

    fn outcome(&self, frontend: Frontend) -> FrontendOutcome<'a> {
        let port = self.port;
        let policy = port.policy(frontend);
        match port.refusal(frontend) {
            None => FrontendOutcome::Serve(port.endpoints(policy)),
            Some(RefusalAction::Reject) => match self.context.node.no_endpoints {
                NoEndpoints::Reject => FrontendOutcome::Serve(&[]),
                NoEndpoints::Drop => FrontendOutcome::Drop(IpvsSetId::NoEndpoints),
            },
            Some(RefusalAction::Drop) if self.context.options.local_fallback => {
                FrontendOutcome::Serve(&port.cluster)
            }
            Some(RefusalAction::Drop) if frontend.is_internal() || port.cluster.is_empty() => {
                FrontendOutcome::Drop(IpvsSetId::NoneAllowed)
            }
            Some(RefusalAction::Drop) => FrontendOutcome::ServeInside(&port.cluster),
        }
    }

    /// One virtual server for each address.
    fn serve(&mut self, addresses: &[SocketAddr], endpoints: &[Endpoint]) {
        let (scheduler, flags) = schedule(self.port, endpoints, &self.context.options);
        for at in addresses {
            let key = VirtualServerKey {
                address: at.ip(),
                port: at.port(),
                protocol: self.port.protocol(),
            };
            let server = VirtualServer {
                key,
                scheduler,
                flags,
                persistence: self.port.affinity,
            };
            let destinations = endpoints
                .iter()
                .map(|endpoint| {
                    (
                        SocketAddr::new(endpoint.ip, endpoint.port),
                        endpoint.weight.into(),
                    )
                })
                .collect();
            self.state.servers.insert(key, (server, destinations));
        }
    }

    fn list(&mut self, set: IpvsSetId, at: SocketAddr) {
        let entry = IpsetEntry::IpPort(at.ip(), self.port.protocol(), at.port());
        self.state.entries.insert((set, entry));
    }

    fn load_balancer(&mut self, at: SocketAddr) {
        self.list(IpvsSetId::LoadBalancer, at);
        if self.port.external_policy == TrafficPolicy::Local {
            self.list(IpvsSetId::LoadBalancerLocal, at);
        }
        if !self.port.source_ranges.is_empty() {
            self.list(IpvsSetId::Firewall, at);
            self.source_ranges(at);
        }
    }

    /// Who may use a load balancer's address. Among the ranges are the load balancer's own addresses if the node may: it sends with the
    /// address it sends to, so that one counts and the others do not. That a range covers the load balancer's address says nothing of the node.
    fn source_ranges(&mut self, at: SocketAddr) {
        let protocol = self.port.protocol();
        for net in &self.port.source_ranges {
            let single = (net.prefix_len() == net.max_prefix_len()).then(|| net.addr());
            let (set, entry) = match single {
                Some(ip) if ip == at.ip() => {
                    let entry = IpsetEntry::IpPortIp(ip, protocol, at.port(), ip);
                    (IpvsSetId::SourceIp, entry)
                }
                Some(ip) if self.is_load_balancers(ip) => continue,
                _ => {
                    let entry = IpsetEntry::IpPortNet(at.ip(), protocol, at.port(), net.trunc());
                    (IpvsSetId::SourceCidr, entry)
                }
            };
            self.state.entries.insert((set, entry));
        }
        let mut ranges = self.port.source_ranges.iter();
        let node_may = ranges.any(|net| *net == at.ip().into() || self.context.covers_node(net));
        if !node_may {
            self.state.out_rules.insert(out_rule(at, protocol));
        }
    }

    fn is_load_balancers(&self, ip: IpAddr) -> bool {
        let mut frontends = self.port.frontends.iter();
        frontends.any(|frontend| matches!(frontend, Frontend::LoadBalancer(at) if at.ip() == ip))
    }

    fn node_port(&mut self, number: u16) {
        let protocol = self.port.protocol();
        let mut sets = vec![IpvsSetId::node_port(protocol)];
        if self.port.external_policy == TrafficPolicy::Local {
            sets.push(IpvsSetId::node_port_local(protocol));
        }
        for set in sets {
            match protocol {
                Protocol::Tcp | Protocol::Udp => {
                    self.state.entries.insert((set, IpsetEntry::Port(number)));
                }
                Protocol::Sctp => {
                    let context = self.context;
                    for ip in context.node_port_addresses() {
                        self.list(set, SocketAddr::new(*ip, number));
                    }
                }
            }
        }
    }
}
