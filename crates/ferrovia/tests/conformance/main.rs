//! `make conformance`: the daemon against a real kube-apiserver and etcd, which `KUBEBUILDER_ASSETS` names.
//!
//! - `runner`: which tests run, and how that is shown
//! - `cluster`: a node of the lab with a control plane of its own
//! - `start`, `changes`: what is there already, and what changes
//! - `outage`: the server restarts, etcd is compacted or restored from a backup
//! - `http2`: one connection for everything
//! - `lists`: the ways to list, slow networks, many Services; `bulk` creates those
//! - `access`: credentials, roles, priority and fairness
//! - `reports`: Events that the server accepts
//! - `peer`: kube-proxy on the same objects
//! - `simulated`: the lab's API server answers as the real one does
//!
//! Like tests that are marked `#[ignore]` they run only with `--include-ignored`, so that `cargo test` needs nothing that is not on the
//! machine, and still compiles them.

mod access;
mod bulk;
mod changes;
mod cluster;
mod http2;
mod lists;
mod outage;
mod peer;
mod reports;
mod runner;
mod simulated;
mod start;

/// The program under test.
const FERROVIA: &str = env!("CARGO_BIN_EXE_ferrovia");

use std::process::ExitCode;

use runner::{Test, test};

/// Every test, in the order in which they start.
const TESTS: &[Test] = &[
    test!(start::writes_the_rules_of_existing_services),
    test!(changes::follows_services_and_endpoint_slices),
    test!(outage::keeps_rules_while_the_server_restarts_and_follows_it_afterwards),
    test!(outage::sees_changes_that_were_made_while_it_was_cut_off),
    test!(outage::relists_after_etcd_was_compacted_and_the_server_restarted),
    test!(outage::relists_after_etcd_was_compacted_behind_a_server_without_watch_cache),
    test!(outage::returns_to_the_state_of_a_restored_backup),
    test!(http2::shares_one_connection),
    test!(http2::speaks_http_1_if_http_2_is_disabled),
    test!(http2::follows_a_server_that_sends_goaway),
    test!(http2::sees_changes_after_packets_were_dropped),
    test!(lists::lists_in_pages_where_watch_lists_are_disabled),
    test!(lists::lists_and_watches_without_a_watch_cache),
    test!(lists::lists_in_pages_where_etcd_cannot_report_progress, needs "etcd-3.4"),
    test!(lists::waits_for_a_list_that_comes_slowly),
    test!(lists::follows_ten_thousand_services),
    test!(access::follows_a_projected_service_account_token),
    test!(access::reloads_a_client_certificate),
    test!(access::reaches_the_server_at_an_ipv6_address),
    test!(access::writes_rules_with_a_role_that_may_list_but_not_watch),
    test!(access::waits_out_a_server_that_answers_429),
    test!(reports::posts_events_that_the_server_accepts),
    test!(reports::reports_a_node_that_is_about_to_go),
    test!(peer::forwards_as_kube_proxy_does, needs "kube-proxy"),
    test!(simulated::answers_as_the_real_server_does),
];

fn main() -> ExitCode {
    runner::main(TESTS)
}
