//! The pure part of Ferrovia, a Kubernetes service proxy: API objects go in, the desired state of one node and plans for the kernel come out.
//!
//! ```text
//! Event ──▶ Store ──▶ Desired (per family) ──▶ Plan
//! ```
//!
//! Nothing in this crate does I/O, blocks, reads a clock or fails on input: an invalid object becomes a [`Warning`](model::Warning), and all
//! other objects are processed as usual. So a whole cluster can be simulated in a unit test. Our terms are in `docs/glossary.md`.
//!
//! - [`wire`]: the fields of Services, EndpointSlices and other objects that are read, as they arrive.
//! - [`store`]: the objects that exist now, validated as [`model`] types.
//! - [`desired`]: which frontends of this node lead to which endpoints, per address family.
//! - [`plan`]: what to write for that, one planner per proxy mode. Its output is a value of a [`dialect`], which prints as text.
//! - [`trace`]: where a packet goes, and why. [`difference`]: what differs between the desired state and the kernel.
//!
//! # Example
//!
//! One Service with one endpoint, as a plan for an empty nftables table:
//!
//! ```
//! use ferrovia_core::desired::{Builder, LocalSetting, NoEndpoints, NodePortSetting, NodeSettings};
//! use ferrovia_core::dialect::nft::NftObserved;
//! use ferrovia_core::family::Family;
//! use ferrovia_core::plan::nft::NftPlanner;
//! use ferrovia_core::plan::{ObservedPolicy, Planner};
//! use ferrovia_core::store::{Event, Store};
//! use ferrovia_core::wire::{Kind, Object};
//!
//! let service = serde_json::from_str(
//!     r#"{
//!         "metadata": {"namespace": "shop", "name": "web"},
//!         "spec": {"clusterIP": "10.96.0.10", "ports": [{"port": 80, "targetPort": 8080}]}
//!     }"#,
//! )?;
//! let slice = serde_json::from_str(
//!     r#"{
//!         "metadata": {"namespace": "shop", "name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
//!         "addressType": "IPv4",
//!         "ports": [{"port": 8080}],
//!         "endpoints": [{"addresses": ["10.244.1.10"]}]
//!     }"#,
//! )?;
//!
//! let mut store = Store::new("node-1");
//! for object in [Object::Service(service), Object::EndpointSlice(slice)] {
//!     let warnings = store.handle(Event::Applied(Box::new(object)));
//!     assert!(warnings.is_empty());
//! }
//! for kind in Kind::ALL {
//!     store.handle(Event::Listed(kind));
//! }
//!
//! let mut builder = Builder::new(NodeSettings {
//!     node_name: "node-1".into(),
//!     node_ips: Default::default(),
//!     local: LocalSetting::ClusterCidr(vec!["10.244.0.0/16".parse()?]),
//!     masquerade_all: false,
//!     masquerade_bit: 14,
//!     no_endpoints: NoEndpoints::Reject,
//!     egress_except: None,
//!     node_ports: NodePortSetting::Primary,
//!     services: Default::default(),
//! });
//! let touched = store.take_touched();
//! builder.update(&store, touched, &["192.0.2.1".parse()?]);
//!
//! let desired = builder.desired(Family::V4);
//! let plan = NftPlanner::new(Family::V4, true).full(desired, &NftObserved::default(), ObservedPolicy::Adopt);
//! assert!(plan.to_string().contains("10.96.0.10 . tcp . 80"));
//! assert!(plan.to_string().contains("10.244.1.10"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod desired;
pub mod dialect;
pub mod difference;
pub mod family;
pub mod model;
pub mod plan;
pub mod pod_name_hash;
pub mod store;
#[cfg(test)]
mod testing;
pub mod trace;
pub mod wire;
