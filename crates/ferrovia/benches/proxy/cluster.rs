//! A cluster of some size, as the objects a source would hand over.
//!
//! Objects are made when asked for and not kept, so the measured process never holds more input than the one it is taking in.
//!
//! Nearly all services have made-up endpoints on other nodes. The first, the last and some in between ([`Size::watched`]) have one
//! endpoint, a pod of the lab: connections through the former are timed, the latter are moved from pod to pod.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

use ferrovia_core::store::Event;
use ferrovia_core::wire::{
    Endpoint, EndpointConditions, EndpointPort, EndpointSlice, Kind, Metadata, Node, NodeAddress,
    NodeStatus, Object, Service, ServiceCidr, ServiceCidrSpec, ServicePort, ServiceSpec,
};
use ferrovia_lab::Pod;
use serde::{Deserialize, Serialize};

/// The port of every service.
pub(crate) const PORT: u16 = 80;
/// The port on which every endpoint listens; the lab's pods do.
pub(crate) const TARGET_PORT: u16 = 8080;
/// The port behind the first and the last service, on which nobody of the lab listens: connections to it are timed.
pub(crate) const TIMED_PORT: u16 = 8081;
/// The node under test.
pub(crate) const NODE: &str = "node-1";
/// The pod that is behind the watched services in the beginning.
pub(crate) const FIRST_POD: Pod = Pod::B;
/// How many services in between are watched.
pub(crate) const WATCHED: usize = 100;

/// Where cluster IPs come from.
const SERVICE_CIDR: &str = "10.96.0.0/12";
const FIRST_CLUSTER_IP: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
/// The first made-up endpoint. The lab's pods are far behind the last one.
const FIRST_ENDPOINT: Ipv4Addr = Ipv4Addr::new(10, 128, 0, 1);
/// Contains all pods, made up or not.
pub(crate) const CLUSTER_CIDR: &str = "10.128.0.0/9";
/// What made-up endpoints are spread over.
const OTHER_NODES: usize = 100;
const NAMESPACES: usize = 50;

/// How large a cluster is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Size {
    /// The number of services.
    pub(crate) services: usize,
    /// Endpoints of each that is not watched.
    pub(crate) endpoints: usize,
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (thousands, rest) = (self.services / 1000, self.services % 1000);
        match thousands {
            0 => write!(f, "{rest} × {}", self.endpoints),
            _ => write!(f, "{thousands},{rest:03} × {}", self.endpoints),
        }
    }
}

impl Size {
    pub(crate) const fn new(services: usize, endpoints: usize) -> Self {
        Self {
            services,
            endpoints,
        }
    }

    /// The last service.
    pub(crate) fn last(self) -> usize {
        self.services - 1
    }

    /// The services in between that are watched, far apart.
    pub(crate) fn watched(self) -> impl Iterator<Item = usize> {
        (0..WATCHED).map(move |n| 1 + n * self.stride())
    }

    /// As many that are not watched.
    pub(crate) fn unwatched(self) -> impl Iterator<Item = usize> {
        self.watched().map(|service| service + 1)
    }

    fn stride(self) -> usize {
        (self.services - 2) / WATCHED
    }

    fn is_watched(self, service: usize) -> bool {
        let before = service - 1;
        before.is_multiple_of(self.stride()) && before / self.stride() < WATCHED
    }

    /// All objects in the order of a first list, and the word that they are all.
    pub(crate) fn events(self) -> impl Iterator<Item = Event> {
        let services = (0..self.services).map(service);
        let slices = (0..self.services).map(move |number| self.slice(number));
        [node(), service_cidr()]
            .into_iter()
            .chain(services)
            .chain(slices)
            .map(applied)
            .chain(Kind::ALL.map(Event::Listed))
    }

    fn slice(self, service: usize) -> Object {
        let pod = || vec![endpoint(FIRST_POD.v4(), NODE.into())];
        if service == 0 || service == self.last() {
            slice(service, TIMED_PORT, pod())
        } else if self.is_watched(service) {
            slice(service, TARGET_PORT, pod())
        } else {
            self.made_up_slice(service, self.endpoints)
        }
    }

