//! Lets the lab run without root: a process of an ordinary user enters user, mount and network namespaces in which it is root.
//!
//! The kernel accepts a process in a new user namespace only while the process has a single thread, and the test harness starts threads before
//! any test runs. So `sys.rs` calls `enter` before `main`, in every program that links the lab. For root nothing changes.
//!
//! Only one user id is mapped. Tests that switch to another user, lower an OOM score, use cgroups or change settings of the whole
//! machine need real root and fail without it.

use std::fs;
use std::io;
use std::sync::OnceLock;

use crate::iproute;
use crate::sys;

/// Marks the environment of a process that has been through [`enter`]. Programs that a test starts must keep the rights that the test gave
/// them: a test binary that runs itself as another user must not become root again.
const MARK: &str = "FERROVIA_LAB_ENTERED";

static OUTCOME: OnceLock<Result<Entered, String>> = OnceLock::new();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entered {
    /// The process keeps the rights it was started with.
    Unchanged,
    UserNamespace,
}

/// Enters the namespaces if the process is not root's. Runs before `main`, so it must not panic or start threads.
pub(crate) fn enter() {
    if std::env::var_os(MARK).is_some() {
        return;
    }
    sys::set_environment_before_main(MARK, "1");
    let (user, group) = sys::effective_ids();
    let outcome = if user == 0 {
        Ok(Entered::Unchanged)
    } else {
        enter_as(user, group).map(|()| Entered::UserNamespace)
    };
    let _ = OUTCOME.set(outcome);
}

/// Whether the process is root only in a user namespace of its own, which other terminals have to enter before they can look inside.
pub fn is_in_user_namespace() -> bool {
    matches!(OUTCOME.get(), Some(Ok(Entered::UserNamespace)))
}

/// What to add to an error about missing rights: why the user namespace could not be entered, and what to do.
pub fn advice() -> String {
    match OUTCOME.get() {
        Some(Err(reason)) => format!(
            "run as root, or allow user namespaces (user.max_user_namespaces, kernel.unprivileged_userns_clone, \
             kernel.apparmor_restrict_unprivileged_userns): {reason}"
        ),
        Some(Ok(Entered::UserNamespace)) => {
            "this needs root of the machine; a user namespace is not enough".to_owned()
        }
        _ => "run as root, with CAP_SYS_ADMIN and CAP_NET_ADMIN".to_owned(),
    }
}

fn enter_as(user: u32, group: u32) -> Result<(), String> {
    sys::enter_new_user_namespace().map_err(cannot("enter a user namespace"))?;
    // The kernel lets a process without privileges map its group only after it gave up changing groups.
    for (file, line) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("0 {user} 1")),
        ("gid_map", format!("0 {group} 1")),
    ] {
        fs::write(format!("/proc/self/{file}"), line)
            .map_err(cannot(&format!("write /proc/self/{file}")))?;
    }
    // For names of network namespaces and the lock of iptables: the machine's /run belongs to the real root.
    sys::mount("tmpfs", "/run").map_err(cannot("mount a tmpfs on /run in a user namespace"))?;
    iproute::run("link set lo up").map_err(cannot("configure a network in a user namespace"))
}

fn cannot(action: &str) -> impl FnOnce(io::Error) -> String {
    move |error| format!("cannot {action}: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::run;

    #[test]
    fn test_process_is_root_of_its_namespaces() {
        assert!(matches!(OUTCOME.get(), Some(Ok(_))), "{}", advice());
        assert_eq!(run("id -u").trim(), "0");
    }

    #[test]
    fn started_programs_keep_the_rights_they_were_given() {
        assert_eq!(std::env::var(MARK).as_deref(), Ok("1"));
    }
}
