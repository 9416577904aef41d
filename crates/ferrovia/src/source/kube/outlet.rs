//! The way out: news of all resources through one short queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ferrovia_core::store::Event;
use tokio::sync::mpsc;

/// Batches that may wait. Each holds what one read brought, so this bounds memory.
const QUEUE: usize = 8;

/// What happened to some objects.
#[derive(Debug)]
pub struct Batch {
    /// In the order it happened, for each kind.
    pub events: Vec<Event>,
    /// Every object the server told of could be read. While not, objects may be missing that do exist.
    pub is_complete: bool,
}

/// Nobody wants to hear any more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closed;

/// One resource's end of the queue.
#[derive(Debug)]
pub(super) struct Outlet {
    batches: mpsc::Sender<Batch>,
    /// Objects of all resources that could never be read.
    unread: Arc<AtomicUsize>,
    /// How many of them are ours.
    ours: usize,
}

impl Outlet {
    pub(super) fn new() -> (Self, mpsc::Receiver<Batch>) {
        let (batches, receiver) = mpsc::channel(QUEUE);
        let outlet = Self {
            batches,
            unread: Arc::default(),
            ours: 0,
        };
        (outlet, receiver)
    }

    /// For one more resource.
    pub(super) fn share(&self) -> Self {
        Self {
            batches: self.batches.clone(),
            unread: self.unread.clone(),
            ours: 0,
        }
    }

    /// Waits until nobody wants to hear any more.
    pub(super) async fn closed(&self) {
        self.batches.closed().await;
    }

    /// Hands over news, and how many objects of this resource could never be read; waits while the queue is full.
    pub(super) async fn send(&mut self, events: Vec<Event>, unread: usize) -> Result<(), Closed> {
        let before = std::mem::replace(&mut self.ours, unread);
        if unread >= before {
            self.unread.fetch_add(unread - before, Ordering::Relaxed);
        } else {
            self.unread.fetch_sub(before - unread, Ordering::Relaxed);
        }
        if events.is_empty() && unread == before {
            return Ok(());
        }
        let batch = Batch {
            events,
            is_complete: self.unread.load(Ordering::Relaxed) == 0,
        };
        self.batches.send(batch).await.map_err(|_| Closed)
    }
}

#[cfg(test)]
mod tests {
    use ferrovia_core::wire::Kind;
    use futures_util::FutureExt as _;

    use super::*;

    fn listed() -> Vec<Event> {
        vec![Event::Listed(Kind::Service)]
    }

    #[tokio::test]
    async fn all_is_complete_only_while_every_resource_is() {
        let (mut services, mut batches) = Outlet::new();
        let mut slices = services.share();
        services.send(listed(), 1).await.unwrap();
        slices.send(listed(), 0).await.unwrap();
        slices.send(Vec::new(), 0).await.unwrap();
        services.send(Vec::new(), 0).await.unwrap();
        drop((services, slices));
        let mut complete = Vec::new();
        while let Some(batch) = batches.recv().await {
            complete.push((batch.events.len(), batch.is_complete));
        }
        assert_eq!(complete, [(1, false), (1, false), (0, true)]);
    }

    #[tokio::test]
    async fn a_slow_receiver_stops_the_reading() {
        let (mut outlet, mut batches) = Outlet::new();
        for _ in 0..QUEUE {
            outlet.send(listed(), 0).await.unwrap();
        }
        let mut next = Box::pin(outlet.send(listed(), 0));
        assert!((&mut next).now_or_never().is_none());
        batches.recv().await;
        next.await.unwrap();
    }

    #[tokio::test]
    async fn an_end_is_noticed() {
        let (mut outlet, batches) = Outlet::new();
        drop(batches);
        assert!(outlet.send(listed(), 0).await.is_err());
    }
}
