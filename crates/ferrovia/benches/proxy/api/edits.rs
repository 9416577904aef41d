//! One edit after the other through the API server, each timed until a client sees its effect.

use std::time::Instant;

use ferrovia_lab::Pod;

use super::daemon::Node;
use super::objects;
use crate::cluster::Size;
use crate::connect::{CLIENT, is_answered, who_answers};
use crate::figures::Samples;

/// Moves the last service between two pods; the clock runs from the moment the server is given the slice.
pub(crate) fn changes(node: &Node, size: Size, times: usize) -> anyhow::Result<Samples> {
    let _inside = node.world.enter(CLIENT)?;
    let service = size.last();
    let mut samples = Samples::default();
    let pods = [Pod::C, objects::FIRST_POD].into_iter().cycle();
    for pod in pods.take(times) {
        let begin = Instant::now();
        node.server.apply(objects::slice_at_pod(service, pod))?;
        samples.add(node.until(begin, || {
            Ok(who_answers(objects::address(service))? == pod.name())
        })?);
    }
    Ok(samples)
}

/// Adds services; the clock runs from the moment the server is given the Service.
pub(crate) fn additions(node: &Node, size: Size, times: usize) -> anyhow::Result<Samples> {
    let _inside = node.world.enter(CLIENT)?;
    let mut samples = Samples::default();
    for number in size.services..size.services + times {
        let begin = Instant::now();
        node.server.apply(objects::service(number))?;
        node.server
            .apply(objects::slice_at_pod(number, objects::FIRST_POD))?;
        samples.add(node.until(begin, || Ok(is_answered(objects::address(number))))?);
    }
    Ok(samples)
}
