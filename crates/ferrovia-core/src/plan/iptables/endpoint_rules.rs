//! The choice of an endpoint, and an endpoint's own chain.

use std::net::SocketAddr;

use super::context::IptablesContext;
use super::names::{MARK_MASQ, endpoint_chain, endpoint_text};
use crate::desired::{Endpoint, ServicePort};
use crate::dialect::iptables::{IptablesMatch, IptablesRule, IptablesTarget, Probability};

/// The endpoints that traffic may reach under any policy, each once.
pub(super) fn reachable(port: &ServicePort) -> impl Iterator<Item = Endpoint> {
    let others = port
        .local
        .iter()
        .filter(|endpoint| port.cluster.binary_search(endpoint).is_err());
    port.cluster.iter().chain(others).copied()
}

/// How a service port's endpoints are chosen.
pub(super) struct EndpointRules<'a> {
    port: &'a ServicePort,
    context: &'a IptablesContext,
    /// The port's name, where there are few enough endpoints for comments.
    comment: Option<String>,
}

impl<'a> EndpointRules<'a> {
    pub(super) fn new(port: &'a ServicePort, context: &'a IptablesContext) -> Self {
        let comment = (!context.is_large).then(|| port.key.to_string());
        Self {
            port,
            context,
            comment,
        }
    }

    /// The rules that select an endpoint: by affinity, or at random in proportion to weights.
    pub(super) fn dispatch(&self, endpoints: &[Endpoint]) -> Vec<String> {
        let mut listed: Vec<(String, &Endpoint)> = endpoints
            .iter()
            .map(|endpoint| (endpoint_text(endpoint), endpoint))
            .collect();
        // kube-proxy's order is that of the text.
        listed.sort_unstable();
        let mut rules = Vec::new();
        if let Some(seconds) = self.port.affinity {
            rules.extend(listed.iter().map(|(at, _)| {
                let chain = endpoint_chain(&self.port.key, at);
                let seen = IptablesMatch::SeenRecently {
                    list: chain.as_str().into(),
                    seconds,
                    family: self.context.family,
                };
                self.to_endpoint(&chain, at, Some(seen))
            }));
        }
        let mut left: u64 = listed.iter().map(|(_, e)| u64::from(e.weight)).sum();
        for (n, (at, endpoint)) in listed.iter().enumerate() {
            let weight = u64::from(endpoint.weight);
            let is_last = n + 1 == listed.len();
            // Of what the rules before have left over; the last takes everything.
            let random = (!is_last).then(|| IptablesMatch::Random(Probability::new(weight, left)));
            left -= weight;
            let chain = endpoint_chain(&self.port.key, at);
            rules.push(self.to_endpoint(&chain, at, random));
        }
        rules
    }

    fn to_endpoint(&self, chain: &str, at: &str, condition: Option<IptablesMatch>) -> String {
        IptablesRule::jump(chain)
            .maybe(self.comment(|port| format!("{port} -> {at}")))
            .maybe(condition)
            .to_string()
    }

    fn comment(&self, text: impl FnOnce(&str) -> String) -> Option<IptablesMatch> {
        let port = self.comment.as_deref()?;
        Some(IptablesMatch::Comment(text(port).into()))
    }

    /// An endpoint's chain: masquerade what it sends to itself, remember the client, rewrite the destination.
    pub(super) fn chain(&self, endpoint: &Endpoint) -> (String, Vec<String>) {
        let at = endpoint_text(endpoint);
        let chain = endpoint_chain(&self.port.key, &at);
        let hairpin = IptablesRule::jump(MARK_MASQ)
            .source(endpoint.ip.into())
            .maybe(self.comment(str::to_owned));
        let remember = self.port.affinity.map(|_| IptablesMatch::Remember {
            list: chain.as_str().into(),
            family: self.context.family,
        });
        let rewrite = IptablesRule::to(IptablesTarget::Dnat(SocketAddr::new(
            endpoint.ip,
            endpoint.port,
        )))
        .protocol(self.port.protocol())
        .maybe(self.comment(str::to_owned))
        .maybe(remember)
        .with(IptablesMatch::ProtocolOnly);
        (chain, vec![hairpin.to_string(), rewrite.to_string()])
    }
}
