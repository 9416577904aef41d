//! Sends the events of all resources to the sync loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ferrovia_core::store::Event;

use crate::sync::{Input, Inputs};

/// The sync loop has exited.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closed;

/// One resource's access to the loop's queue.
#[derive(Debug)]
pub(super) struct Outlet {
    inputs: Inputs,
    /// Objects of all resources that could not be decoded.
    unreadable: Arc<AtomicUsize>,
    /// How many of them belong to this resource.
    own_unreadable: usize,
}

impl Outlet {
    pub(super) fn new(inputs: Inputs) -> Self {
        Self {
            inputs,
            unreadable: Arc::default(),
            own_unreadable: 0,
        }
    }

    /// For one more resource.
    pub(super) fn share(&self) -> Self {
        Self {
            inputs: self.inputs.clone(),
            unreadable: self.unreadable.clone(),
            own_unreadable: 0,
        }
    }

    /// Sends events, and how many objects of this resource could not be decoded. Waits while the queue is full.
    pub(super) async fn send(
        &mut self,
        events: Vec<Event>,
        unreadable: usize,
    ) -> Result<(), Closed> {
        let before = std::mem::replace(&mut self.own_unreadable, unreadable);
        if unreadable >= before {
            self.unreadable
                .fetch_add(unreadable - before, Ordering::Relaxed);
        } else {
            self.unreadable
                .fetch_sub(before - unreadable, Ordering::Relaxed);
        }
        if events.is_empty() && unreadable == before {
            return Ok(());
        }
        let input = Input::Events {
            events,
            has_unreadable_objects: self.unreadable.load(Ordering::Relaxed) > 0,
        };
        self.inputs.send_async(input).await.map_err(|_| Closed)
    }
}

#[cfg(test)]
mod tests {
    use ferrovia_core::wire::Kind;
    use futures_util::FutureExt as _;

    use super::*;
    use crate::sync::queue;

    fn listed() -> Vec<Event> {
        vec![Event::Listed(Kind::Service)]
    }

    #[tokio::test]
    async fn unreadable_objects_of_any_resource_are_reported() {
        let (inputs, received) = queue();
        let mut services = Outlet::new(inputs);
        let mut slices = services.share();
        services.send(listed(), 1).await.unwrap();
        slices.send(listed(), 0).await.unwrap();
        slices.send(Vec::new(), 0).await.unwrap();
        services.send(Vec::new(), 0).await.unwrap();
        drop((services, slices));
        let sent = received.into_iter().map(|input| match input {
            Input::Events {
                events,
                has_unreadable_objects,
            } => (events.len(), has_unreadable_objects),
            other => panic!("{other:?}"),
        });
        assert_eq!(sent.collect::<Vec<_>>(), [(1, true), (1, true), (0, false)]);
    }

    #[tokio::test]
    async fn reading_stops_while_the_queue_is_full() {
        let (inputs, received) = queue();
        while inputs.try_send(Input::Check).is_ok() {}
        let mut outlet = Outlet::new(inputs);
        let mut next = Box::pin(outlet.send(listed(), 0));
        assert!((&mut next).now_or_never().is_none());
        received.recv().unwrap();
        next.await.unwrap();
    }

    #[tokio::test]
    async fn sending_fails_when_the_loop_has_exited() {
        let (inputs, received) = queue();
        drop(received);
        assert!(Outlet::new(inputs).send(listed(), 0).await.is_err());
    }
}
