//! Ports that cannot be opened: told once, in the log and as an event of the Service, until they are open.

use std::collections::BTreeSet;
use std::fmt;

use ferrovia_core::model::ServiceKey;
use ferrovia_host::portals::{Proxies, Trouble, TroubleReporter};

use crate::kube_event::{Notice, Noticeboard, Regarding, Severity};

/// What a port that cannot be opened means to those who want to use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Consequence {
    /// In one word, as tools look for it.
    pub(super) reason: &'static str,
    /// In a sentence.
    pub(super) sentence: &'static str,
}

/// Tells of ports that cannot be opened.
pub(super) struct Troubles {
    consequence: Consequence,
    notices: Noticeboard,
    /// The services whose trouble has been told and is not over.
    told: BTreeSet<ServiceKey>,
}

impl Troubles {
    /// Nothing has been told yet.
    pub(super) fn new(consequence: Consequence, notices: Noticeboard) -> Self {
        Self {
            consequence,
            notices,
            told: BTreeSet::new(),
        }
    }

    fn tell(&self, service: ServiceKey, note: String) {
        tracing::warn!(%service, error = note, "{}; trying again", self.consequence.sentence);
        (self.notices)(Notice {
            regarding: Regarding::Service(service),
            severity: Severity::Warning,
            reason: self.consequence.reason,
            action: "Listen",
            note,
        });
    }
}

impl TroubleReporter for Troubles {
    fn report(&mut self, troubles: &[Trouble], proxies: &Proxies) {
        for Trouble { proxy, error } in troubles {
            let service = &proxy.key.service;
            if self.told.insert(service.clone()) {
                self.tell(service.clone(), error.to_string());
            } else {
                tracing::debug!(%service, %error, "still: {}", self.consequence.sentence);
            }
        }
        if !self.told.is_empty() {
            let lacking = proxies.lacking().map(|proxy| &proxy.key.service);
            let lacking: BTreeSet<&ServiceKey> = lacking.collect();
            self.told.retain(|service| lacking.contains(service));
        }
    }
}

impl fmt::Debug for Troubles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Troubles");
        fields.field("consequence", &self.consequence);
        fields.field("told", &self.told).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::{Ipv4Addr, SocketAddr, TcpListener};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use ferrovia_core::desired::Endpoint;
    use ferrovia_core::family::Family;
    use ferrovia_core::model::{PortKey, Protocol, TrafficPolicy};
    use ferrovia_core::plan::userspace::{ProxyChange, ProxyListen, ProxyName, ProxySpec};
    use ferrovia_host::portals::{Directory, LazyEngine, ProxySettings};

    use super::*;

    const CONSEQUENCE: Consequence = Consequence {
        reason: "FailedToTest",
        sentence: "it is not tested",
    };

    fn proxies() -> Proxies {
        let settings = ProxySettings {
            ports: None,
            udp_idle: Duration::from_secs(1),
        };
        let (engine, directory) = (LazyEngine::default(), Directory::default());
        Proxies::new(Family::V4, settings, engine, directory)
    }

    fn proxy(name: &str, at: SocketAddr) -> ProxyChange {
        ProxyChange::Set(ProxySpec {
            name: ProxyName {
                key: PortKey {
                    service: ServiceKey::new("default", name).unwrap(),
                    name: "".into(),
                    protocol: Protocol::Tcp,
                },
                policy: TrafficPolicy::Cluster,
            },
            listen: ProxyListen::At(vec![at]),
            client_filters: BTreeMap::new(),
            endpoints: Arc::from(Vec::<Endpoint>::new()),
            affinity: None,
        })
    }

    fn taken() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    #[test]
    fn each_service_is_told_of_once_until_its_trouble_is_over() {
        let heard: Arc<Mutex<Vec<Notice>>> = Arc::default();
        let board = heard.clone();
        let notices: Noticeboard = Arc::new(move |notice| board.lock().unwrap().push(notice));
        let mut troubles = Troubles::new(CONSEQUENCE, notices);
        let mut proxies = proxies();
        let ((first, at_first), (_second, at_second)) = (taken(), taken());
        let changes = [proxy("web", at_first), proxy("more", at_second)];
        let failed = proxies.change(&changes);
        troubles.report(&failed, &proxies);
        let failed = proxies.retry();
        troubles.report(&failed, &proxies);
        let told = std::mem::take(&mut *heard.lock().unwrap());
        assert_eq!(told.len(), 2, "{told:?}");
        let web = Regarding::Service(ServiceKey::new("default", "web").unwrap());
        let of_web = told.iter().find(|notice| notice.regarding == web).unwrap();
        assert_eq!(of_web.reason, "FailedToTest");
        assert!(of_web.note.contains(&at_first.to_string()), "{told:?}");
        // One gets its port; another service has none still. Trouble that comes anew is told anew.
        drop(first);
        let failed = proxies.retry();
        troubles.report(&failed, &proxies);
        let failed = proxies.change(&[proxy("web", at_second)]);
        troubles.report(&failed, &proxies);
        let told = std::mem::take(&mut *heard.lock().unwrap());
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0].regarding, web);
    }
}
