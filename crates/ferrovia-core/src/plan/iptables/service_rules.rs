//! A service port as rules: its own chains, and what it adds to the chains all services share.

use std::net::SocketAddr;

use ipnet::IpNet;

use super::base_chains::LOCALHOST_COUNTER;
use super::context::IptablesContext;
use super::endpoint_rules::{self, EndpointRules};
use super::names::{MARK_DROP, MARK_MASQ, PortNames};
use super::shared_chains::SharedChain;
use crate::desired::{Frontend, RefusalAction, ServicePort};
use crate::dialect::iptables::{IptablesMatch, IptablesRule, IptablesTarget};
use crate::model::TrafficPolicy;

/// Everything that is written for one service port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PortRules {
    /// Its own chains, all of them in nat, with their rules.
    pub(super) chains: Vec<(String, Vec<String>)>,
    /// Its rules in the chains it shares with others.
    pub(super) shared: Vec<(SharedChain, String)>,
}

impl PortRules {
    /// Its rules in one of the shared chains.
    pub(super) fn of(&self, chain: SharedChain) -> Vec<&str> {
        let rules = self.shared.iter().filter(|(of, _)| *of == chain);
        rules.map(|(_, rule)| rule.as_str()).collect()
    }

    /// How many rules its own chains hold.
    pub(super) fn own_rules(&self) -> usize {
        self.chains.iter().map(|(_, rules)| rules.len()).sum()
    }
}

/// All rules of a service port. Their order within a chain is kube-proxy's.
pub(super) fn port_rules(port: &ServicePort, context: &IptablesContext) -> PortRules {
    let mut made = ServiceRuleBuilder {
        port,
        context,
        names: PortNames::new(&port.key),
        rules: PortRules::default(),
    };
    for frontend in &*port.frontends {
        match frontend {
            Frontend::ClusterIp(at) => made.cluster_ip(*frontend, *at),
            Frontend::ExternalIp(at) => made.external_ip(*frontend, *at),
            Frontend::LoadBalancer(at) => made.load_balancer(*frontend, *at),
            Frontend::NodePort(number) => made.node_port(*frontend, *number),
        }
    }
    made.own_chains();
    made.rules
}

struct ServiceRuleBuilder<'a> {
    port: &'a ServicePort,
    context: &'a IptablesContext,
    names: PortNames,
    rules: PortRules,
}