    /// A service's slice with so many made-up endpoints.
    pub(crate) fn made_up_slice(self, service: usize, endpoints: usize) -> Object {
        // One number more than there are endpoints, for the one that comes and goes.
        let first = service * (self.endpoints + 1);
        let made_up = (first..first + endpoints).map(|number| {
            endpoint(
                nth(FIRST_ENDPOINT, number),
                format!("node-{}", 2 + number % OTHER_NODES),
            )
        });
        slice(service, TARGET_PORT, made_up.collect())
    }
}

/// The event that an object appeared or changed.
pub(crate) fn applied(object: Object) -> Event {
    Event::Applied(Box::new(object))
}

/// The event that an object went.
pub(crate) fn deleted(object: &Object) -> Event {
    let metadata = object.metadata();
    Event::Deleted {
        kind: object.kind(),
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone(),
    }
}

/// The cluster IP of a service.
pub(crate) fn cluster_ip(service: usize) -> Ipv4Addr {
    nth(FIRST_CLUSTER_IP, service)
}

/// A service with one port.
pub(crate) fn service(number: usize) -> Object {
    let address = cluster_ip(number).to_string();
    Object::Service(Service {
        metadata: metadata(number, name(number)),
        spec: ServiceSpec {
            kind: "ClusterIP".into(),
            cluster_ip: address.clone(),
            cluster_ips: vec![address],
            ip_families: vec!["IPv4".into()],
            ports: vec![ServicePort {
                name: "http".into(),
                protocol: "TCP".into(),
                port: PORT.into(),
                node_port: 0,
            }],
            ..ServiceSpec::default()
        },
        ..Service::default()
    })
}

/// The slice of a watched service.
pub(crate) fn slice_at(service: usize, pod: Ipv4Addr) -> Object {
    slice(service, TARGET_PORT, vec![endpoint(pod, NODE.into())])
}

/// `namespace/name` of a service.
pub(crate) fn full_name(service: usize) -> String {
    format!("{}/{}", namespace(service), name(service))
}

/// The address of a service's n-th made-up endpoint.
pub(crate) fn made_up_endpoint(size: Size, service: usize, n: usize) -> Ipv4Addr {
    nth(FIRST_ENDPOINT, service * (size.endpoints + 1) + n)
}

fn slice(service: usize, port: u16, endpoints: Vec<Endpoint>) -> Object {
    let mut metadata = metadata(service, format!("{}-x7k2p", name(service)));
    metadata.labels = BTreeMap::from([("kubernetes.io/service-name".into(), name(service))]);
    Object::EndpointSlice(EndpointSlice {
        metadata,
        address_type: "IPv4".into(),
        endpoints,
        ports: vec![EndpointPort {
            name: Some("http".into()),
            protocol: "TCP".into(),
            port: Some(port.into()),
        }],
    })
}

fn endpoint(address: Ipv4Addr, node: String) -> Endpoint {
    Endpoint {
        addresses: vec![address.to_string()],
        conditions: EndpointConditions {
            ready: Some(true),
            serving: Some(true),
            terminating: Some(false),
        },
        node_name: Some(node),
        zone: Some("zone-a".into()),
        ..Endpoint::default()
    }
}

fn node() -> Object {
    let address = |address: &str| NodeAddress {
        kind: "InternalIP".into(),
        address: address.into(),
    };
    Object::Node(Node {
        metadata: Metadata {
            name: NODE.into(),
            ..Metadata::default()
        },
        status: NodeStatus {
            addresses: vec![address("198.51.100.10"), address("2001:db8:51::10")],
        },
        ..Node::default()
    })
}

fn service_cidr() -> Object {
    Object::ServiceCidr(ServiceCidr {
        metadata: Metadata {
            name: "kubernetes".into(),
            ..Metadata::default()
        },
        spec: ServiceCidrSpec {
            cidrs: vec![SERVICE_CIDR.into()],
        },
    })
}

fn metadata(service: usize, name: String) -> Metadata {
    Metadata {
        name,
        namespace: namespace(service),
        creation_timestamp: Some("2026-01-31T12:00:00Z".into()),
        ..Metadata::default()
    }
}

fn name(service: usize) -> String {
    format!("service-{service:05}")
}

fn namespace(service: usize) -> String {
    format!("team-{:02}", service % NAMESPACES)
}

fn nth(first: Ipv4Addr, n: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(first.to_bits() + n as u32)
}
