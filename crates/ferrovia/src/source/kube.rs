//! The Kubernetes API as the source of objects.
//!
//! ```text
//! Api ── one request ──▶ Chunks ──▶ Events (a watch)  ──▶ Known ── news only ──▶ Outlet ──▶ the loop's queue
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

use ferrovia_core::store::Event;
use ferrovia_core::wire::Kind;
use futures_util::future::join_all;

pub use access::{AccessError, ApiAccess};
pub use api::Api;
pub use format::Encoding;
pub use freshness::Freshness;
pub use observe::{Asked, Observer, Unobserved};
pub use times::Times;

use outage::Outage;
use outlet::Outlet;
use reflect::{Lost, Reflector};
use resource::Resource;

use crate::sync::Inputs;

/// Follows the API and sends every change to the sync loop, until the loop exits.
///
/// While the loop's queue is full nothing is read: a slow receiver costs time and never memory. `freshness` learns how old the objects are.
/// Must run on a tokio runtime with time and I/O; one thread is enough.
pub async fn run(api: Api, node_name: &str, freshness: Freshness, inputs: Inputs) {
    let mut outlet = Outlet::new(inputs);
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
    join_all(reflectors).await;
}