impl ServiceRuleBuilder<'_> {
    fn share(&mut self, chain: SharedChain, rule: &IptablesRule) {
        self.rules.shared.push((chain, rule.to_string()));
    }

    /// The rule for packets to an address and port, with a comment that begins with the port's name.
    fn to(&self, rule: IptablesRule, at: SocketAddr, comment: &str) -> IptablesRule {
        rule.destination(at.ip())
            .protocol(self.port.protocol())
            .comment(format!("{} {comment}", self.names.port))
            .with(IptablesMatch::DestinationPort(at.port()))
    }

    fn cluster_ip(&mut self, frontend: Frontend, at: SocketAddr) {
        match self.port.refusal(frontend) {
            None => {
                let rule = self.to(IptablesRule::jump(&self.internal()), at, "cluster IP");
                self.share(SharedChain::NatServices, &rule);
            }
            Some(refusal) => self.refuse(SharedChain::FilterServices, refusal, at),
        }
    }

    fn external_ip(&mut self, frontend: Frontend, at: SocketAddr) {
        if self.port.any_endpoints {
            let rule = self.to(
                IptablesRule::jump(&self.names.external()),
                at,
                "external IP",
            );
            self.share(SharedChain::NatServices, &rule);
        }
        if let Some(refusal) = self.port.refusal(frontend) {
            self.refuse(SharedChain::FilterExternal, refusal, at);
        }
    }

    fn load_balancer(&mut self, frontend: Frontend, at: SocketAddr) {
        if self.port.any_endpoints {
            let entry = if self.is_restricted() {
                self.names.firewall()
            } else {
                self.names.external()
            };
            let rule = self.to(IptablesRule::jump(&entry), at, "loadbalancer IP");
            self.share(SharedChain::NatServices, &rule);
            if self.is_restricted() {
                let comment = format!("traffic not accepted by {}", self.names.firewall());
                let rule = self.to(IptablesRule::to(IptablesTarget::Drop), at, &comment);
                self.share(SharedChain::FilterFirewall, &rule);
            }
        }
        if let Some(refusal) = self.port.refusal(frontend) {
            self.refuse(SharedChain::FilterExternal, refusal, at);
        }
    }

    fn node_port(&mut self, frontend: Frontend, number: u16) {
        if self.port.any_endpoints {
            let jump = || {
                IptablesRule::jump(&self.names.external())
                    .protocol(self.port.protocol())
                    .comment(self.names.port.as_str())
                    .with(IptablesMatch::DestinationPort(number))
            };
            let on_loopback = jump()
                .destination(self.context.family.loopback())
                .with(IptablesMatch::Account(LOCALHOST_COUNTER));
            let anywhere = jump();
            if self.context.localhost() && self.context.options.count_localhost {
                self.share(SharedChain::NatNodePorts, &on_loopback);
            }
            self.share(SharedChain::NatNodePorts, &anywhere);
        }
        let Some(refusal) = self.port.refusal(frontend) else {
            return;
        };
        let refused = |target: IptablesTarget| {
            IptablesRule::to(target)
                .protocol(self.port.protocol())
                .comment(format!("{} {}", self.names.port, reason(refusal)))
        };
        if self.drops_by_mark(refusal) {
            let rule = refused(IptablesTarget::Jump(MARK_DROP.into()))
                .with(IptablesMatch::DestinationPort(number));
            self.share(SharedChain::NatNodePorts, &rule);
        } else {
            let rule = refused(self.verdict(refusal))
                .with(IptablesMatch::DestinationIsLocal)
                .with(IptablesMatch::DestinationPort(number));
            self.share(SharedChain::FilterExternal, &rule);
        }
    }

    /// Refuses packets to an address that no endpoint can take.
    fn refuse(&mut self, chain: SharedChain, refusal: RefusalAction, at: SocketAddr) {
        if self.drops_by_mark(refusal) {
            let rule = self.to(IptablesRule::jump(MARK_DROP), at, reason(refusal));
            self.share(SharedChain::NatServices, &rule);
        } else {
            let rule = self.to(IptablesRule::to(self.verdict(refusal)), at, reason(refusal));
            self.share(chain, &rule);
        }
    }

    fn drops_by_mark(&self, refusal: RefusalAction) -> bool {
        refusal == RefusalAction::Reject && self.context.drops_by_mark()
    }

    fn verdict(&self, refusal: RefusalAction) -> IptablesTarget {
        match refusal {
            RefusalAction::Reject => self.context.reject(),
            RefusalAction::Drop => IptablesTarget::Drop,
        }
    }

    /// There are addresses of a load balancer, and not everyone may use them.
    fn is_restricted(&self) -> bool {
        self.port.any_endpoints
            && !self.port.source_ranges.is_empty()
            && self.load_balancers().next().is_some()
    }

    fn load_balancers(&self) -> impl Iterator<Item = SocketAddr> {
        self.port.frontends.iter().filter_map(|frontend| {
            matches!(frontend, Frontend::LoadBalancer(_))
                .then(|| frontend.address())
                .flatten()
        })
    }

    /// The chain that traffic under a policy ends in.
    fn picker(&self, policy: TrafficPolicy) -> String {
        match policy {
            TrafficPolicy::Cluster => self.names.cluster(),
            TrafficPolicy::Local => self.names.local(),
        }
    }

    fn internal(&self) -> String {
        self.picker(self.port.internal_policy)
    }

    fn own_chains(&mut self) {
        if self.port.any_endpoints && self.is_accessible() {
            let chain = (self.names.external(), self.external_chain());
            self.rules.chains.push(chain);
        }
        if self.is_restricted() {
            let chain = (self.names.firewall(), self.firewall_chain());
            self.rules.chains.push(chain);
        }
        let chosen = EndpointRules::new(self.port, self.context);
        for policy in [TrafficPolicy::Cluster, TrafficPolicy::Local] {
            let endpoints = self.port.endpoints(policy);
            if endpoints.is_empty() {
                continue;
            }
            let mut rules: Vec<String> = self.masquerade(policy).collect();
            rules.extend(chosen.dispatch(endpoints));
            self.rules.chains.push((self.picker(policy), rules));
        }
        let endpoints = endpoint_rules::reachable(self.port);
        self.rules
            .chains
            .extend(endpoints.map(|endpoint| chosen.chain(&endpoint)));
    }

    /// There are frontends besides the cluster IP.
    fn is_accessible(&self) -> bool {
        self.port.frontends.iter().any(|f| !f.is_internal())
    }

    /// Traffic to the cluster IP that does not come from a pod needs the node's address as source to find its way back.
    fn masquerade(&self, policy: TrafficPolicy) -> impl Iterator<Item = String> {
        let cluster_ip = self.port.frontends.iter().find(|f| f.is_internal());
        let at = cluster_ip
            .and_then(|f| f.address())
            .filter(|_| policy == self.port.internal_policy);
        let rule = at.and_then(|at| {
            let rule = self.to(IptablesRule::jump(MARK_MASQ), at, "cluster IP");
            if self.context.node.masquerade_all {
                Some(rule)
            } else {
                self.context.only_others(rule)
            }
        });
        rule.map(|rule| rule.to_string()).into_iter()
    }

    /// Where external traffic goes: masqueraded to any endpoint, or as it is to an endpoint here. Under policy Local, what comes from inside
    /// still goes to any endpoint: it would not have left the cluster at a load balancer that knows where endpoints are.
    fn external_chain(&self) -> Vec<String> {
        let port = &self.names.port;
        let policy = self.port.external_policy;
        let cluster = || IptablesRule::jump(&self.names.cluster());
        let mut rules = Vec::new();
        match policy {
            TrafficPolicy::Cluster => rules.push(IptablesRule::jump(MARK_MASQ).comment(format!(
                "masquerade traffic for {port} external destinations"
            ))),
            TrafficPolicy::Local => {
                let pods =
                    cluster().comment(format!("pod traffic for {port} external destinations"));
                rules.extend(self.context.only_pods(pods));
                rules.push(
                    IptablesRule::jump(MARK_MASQ)
                        .comment(format!(
                            "masquerade LOCAL traffic for {port} external destinations"
                        ))
                        .with(IptablesMatch::SourceIsLocal),
                );
                rules.push(
                    cluster()
                        .comment(format!(
                            "route LOCAL traffic for {port} external destinations"
                        ))
                        .with(IptablesMatch::SourceIsLocal),
                );
            }
        }
        if !self.port.endpoints(policy).is_empty() {
            rules.push(IptablesRule::jump(&self.picker(policy)));
        }
        rules.iter().map(IptablesRule::to_string).collect()
    }

    /// The ranges that may use the load balancer's addresses. What falls through is dropped in the filter table: nat must not drop.
    fn firewall_chain(&self) -> Vec<String> {
        let port = &self.names.port;
        let own: Vec<IpNet> = self.load_balancers().map(|at| at.ip().into()).collect();
        // The load balancer's own addresses, which stand for the node, come last.
        let (last, first): (Vec<IpNet>, Vec<IpNet>) =
            (self.port.source_ranges.iter()).partition(|net| own.contains(net));
        let allowed = first.into_iter().chain(last).map(|net| {
            IptablesRule::jump(&self.names.external())
                .source(net)
                .comment(format!("{port} loadbalancer IP"))
        });
        let end = IptablesRule::default().comment(format!(
            "other traffic to {port} will be dropped by KUBE-PROXY-FIREWALL"
        ));
        allowed.chain([end]).map(|rule| rule.to_string()).collect()
    }
}

fn reason(refusal: RefusalAction) -> &'static str {
    match refusal {
        RefusalAction::Reject => "has no endpoints",
        RefusalAction::Drop => "has no local endpoints",
    }
}
