//! A service port as portals: the rules that lead its clients to its proxies.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use ipnet::IpNet;

use super::chains::PortalChain;
use super::context::UserspaceContext;
use super::proxy::{ProxyListen, ProxyName, ProxySpec, is_proxied};
use crate::desired::{Frontend, LocalDetector, NoEndpoints, RefusalAction, ServicePort};
use crate::dialect::iptables::{IptablesMatch, IptablesRule, IptablesTarget, PortName};
use crate::model::TrafficPolicy;

/// Everything that is written and opened for one service port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Portal {
    pub(super) proxies: Vec<ProxySpec>,
    rules: Vec<(PortalChain, String)>,
}

impl Portal {
    /// The portal of a service port.
    pub(super) fn of(port: &ServicePort, context: &UserspaceContext) -> Self {
        let mut made = PortalBuilder {
            port,
            context,
            used: BTreeSet::new(),
            rules: Vec::new(),
        };
        for frontend in &*port.frontends {
            made.frontend(*frontend);
        }
        made.guards();
        let listen = || ProxyListen::Portal(context.listen());
        let used = made.used.iter();
        Self {
            proxies: used
                .filter_map(|policy| ProxySpec::of(port, *policy, listen()))
                .collect(),
            rules: made.rules,
        }
    }

    /// Its rules in one of the chains, in order.
    pub(super) fn rules(&self, chain: PortalChain) -> Vec<String> {
        let rules = self.rules.iter().filter(|(of, _)| *of == chain);
        rules.map(|(_, rule)| rule.clone()).collect()
    }
}

struct PortalBuilder<'a> {
    port: &'a ServicePort,
    context: &'a UserspaceContext,
    /// The proxies that rules lead to.
    used: BTreeSet<TrafficPolicy>,
    rules: Vec<(PortalChain, String)>,
}

/// Packets that a rule is for.
#[derive(Clone, Debug)]
enum TrafficOrigin {
    Anyone,
    Net(IpNet),
    /// By interfaces of this name, and of a range only.
    Interface(Option<IpNet>, String),
}

