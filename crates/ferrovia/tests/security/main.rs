//! Old vulnerabilities of service proxies, as packets and requests. `docs/security-cases.md` lists all of them, with the tests that are
//! elsewhere.
//!
//! - `catching`: Services that intercept foreign traffic
//! - `doors`: information that public ports must not expose
//! - `tenants`: resources that Services of one tenant can take from others
//! - `page`: the page names tests that exist

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on should fail there"
)]

mod catching;
mod doors;
mod page;
mod tenants;

/// The program under test.
const FERROVIA: &str = env!("CARGO_BIN_EXE_ferrovia");
