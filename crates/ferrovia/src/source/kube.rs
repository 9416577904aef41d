//! The Kubernetes API as the source of objects.
//!
//! ```text
//! Api ── one request ──▶ Chunks ──▶ Events (a watch)  ──▶ Known ── news only ──▶ Batch ──▶ deliver
//!  (credentials, rate)               ListItems (a list)   (what was sent)
//!                                    in protobuf or JSON
//! ```
//!
//! For every resource a `Reflector` lists and then watches, for ever. What it remembers of an object is its name
//! and its version, nothing else: a list after an interruption is compared with that, and only what changed or went is told. Objects
//! are decoded straight from the bytes, one at a time, and handed over a few at a time, so memory stays flat however long the list is.
//!
//! Nothing the server does ends this: it is asked again, ever more slowly. Nothing it does changes what was told either, except an
//! object, its deletion, or a complete list that lacks it.

pub mod events;

mod access;
mod api;
mod backoff;
mod chunks;
mod client;
mod connections;
mod decode;
mod exec;
mod format;
mod freshness;
mod gate;
#[cfg(test)]
mod hostile;
mod items;
mod known;
mod limit;
mod lines;
mod list;
mod observe;
mod outage;
mod outlet;
mod protobuf;
mod proxy;
mod reflect;
mod resource;
mod times;
mod unpack;
mod watch;

use std::ops::ControlFlow;
use std::thread;

use ferrovia_core::store::Event;
use ferrovia_core::wire::Kind;
use futures_util::future::join_all;

pub use access::{AccessError, ApiAccess};
pub use api::Api;
pub use format::Encoding;
pub use freshness::Freshness;
pub use observe::{Asked, Observer, Unobserved};
pub use outlet::Batch;
pub use times::Times;

use outage::Outage;
use outlet::Outlet;
use reflect::{Lost, Reflector};
use resource::Resource;

/// Follows the API until `deliver` breaks.
///
/// `deliver` is called on a thread of its own and may block: reading stops until it is done, so a slow receiver costs time and never
/// memory. `freshness` learns how old the objects are. Must run on a tokio runtime with time and I/O; one thread is enough.
pub async fn run(
    api: Api,
    node_name: &str,
    freshness: Freshness,
    deliver: impl FnMut(Batch) -> ControlFlow<()> + Send + 'static,
) -> std::io::Result<()> {
    let mut outlet = spawn_delivery(deliver)?;
    // The API server makes EndpointSlices of legacy objects itself, so there are none to wait for.
    let _ = outlet.send(vec![Event::Listed(Kind::Endpoints)], 0).await;
    let outage = Outage::default();
    let probe = resource::probe(node_name);
    let reflectors = Resource::all(node_name).map(|resource| {
        let lost = Lost {
            outage: outage.clone(),
            probe: probe.clone(),
        };
        let (freshness, outlet) = (freshness.clone(), outlet.share());
        Reflector::new(api.clone(), resource, freshness, outlet, lost).run()
    });
    tokio::select! {
        () = outlet.closed() => {}
        _ = join_all(reflectors) => {}
    }
    Ok(())
}

/// Blocking is not allowed on the runtime's thread, so what is delivered goes through a short queue to a thread that may.
fn spawn_delivery(
    mut deliver: impl FnMut(Batch) -> ControlFlow<()> + Send + 'static,
) -> std::io::Result<Outlet> {
    let (outlet, mut batches) = Outlet::new();
    thread::Builder::new()
        .name("kube-events".into())
        .spawn(move || {
            while let Some(batch) = batches.blocking_recv() {
                if deliver(batch).is_break() {
                    return;
                }
            }
        })?;
    Ok(outlet)
}
