//! Sets in the machine's own kernel, each test in a network namespace of its own. Needs root and the `ipset` and `iptables` tools.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

/// What is done with sets, compared with what the tool says.
mod sets;
/// Namespaces, commands and short names for values.
mod support;

#[test]
fn sets_are_as_the_tool_prints_them() {
    sets::sets_are_as_the_tool_prints_them();
}

#[test]
fn sets_of_the_tool_are_read() {
    sets::sets_of_the_tool_are_read();
}

#[test]
fn a_refused_change_is_named() {
    sets::a_refused_change_is_named();
}

#[test]
fn a_set_is_swapped_and_destroyed() {
    sets::a_set_is_swapped_and_destroyed();
}
