//! A service port as portals: the rules that lead its clients to its proxies.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use ipnet::IpNet;

use super::chains::Chain;
use super::context::Context;
use super::proxy::{Listen, Proxy, ProxyName, is_proxied};
use crate::desired::{Frontend, LocalDetector, NoEndpoints, Refusal, ServicePort};
use crate::dialect::iptables::{Match, PortName, Rule, Target};
use crate::model::TrafficPolicy;

/// Everything that is written and opened for one service port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Portal {
    /// Its proxies.
    pub(super) proxies: Vec<Proxy>,
    rules: Vec<(Chain, String)>,
}

impl Portal {
    /// The portal of a service port.
    pub(super) fn of(port: &ServicePort, context: &Context) -> Self {
        let mut made = Maker {
            port,
            context,
            used: BTreeSet::new(),
            rules: Vec::new(),
        };
        for frontend in &*port.frontends {
            made.frontend(*frontend);
        }
        made.guards();
        let listen = || Listen::Portal(context.listen());
        let used = made.used.iter();
        Self {
            proxies: used
                .filter_map(|policy| Proxy::of(port, *policy, listen()))
                .collect(),
            rules: made.rules,
        }
    }

    /// Its rules in one of the chains, in order.
    pub(super) fn rules(&self, chain: Chain) -> Vec<String> {
        let rules = self.rules.iter().filter(|(of, _)| *of == chain);
        rules.map(|(_, rule)| rule.clone()).collect()
    }
}

struct Maker<'a> {
    port: &'a ServicePort,
    context: &'a Context,
    /// The proxies that rules lead to.
    used: BTreeSet<TrafficPolicy>,
    rules: Vec<(Chain, String)>,
}

/// Packets that a rule is for.
#[derive(Clone, Debug)]
enum Source {
    Anyone,
    Net(IpNet),
    /// By interfaces of this name, and of a range only.
    Interface(Option<IpNet>, String),
}

impl Maker<'_> {
    fn frontend(&mut self, frontend: Frontend) {
        let ranges = self.ranges(frontend);
        for (chain, from, policy) in self.ways(frontend, &ranges) {
            if self.port.endpoints(policy).is_empty() {
                continue;
            }
            self.used.insert(policy);
            let target = self.context.target(self.proxy_port(policy));
            let rule = from.only(self.to(frontend, Rule::to(target), ""));
            self.add(chain, &rule);
        }
        if self.port.any_endpoints && is_proxied(self.port) && !ranges.is_empty() {
            let rule = self.to(frontend, Rule::to(Target::Drop), " is not for this source");
            self.add(Chain::Firewall, &rule);
        }
        self.refuse(frontend);
    }

    /// Which packets go by which chain to whose endpoints; of those of one chain the first that fits. Under policy Local, what comes from
    /// inside still goes to any endpoint: it would not have left the cluster at a load balancer that knows where endpoints are.
    fn ways(&self, frontend: Frontend, ranges: &[IpNet]) -> Vec<(Chain, Source, TrafficPolicy)> {
        if !is_proxied(self.port) {
            return Vec::new();
        }
        let (container, host) = match frontend {
            Frontend::NodePort(_) => (Chain::NodePortContainer, Chain::NodePortHost),
            _ => (Chain::PortalsContainer, Chain::PortalsHost),
        };
        let policy = self.port.policy(frontend);
        let splits = !frontend.is_internal() && policy == TrafficPolicy::Local;
        let sources: Vec<Option<IpNet>> = match ranges {
            [] => vec![None],
            some => some.iter().copied().map(Some).collect(),
        };
        let mut ways = Vec::new();
        for source in sources {
            let all = source.map_or(Source::Anyone, Source::Net);
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

    /// This node's pods, as far as they are in a range; none if they cannot be told.
    fn pods_among(&self, range: Option<IpNet>) -> Option<Source> {
        match &self.context.node.local {
            LocalDetector::Off => None,
            LocalDetector::Source(pods) => match range {
                None => Some(Source::Net(*pods)),
                Some(range) if range.contains(pods) => Some(Source::Net(*pods)),
                Some(range) => pods.contains(&range).then_some(Source::Net(range)),
            },
            LocalDetector::Interface(name) => Some(Source::Interface(range, name.clone())),
            LocalDetector::InterfacePrefix(prefix) => {
                Some(Source::Interface(range, format!("{prefix}+")))
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
            Some(Refusal::Reject) if self.context.node.no_endpoints == NoEndpoints::Drop => {
                (Target::Drop, " has no endpoints")
            }
            Some(Refusal::Reject) => (self.reject(), " has no endpoints"),
            // Those inside could use endpoints elsewhere, if only the protocol were another.
            Some(Refusal::Drop) | None if !is_proxied(self.port) => {
                (self.reject(), " cannot be proxied")
            }
            Some(Refusal::Drop) => (Target::Drop, " has no local endpoints"),
            None => return,
        };
        let rule = match frontend {
            Frontend::NodePort(number) => self
                .named(Rule::to(target), reason)
                .with(Match::DestinationIsLocal)
                .with(Match::DestinationPort(number)),
            _ => self.to(frontend, Rule::to(target), reason),
        };
        self.add(Chain::Firewall, &rule);
    }

    /// What guards the proxies' own ports: nobody gets there but by a portal, which may be closed to some. What came by a node port is let in.
    fn guards(&mut self) {
        let has_node_port =
            (self.port.frontends.iter()).any(|frontend| matches!(frontend, Frontend::NodePort(_)));
        for policy in self.used.clone() {
            let own_port = Match::DestinationPortOf(self.proxy_port(policy));
            let rule = self.named(Rule::to(Target::Drop), " is reached by its addresses only");
            let rule = match self.context.fixed_listen() {
                Some(ip) => rule.destination(ip),
                None => rule.with(Match::DestinationIsLocal),
            };
            let rule = rule.with(own_port.clone()).with(Match::NotState("DNAT"));
            self.add(Chain::Firewall, &rule);
            if has_node_port {
                let rule = self.named(Rule::to(Target::Accept), "").with(own_port);
                self.add(Chain::NonLocal, &rule.with(Match::OldState("NEW")));
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
    fn to(&self, frontend: Frontend, rule: Rule, comment: &str) -> Rule {
        let rule = self.named(rule, comment);
        match frontend {
            Frontend::NodePort(number) => rule.with(Match::DestinationPort(number)),
            Frontend::ClusterIp(at) | Frontend::ExternalIp(at) | Frontend::LoadBalancer(at) => {
                to_address(rule, at)
            }
        }
    }

    fn named(&self, rule: Rule, comment: &str) -> Rule {
        rule.protocol(self.port.protocol())
            .comment(format!("{}{comment}", self.port.key))
    }

    fn reject(&self) -> Target {
        Target::Reject(self.context.family)
    }

    fn add(&mut self, chain: Chain, rule: &Rule) {
        self.rules.push((chain, rule.to_string()));
    }
}

fn to_address(rule: Rule, at: SocketAddr) -> Rule {
    rule.destination(at.ip())
        .with(Match::DestinationPort(at.port()))
}

impl Source {
    /// The rule for these packets only.
    fn only(self, rule: Rule) -> Rule {
        match self {
            Self::Anyone => rule,
            Self::Net(net) => rule.source(net),
            Self::Interface(net, name) => {
                let rule = rule.input(false, &name);
                net.into_iter().fold(rule, Rule::source)
            }
        }
    }
}
