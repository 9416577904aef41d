//! Who gets which endpoint.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ferrovia_host::userspace::{Endpoint, Protocol};

use crate::support::{ANYWHERE, ask, engine, in_namespace, named_server, service, set_endpoints};

#[test]
fn weights_hold_over_all_threads() {
    in_namespace(|| {
        let engine = engine();
        let (light, heavy) = (named_server(), named_server());
        let (service, address) = service(&engine, Protocol::Tcp, &[]);
        let endpoint = |address: SocketAddr, weight| Endpoint {
            weight,
            ..address.into()
        };
        service.set_endpoints(&[endpoint(light, 1), endpoint(heavy, 3)], None);
        let mut counts = HashMap::new();
        for _ in 0..40 {
            *counts.entry(ask(address).unwrap()).or_insert(0) += 1;
        }
        assert_eq!((counts[&light.port()], counts[&heavy.port()]), (10, 30));
    });
}

#[test]
fn a_client_keeps_its_endpoint_by_whichever_listener_until_its_time_is_over() {
    in_namespace(|| {
        let engine = engine();
        let servers = [named_server(), named_server(), named_server()];
        let (service, address) = service(&engine, Protocol::Tcp, &servers);
        let other = service.listen(ANYWHERE.into()).unwrap();
        service.set_affinity(Some(Duration::from_secs(3600)));
        let first = ask(address).unwrap();
        for _ in 0..5 {
            assert_eq!(ask(address).unwrap(), first);
            assert_eq!(ask(other).unwrap(), first);
        }
        // The time that holds is the one that was set last.
        let limit = Duration::from_millis(200);
        service.set_affinity(Some(limit));
        let away = Instant::now();
        while away.elapsed() <= limit {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_ne!(
            ask(address).unwrap(),
            first,
            "its time was over, and the turn had moved on"
        );
    });
}

#[test]
fn an_endpoint_that_goes_frees_its_clients() {
    in_namespace(|| {
        let engine = engine();
        let servers = [named_server(), named_server()];
        let (service, address) = service(&engine, Protocol::Tcp, &servers);
        service.set_affinity(Some(Duration::from_secs(3600)));
        let first = ask(address).unwrap();
        let other = servers.iter().find(|it| it.port() != first).unwrap();
        set_endpoints(&service, &[*other]);
        assert_eq!(ask(address).unwrap(), other.port());
        set_endpoints(&service, &servers);
        assert_eq!(ask(address).unwrap(), other.port(), "it has a new one now");
    });
}
