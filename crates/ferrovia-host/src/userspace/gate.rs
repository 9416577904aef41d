//! Clients that are distinguished by their address where they call: who is turned away, and whom another service port carries.
//!
//! Asked for each connection that is accepted and each new flow of datagrams, so changes hold for these and no others.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use ipnet::IpNet;

use super::service::Service;
use super::shared::ServiceState;
use crate::locked;

/// What holds for the clients of one listener.
#[derive(Clone, Debug)]
pub struct Gate {
    allowed: Vec<Sources>,
    elsewhere: Option<(Sources, Arc<ServiceState>)>,
}

/// Clients, distinguished by their address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    /// The ranges they are in.
    pub nets: Arc<[IpNet]>,
    /// Whether those are among them who have the address that they call, which is this machine. For these, ranges do not count.
    pub itself: bool,
}

impl Gate {
    /// Lets those in whom each of `allowed` has, so everyone if there are none. Of those, the ones of `elsewhere` are carried by that service
    /// port, which must be of the same protocol.
    pub fn new(allowed: Vec<Sources>, elsewhere: Option<(Sources, &Service)>) -> Self {
        Self {
            allowed,
            elsewhere: elsewhere.map(|(sources, service)| (sources, service.state())),
        }
    }

    /// The service port that serves a client of this address: that of the listener, or another one; none if the client is not allowed.
    fn carrier<'a>(
        &'a self,
        client: IpAddr,
        called: IpAddr,
        own: &'a Arc<ServiceState>,
    ) -> Option<&'a Arc<ServiceState>> {
        let is_allowed = (self.allowed.iter()).all(|sources| sources.have(client, called));
        let carrier = match &self.elsewhere {
            Some((sources, other)) if sources.have(client, called) => other,
            _ => own,
        };
        is_allowed.then_some(carrier)
    }
}

impl Sources {
    fn have(&self, client: IpAddr, called: IpAddr) -> bool {
        if client == called {
            self.itself
        } else {
            self.nets.iter().any(|net| net.contains(&client))
        }
    }
}

/// A listener's gate, which all threads share and its owner changes.
#[derive(Debug)]
pub(super) struct Gateway {
    address: IpAddr,
    gate: Mutex<Option<Gate>>,
}

impl Gateway {
    pub(super) fn new(address: IpAddr, gate: Option<Gate>) -> Self {
        Self {
            address,
            gate: Mutex::new(gate),
        }
    }

    pub(super) fn set(&self, gate: Option<Gate>) {
        *locked(&self.gate) = gate;
    }

    /// The service port that serves a client; none if the client is not allowed.
    pub(super) fn admit(
        &self,
        client: IpAddr,
        own: &Arc<ServiceState>,
    ) -> Option<Arc<ServiceState>> {
        match &*locked(&self.gate) {
            None => Some(Arc::clone(own)),
            Some(gate) => gate.carrier(client, self.address, own).cloned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::userspace::Protocol;

    const CALLED: [u8; 4] = [203, 0, 113, 1];

    fn sources(nets: &[&str], itself: bool) -> Sources {
        let nets = nets.iter().map(|net| net.parse().unwrap()).collect();
        Sources { nets, itself }
    }

    fn state(name: &str) -> Arc<ServiceState> {
        let idle = Duration::from_secs(1);
        Arc::new(ServiceState::new(name.to_owned(), Protocol::Tcp, idle))
    }

    /// The names of those who carry some clients.
    fn carriers(gate: Option<Gate>, clients: &[[u8; 4]]) -> Vec<String> {
        let gateway = Gateway::new(CALLED.into(), gate);
        let own = state("own");
        let admitted = clients
            .iter()
            .map(|client| gateway.admit((*client).into(), &own));
        admitted
            .map(|carrier| carrier.map_or("none".to_owned(), |state| state.name.clone()))
            .collect()
    }

    #[test]
    fn gate_distinguishes_clients_by_address() {
        let clients = [[192, 0, 2, 7], [10, 244, 1, 5], [10, 9, 9, 9], CALLED];
        assert_eq!(carriers(None, &clients), ["own"; 4]);
        let gate = |allowed: &[Sources], elsewhere: Option<Sources>| {
            Some(Gate {
                allowed: allowed.to_vec(),
                elsewhere: elsewhere.map(|sources| (sources, state("other"))),
            })
        };
        let tens = || sources(&["10.0.0.0/8"], true);
        let pods = || sources(&["10.244.0.0/16"], true);
        assert_eq!(
            carriers(gate(&[tens()], None), &clients),
            ["none", "own", "own", "own"]
        );
        assert_eq!(
            carriers(gate(&[], Some(pods())), &clients),
            ["own", "other", "own", "other"]
        );
        assert_eq!(
            carriers(gate(&[tens(), pods()], None), &clients),
            ["none", "own", "none", "own"]
        );
        // That a range has the address that is called says nothing of this machine.
        let balancers = sources(&["203.0.113.0/24", "10.9.0.0/16"], false);
        assert_eq!(
            carriers(gate(&[balancers], Some(pods())), &clients),
            ["none", "none", "own", "none"]
        );
    }
}
