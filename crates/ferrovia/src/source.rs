//! Where objects come from. A source turns what it watches into [`Event`](ferrovia_core::store::Event)s;
//! what they mean is the core's business.

pub mod kube;
pub mod manifest;
