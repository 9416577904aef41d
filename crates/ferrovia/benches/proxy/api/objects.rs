//! A cluster as the API server has it: objects as large as real ones, managed fields and all, with one port each.
//!
//! All endpoints are made up but the one of the last service and of those that are added, which is a pod that answers.

use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

use ferrovia_lab::Pod;
use ferrovia_lab::apiserver::sample;
use ferrovia_lab::layout::NODE_ADDRESSES;
use serde_json::{Value, json};

use crate::cluster::{NODE, PORT, Size};

/// The pod that is behind services that answer, in the beginning.
pub(crate) const FIRST_POD: Pod = Pod::B;

/// The Node that all is seen from.
pub(crate) const NODE_NAME: &str = NODE;

/// The addresses of this node that its Node tells, one of each family.
const ADDRESSES: [IpAddr; 2] = [NODE_ADDRESSES[0], NODE_ADDRESSES[2]];

/// All objects of a cluster.
pub(crate) fn all(size: Size) -> impl Iterator<Item = Value> {
    let services = (0..size.services).map(service);
    let slices = (0..size.services).map(move |number| {
        if number == size.last() {
            slice_at_pod(number, FIRST_POD)
        } else {
            slice(size, number, 0)
        }
    });
    let cidr = sample::service_cidr("kubernetes", &["10.96.0.0/12"]);
    [sample::node(NODE, &ADDRESSES), cidr]
        .into_iter()
        .chain(services)
        .chain(slices)
}

/// A service.
pub(crate) fn service(number: usize) -> Value {
    let mut service = sample::service(number as u32);
    keep_first(&mut service["spec"]["ports"]);
    service
}

/// A service's made-up endpoints. The first of them is another one in every second round.
pub(crate) fn slice(size: Size, number: usize, round: usize) -> Value {
    let (service, endpoints) = (number as u32, size.endpoints as u32);
    let mut slice = sample::slice(service, endpoints);
    keep_first(&mut slice["ports"]);
    if round % 2 == 1 {
        let other = sample::endpoint_ip(service, endpoints);
        slice["endpoints"][0]["addresses"] = json!([other]);
    }
    slice
}

/// A service whose only endpoint is a pod of this node.
pub(crate) fn slice_at_pod(number: usize, pod: Pod) -> Value {
    let mut slice = slice(Size::new(0, 1), number, 0);
    let endpoint = &mut slice["endpoints"][0];
    endpoint["addresses"] = json!([pod.v4()]);
    endpoint["nodeName"] = json!(NODE);
    slice
}

/// Where a service is reached.
pub(crate) fn address(number: usize) -> SocketAddrV4 {
    let address: Ipv4Addr = sample::cluster_ip(number as u32);
    SocketAddrV4::new(address, PORT)
}

fn keep_first(list: &mut Value) {
    if let Some(list) = list.as_array_mut() {
        list.truncate(1);
    }
}
