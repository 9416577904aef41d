//! What a node looks like to another process who is to find out why it does not work. Everything here is only read, most of it without any
//! privilege; what it means is judged elsewhere.
//!
//! [`chains`] lists what others do to packets, [`sockets`] who listens, [`links`] and [`routes`] where packets leave, [`flows`] how
//! connection tracking does, [`modules`] what the kernel could do, [`processes`] who else runs here, and [`settings`] the kernel's settings
//! as text. Files of the network are read through `/proc/thread-self`, because `/proc/net` is the view of the process's first thread, and we
//! may be in another namespace than that.

pub mod chains;
pub mod flows;
pub mod links;
pub mod modules;
pub mod processes;
pub mod routes;
pub mod settings;
pub mod sockets;

/// Names of others that go into a report are cut to this, and stripped of what a terminal would act upon.
const LONGEST_NAME: usize = 64;

/// Text of another process's, safe to print.
fn printable(text: &str) -> String {
    let safe = |c: char| if c.is_control() { '?' } else { c };
    text.trim().chars().take(LONGEST_NAME).map(safe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_act_on_a_terminal() {
        assert_eq!(printable(" \u{1b}[31mred\n"), "?[31mred");
        assert_eq!(printable(&"x".repeat(200)).len(), LONGEST_NAME);
    }
}