impl PortalBuilder<'_> {
    fn frontend(&mut self, frontend: Frontend) {
        let ranges = self.ranges(frontend);
        for (chain, from, policy) in self.ways(frontend, &ranges) {
            if self.port.endpoints(policy).is_empty() {
                continue;
            }
            self.used.insert(policy);
            let target = self.context.target(self.proxy_port(policy));
            let rule = from.only(self.to(frontend, IptablesRule::to(target), ""));
            self.add(chain, &rule);
        }
        if self.port.any_endpoints && is_proxied(self.port) && !ranges.is_empty() {
            let rule = self.to(
                frontend,
                IptablesRule::to(IptablesTarget::Drop),
                " is not for this source",
            );
            self.add(PortalChain::Firewall, &rule);
        }
        self.refuse(frontend);
    }

    /// Which packets go by which chain to whose endpoints; of those of one chain the first that fits. Under policy Local, what comes from
    /// inside still goes to any endpoint: it would not have left the cluster at a load balancer that knows where endpoints are.
    fn ways(
        &self,
        frontend: Frontend,
        ranges: &[IpNet],
    ) -> Vec<(PortalChain, TrafficOrigin, TrafficPolicy)> {
        if !is_proxied(self.port) {
            return Vec::new();
        }
        let (container, host) = match frontend {
            Frontend::NodePort(_) => (PortalChain::NodePortContainer, PortalChain::NodePortHost),
            _ => (PortalChain::PortalsContainer, PortalChain::PortalsHost),
        };
        let policy = self.port.policy(frontend);
        let splits = !frontend.is_internal() && policy == TrafficPolicy::Local;
        let sources: Vec<Option<IpNet>> = match ranges {
            [] => vec![None],
            some => some.iter().copied().map(Some).collect(),
        };
        let mut ways = Vec::new();
        for source in sources {
            let all = source.map_or(TrafficOrigin::Anyone, TrafficOrigin::Net);
            let of_pods = self.pods_among(source).filter(|_| splits);
            if let Some(pods) = of_pods {
                ways.push((container, pods, TrafficPolicy::Cluster));
            }
            ways.push((container, all.clone(), policy));
            let on_node = if splits {
                TrafficPolicy::Cluster
            } else {
                policy
            };
            ways.push((host, all, on_node));
        }
        ways
    }

    /// This node's pods, as far as they are in a range; `None` without local traffic detection.
    fn pods_among(&self, range: Option<IpNet>) -> Option<TrafficOrigin> {
        match &self.context.node.local {
            LocalDetector::Off => None,
            LocalDetector::Source(pods) => match range {
                None => Some(TrafficOrigin::Net(*pods)),
                Some(range) if range.contains(pods) => Some(TrafficOrigin::Net(*pods)),
                Some(range) => pods.contains(&range).then_some(TrafficOrigin::Net(range)),
            },
            LocalDetector::Interface(name) => Some(TrafficOrigin::Interface(range, name.clone())),
            LocalDetector::InterfacePrefix(prefix) => {
                Some(TrafficOrigin::Interface(range, format!("{prefix}+")))
            }
        }
    }

    /// Who may use a frontend; empty means everyone.
    fn ranges(&self, frontend: Frontend) -> Vec<IpNet> {
        match frontend {
            Frontend::LoadBalancer(_) => self.port.source_ranges.to_vec(),
            _ => Vec::new(),
        }
    }

    /// Refuses what no endpoint can take.
    fn refuse(&mut self, frontend: Frontend) {
        let (target, reason) = match self.port.refusal(frontend) {
            Some(RefusalAction::Reject) if self.context.node.no_endpoints == NoEndpoints::Drop => {
                (IptablesTarget::Drop, " has no endpoints")
            }
            Some(RefusalAction::Reject) => (self.reject(), " has no endpoints"),
            // Those inside could use endpoints elsewhere, if only the protocol were another.
            Some(RefusalAction::Drop) | None if !is_proxied(self.port) => {
                (self.reject(), " cannot be proxied")
            }
            Some(RefusalAction::Drop) => (IptablesTarget::Drop, " has no local endpoints"),
            None => return,
        };
        let rule = match frontend {
            Frontend::NodePort(number) => self
                .named(IptablesRule::to(target), reason)
                .with(IptablesMatch::DestinationIsLocal)
                .with(IptablesMatch::DestinationPort(number)),
            _ => self.to(frontend, IptablesRule::to(target), reason),
        };
        self.add(PortalChain::Firewall, &rule);
    }

    /// Protects the proxies' own ports: they accept only connections through a portal, or through a node port.
    fn guards(&mut self) {
        let has_node_port =
            (self.port.frontends.iter()).any(|frontend| matches!(frontend, Frontend::NodePort(_)));
        for policy in self.used.clone() {
            let own_port = IptablesMatch::DestinationPortOf(self.proxy_port(policy));
            let rule = self.named(
                IptablesRule::to(IptablesTarget::Drop),
                " is reached by its addresses only",
            );
            let rule = match self.context.fixed_listen() {
                Some(ip) => rule.destination(ip),
                None => rule.with(IptablesMatch::DestinationIsLocal),
            };
            let rule = rule
                .with(own_port.clone())
                .with(IptablesMatch::NotState("DNAT"));
            self.add(PortalChain::Firewall, &rule);
            if has_node_port {
                let rule = self
                    .named(IptablesRule::to(IptablesTarget::Accept), "")
                    .with(own_port);
                self.add(
                    PortalChain::NonLocal,
                    &rule.with(IptablesMatch::OldState("NEW")),
                );
            }
        }
    }

    fn proxy_port(&self, policy: TrafficPolicy) -> PortName {
        PortName::new(ProxyName {
            key: self.port.key.clone(),
            policy,
        })
    }

    /// The rule for packets to a frontend.
    fn to(&self, frontend: Frontend, rule: IptablesRule, comment: &str) -> IptablesRule {
        let rule = self.named(rule, comment);
        match frontend {
            Frontend::NodePort(number) => rule.with(IptablesMatch::DestinationPort(number)),
            Frontend::ClusterIp(at) | Frontend::ExternalIp(at) | Frontend::LoadBalancer(at) => {
                to_address(rule, at)
            }
        }
    }

    fn named(&self, rule: IptablesRule, comment: &str) -> IptablesRule {
        rule.protocol(self.port.protocol())
            .comment(format!("{}{comment}", self.port.key))
    }

    fn reject(&self) -> IptablesTarget {
        IptablesTarget::Reject(self.context.family)
    }

    fn add(&mut self, chain: PortalChain, rule: &IptablesRule) {
        self.rules.push((chain, rule.to_string()));
    }
}

fn to_address(rule: IptablesRule, at: SocketAddr) -> IptablesRule {
    rule.destination(at.ip())
        .with(IptablesMatch::DestinationPort(at.port()))
}

impl TrafficOrigin {
    /// The rule for these packets only.
    fn only(self, rule: IptablesRule) -> IptablesRule {
        match self {
            Self::Anyone => rule,
            Self::Net(net) => rule.source(net),
            Self::Interface(net, name) => {
                let rule = rule.input(false, &name);
                net.into_iter().fold(rule, IptablesRule::source)
            }
        }
    }
}
