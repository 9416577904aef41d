//! Ports that cannot be opened: reported once, in the log and as an Event of the Service, until they are open.

use std::collections::BTreeSet;
use std::fmt;

use ferrovia_core::model::ServiceKey;
use ferrovia_host::portals::{Proxies, Trouble, TroubleReporter};

use crate::kube_event::{Notice, Noticeboard, Regarding, Severity};

/// What it means for clients that a port cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Consequence {
    /// The reason of the Event.
    pub(super) reason: &'static str,
    /// For the log.
    pub(super) sentence: &'static str,
}

/// Reports ports that cannot be opened.
pub(super) struct PortFailures {
    consequence: Consequence,
    notices: Noticeboard,
    /// The services whose failure has been reported and is not over.
    reported: BTreeSet<ServiceKey>,
}

impl PortFailures {
    pub(super) fn new(consequence: Consequence, notices: Noticeboard) -> Self {
        Self {
            consequence,
            notices,
            reported: BTreeSet::new(),
        }
    }

    fn publish(&self, service: ServiceKey, note: String) {
        tracing::warn!(%service, error = note, consequence = self.consequence.sentence, "Failed to open a port; retrying");
        (self.notices)(Notice {
            regarding: Regarding::Service(service),
            severity: Severity::Warning,
            reason: self.consequence.reason,
            action: "Listen",
            note,
        });
    }
}

impl TroubleReporter for PortFailures {
    fn report(&mut self, troubles: &[Trouble], proxies: &Proxies) {
        for Trouble { proxy, error } in troubles {
            let service = &proxy.key.service;
            if self.reported.insert(service.clone()) {
                self.publish(service.clone(), error.to_string());
            } else {
                tracing::debug!(%service, %error, consequence = self.consequence.sentence, "A port still cannot be opened");
            }
        }
        if !self.reported.is_empty() {
            let lacking = proxies.lacking().map(|proxy| &proxy.key.service);
            let lacking: BTreeSet<&ServiceKey> = lacking.collect();
            self.reported.retain(|service| lacking.contains(service));
        }
    }
}

impl fmt::Debug for PortFailures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("PortFailures");
        fields.field("consequence", &self.consequence);
        fields
            .field("reported", &self.reported)
            .finish_non_exhaustive()
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
    fn reports_each_service_once_until_its_port_is_open() {
        let posted: Arc<Mutex<Vec<Notice>>> = Arc::default();
        let board = posted.clone();
        let notices: Noticeboard = Arc::new(move |notice| board.lock().unwrap().push(notice));
        let mut failures = PortFailures::new(CONSEQUENCE, notices);
        let mut proxies = proxies();
        let ((first, at_first), (_second, at_second)) = (taken(), taken());
        let changes = [proxy("web", at_first), proxy("more", at_second)];
        let failed = proxies.change(&changes);
        failures.report(&failed, &proxies);
        let failed = proxies.retry();
        failures.report(&failed, &proxies);
        let notices = std::mem::take(&mut *posted.lock().unwrap());
        assert_eq!(notices.len(), 2, "{notices:?}");
        let web = Regarding::Service(ServiceKey::new("default", "web").unwrap());
        let of_web = notices
            .iter()
            .find(|notice| notice.regarding == web)
            .unwrap();
        assert_eq!(of_web.reason, "FailedToTest");
        assert!(of_web.note.contains(&at_first.to_string()), "{notices:?}");
        // One gets its port, the other does not. A new failure is reported again.
        drop(first);
        let failed = proxies.retry();
        failures.report(&failed, &proxies);
        let failed = proxies.change(&[proxy("web", at_second)]);
        failures.report(&failed, &proxies);
        let notices = std::mem::take(&mut *posted.lock().unwrap());
        assert_eq!(notices.len(), 1, "{notices:?}");
        assert_eq!(notices[0].regarding, web);
    }
}
