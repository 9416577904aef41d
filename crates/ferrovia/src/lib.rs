//! The daemon and the command line of Ferrovia: what runs round the pure core and the kernel I/O.
//!
//! Data flows one way: a [`source`] makes events, the [`sync`] engine keeps the desired state and writes it with the [`mode`] chosen;
//! [`app`] is the wiring, [`cli`] what people type, and [`look`] answers what they ask.
#![forbid(unsafe_code)]

pub mod admin;
pub mod app;
pub mod cli;
pub mod config;
pub mod conntrack;
pub mod counters;
pub mod doctor;
pub mod families;
mod fields;
pub mod health;
pub mod http;
pub mod logging;
pub mod look;
pub mod metrics;
pub mod migrate;
pub mod mode;
pub mod notice;
mod paragraph;
pub mod source;
pub mod sweep;
pub mod sync;
pub mod version;
pub mod web;
