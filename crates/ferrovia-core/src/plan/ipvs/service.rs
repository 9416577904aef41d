//! A service port as virtual servers, entries of sets and addresses. All of it follows from the port and the node's settings alone.

use std::net::{IpAddr, SocketAddr};

use super::context::Context;
use super::rules::out_rule;
use super::schedule::schedule;
use super::sets::SetId;
use super::state::State;
use crate::desired::{Endpoint, Frontend, NoEndpoints, Refusal, ServicePort};
use crate::dialect::ipset::Entry;
use crate::dialect::ipvs::{Server, ServerKey};
use crate::model::{Protocol, TrafficPolicy};

/// Everything that is written for a service port.
pub(super) fn state(port: &ServicePort, context: &Context) -> State {
    let mut maker = Maker {
        port,
        context,
        state: State::default(),
    };
    for frontend in &*port.frontends {
        maker.frontend(*frontend);
    }
    for endpoint in port.local_endpoints() {
        let entry = Entry::IpPortIp(endpoint.ip, port.protocol(), endpoint.port, endpoint.ip);
        maker.state.loops.insert(entry, 1);
    }
    maker.state
}

/// What becomes of packets to a frontend.
enum Outcome<'a> {
    /// They go to one of these. Without any, the kernel answers that the port is unreachable.
    Serve(&'a [Endpoint]),
    /// Those from inside go to one of these, others are dropped.
    ServeInside(&'a [Endpoint]),
    /// They are dropped by the rules of a set.
    Drop(SetId),
}

struct Maker<'a> {
    port: &'a ServicePort,
    context: &'a Context,
    state: State,
}

impl<'a> Maker<'a> {
    fn frontend(&mut self, frontend: Frontend) {
        let mut addresses: Vec<SocketAddr> = Vec::new();
        match frontend {
            Frontend::ClusterIp(at) => {
                addresses.push(at);
                self.list(SetId::ClusterIp, at);
            }
            Frontend::ExternalIp(at) => {
                addresses.push(at);
                let set = match self.port.external_policy {
                    TrafficPolicy::Cluster => SetId::ExternalIp,
                    TrafficPolicy::Local => SetId::ExternalIpLocal,
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
            Outcome::Serve(endpoints) => self.serve(&addresses, endpoints),
            Outcome::ServeInside(endpoints) => {
                self.serve(&addresses, endpoints);
                addresses
                    .iter()
                    .for_each(|at| self.list(SetId::NoLocal, *at));
            }
            Outcome::Drop(set) => addresses.iter().for_each(|at| self.list(set, *at)),
        }
    }

    fn outcome(&self, frontend: Frontend) -> Outcome<'a> {
        let port = self.port;
        let policy = port.policy(frontend);
        match port.refusal(frontend) {
            None => Outcome::Serve(port.endpoints(policy)),
            Some(Refusal::Reject) => match self.context.node.no_endpoints {
                NoEndpoints::Reject => Outcome::Serve(&[]),
                NoEndpoints::Drop => Outcome::Drop(SetId::NoEndpoints),
            },
            Some(Refusal::Drop) if self.context.options.local_fallback => {
                Outcome::Serve(&port.cluster)
            }
            Some(Refusal::Drop) if frontend.is_internal() || port.cluster.is_empty() => {
                Outcome::Drop(SetId::NoneAllowed)
            }
            Some(Refusal::Drop) => Outcome::ServeInside(&port.cluster),
        }
    }

    /// One virtual server for each address.
    fn serve(&mut self, addresses: &[SocketAddr], endpoints: &[Endpoint]) {
        let (scheduler, flags) = schedule(self.port, endpoints, &self.context.options);
        for at in addresses {
            let key = ServerKey {
                address: at.ip(),
                port: at.port(),
                protocol: self.port.protocol(),
            };
            let server = Server {
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

    fn list(&mut self, set: SetId, at: SocketAddr) {
        let entry = Entry::IpPort(at.ip(), self.port.protocol(), at.port());
        self.state.entries.insert((set, entry));
    }

    fn load_balancer(&mut self, at: SocketAddr) {
        self.list(SetId::LoadBalancer, at);
        if self.port.external_policy == TrafficPolicy::Local {
            self.list(SetId::LoadBalancerLocal, at);
        }
        if !self.port.source_ranges.is_empty() {
            self.list(SetId::Firewall, at);
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
                    let entry = Entry::IpPortIp(ip, protocol, at.port(), ip);
                    (SetId::SourceIp, entry)
                }
                Some(ip) if self.is_load_balancers(ip) => continue,
                _ => {
                    let entry = Entry::IpPortNet(at.ip(), protocol, at.port(), net.trunc());
                    (SetId::SourceCidr, entry)
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
        let mut sets = vec![SetId::node_port(protocol)];
        if self.port.external_policy == TrafficPolicy::Local {
            sets.push(SetId::node_port_local(protocol));
        }
        for set in sets {
            match protocol {
                Protocol::Tcp | Protocol::Udp => {
                    self.state.entries.insert((set, Entry::Port(number)));
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
