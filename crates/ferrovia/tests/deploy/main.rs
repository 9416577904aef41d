//! What people install: manifests, chart, packages and profiles, as far as they can be tried without a cluster.
//!
//! - `schema`: every object has only fields that the API knows
//! - `kustomize`: base and overlays, rendered as kustomize renders them
//! - `helm`: the chart, and what helm makes of it
//! - `pods`: what holds for every pod: flags, configuration, probes, privileges
//! - `role`: the daemon asks the API server for what its role allows, and the role allows nothing else
//! - `authorities`: a machine without certificate authorities
//! - `package`: the archive, the container recipes and the Debian package
//! - `confinement`: system calls, AppArmor, systemd

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on should fail there"
)]

mod authorities;
mod confinement;
mod helm;
mod kustomize;
mod package;
mod pods;
mod role;
mod schema;
mod support;
