//! One daemon at a time writes in a network namespace.
//!
//! Files do not show that: containers with the node's network have file systems of their own. So the namespace itself holds the claim: a table of
//! nf_tables that the kernel gives to one connection. Only processes with CAP_NET_ADMIN can make it, every container of the namespace sees
//! it, and it goes with the process however that ends.
//!
//! Kernels before 5.12, and those without nf_tables, have an abstract unix socket instead. Any process of the namespace can bind its name, so
//! a holder that could not write rules is reported and does not count.

use std::fmt;
use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::nft::{self, Nft, TableClaim};
use crate::sockopt;

const NAME: &str = "ferrovia-owner";
/// How often a waiting process looks whether the claim is free: well below what anybody notices, and next to no work.
const POLL: Duration = Duration::from_millis(100);
/// CAP_NET_ADMIN as a bit of `CapEff` in `/proc/PID/status`.
const NET_ADMIN: u64 = 1 << 12;
/// More of a description is not shown.
const LONGEST: usize = 128;

/// Why it cannot be known who writes here.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Nft(#[from] nft::Error),
    #[error("cannot claim this network namespace with a socket: {0}")]
    Socket(io::Error),
}

/// The claim of this process on its network namespace. It ends when this is dropped, or with the process.
#[derive(Debug)]
pub struct Ownership {
    _held: HeldClaim,
}

#[derive(Debug)]
#[expect(dead_code, reason = "held for as long as the claim is, not used")]
enum HeldClaim {
    Table(Nft),
    Name(UnixListener),
    /// A process that cannot write rules has the name: going without keeps the node served.
    Nothing,
}

/// A process that writes in this network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner(String);

impl Owner {
    /// A process by what it says of itself. Text of other processes is cut and made safe to print.
    pub fn new(description: &str) -> Self {
        let safe = |c: char| if c.is_control() { '?' } else { c };
        let text: String = description.chars().map(safe).take(LONGEST).collect();
        Self(if text.is_empty() {
            "an unidentified process".to_owned()
        } else {
            text
        })
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Claims the network namespace of this thread, or says who has it.
///
/// # Errors
/// If the kernel cannot be asked.
pub fn claim(me: &Owner) -> Result<Result<Ownership, Owner>, Error> {
    if let Some(nft) = Nft::open_if_there()? {
        match nft.claim(&me.0)? {
            TableClaim::Ours(nft) => {
                return Ok(Ok(Ownership {
                    _held: HeldClaim::Table(nft),
                }));
            }
            TableClaim::Taken(description) => return Ok(Err(Owner::new(&description))),
            TableClaim::Unsupported => {}
        }
    }
    claim_name(NAME)
}

/// Like [`claim`], but waits for a process that is just exiting. Its claim can outlive it for a moment: a program that it was starting has copies
/// of its descriptors until it is executed.
///
/// # Errors
/// If the kernel cannot be asked.
pub fn claim_within(limit: Duration, me: &Owner) -> Result<Result<Ownership, Owner>, Error> {
    let deadline = Instant::now() + limit;
    loop {
        match claim(me)? {
            Err(_) if Instant::now() < deadline => thread::sleep(POLL),
            claimed => return Ok(claimed),
        }
    }
}

/// Waits until the network namespace of this thread is free, and claims it.
///
/// # Errors
/// If the kernel cannot be asked.
pub fn wait(me: &Owner) -> Result<Ownership, Error> {
    loop {
        if let Ok(ownership) = claim(me)? {
            return Ok(ownership);
        }
        // To look costs less than to try: a refused transaction makes the kernel wait for all CPUs.
        while holder()?.is_some() {
            thread::sleep(POLL);
        }
    }
}

/// Who has claimed the network namespace of this thread. Changes nothing.
///
/// # Errors
/// If the kernel cannot be asked.
pub fn holder() -> Result<Option<Owner>, Error> {
    if let Some(mut nft) = Nft::open_if_there()?
        && let Some(description) = nft.claimed_by()?
    {
        return Ok(Some(Owner::new(&description)));
    }
    match named_holder(NAME)? {
        Some(holder) if holder.can_write_rules => Ok(Some(holder.owner())),
        _ => Ok(None),
    }
}

/// The claim where the kernel has no tables with owners.
fn claim_name(name: &str) -> Result<Result<Ownership, Owner>, Error> {
    let address = SocketAddr::from_abstract_name(name).map_err(Error::Socket)?;
    loop {
        let held = match UnixListener::bind_addr(&address) {
            Ok(listener) => HeldClaim::Name(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => match named_holder(name)? {
                // It went in between.
                None => continue,
                Some(holder) if holder.can_write_rules => return Ok(Err(holder.owner())),
                Some(holder) => {
                    tracing::warn!(socket = %format!("@{name}"), holder = %holder.owner(), "Ignored the claim of a process without CAP_NET_ADMIN; a second proxy would go undetected");
                    HeldClaim::Nothing
                }
            },
            Err(error) => return Err(Error::Socket(error)),
        };
        return Ok(Ok(Ownership { _held: held }));
    }
}

/// A process that listens on an abstract socket.
struct NamedHolder {
    pid: i32,
    can_write_rules: bool,
}

impl NamedHolder {
    fn owner(&self) -> Owner {
        let name = fs::read_to_string(format!("/proc/{}/comm", self.pid));
        match name {
            Ok(name) => Owner::new(&format!("{}, pid {}", name.trim(), self.pid)),
            Err(_) => Owner::new("a process that cannot be seen from here"),
        }
    }
}

fn named_holder(name: &str) -> Result<Option<NamedHolder>, Error> {
    let address = SocketAddr::from_abstract_name(name).map_err(Error::Socket)?;
    let stream = match UnixStream::connect_addr(&address) {
        Ok(stream) => stream,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(None),
        Err(error) => return Err(Error::Socket(error)),
    };
    let (pid, uid) = peer(&stream).map_err(Error::Socket)?;
    // A process of another process namespace has no number here: then its user decides.
    let can_write_rules = effective_capabilities(pid).map_or(uid == 0, |has| has & NET_ADMIN != 0);
    Ok(Some(NamedHolder {
        pid,
        can_write_rules,
    }))
}

/// Process and user of the one who listens, as `SO_PEERCRED` has them.
fn peer(stream: &UnixStream) -> io::Result<(i32, u32)> {
    let mut ucred = [0; 12];
    sockopt::get(stream, libc::SOL_SOCKET, libc::SO_PEERCRED, &mut ucred)?;
    let [p0, p1, p2, p3, u0, u1, u2, u3, ..] = ucred;
    Ok((
        i32::from_ne_bytes([p0, p1, p2, p3]),
        u32::from_ne_bytes([u0, u1, u2, u3]),
    ))
}

fn effective_capabilities(pid: i32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use ferrovia_lab::namespace::in_namespace;

    use super::*;

    fn me(number: u32) -> Owner {
        Owner::new(&format!("ferrovia 0.1.0, pid {number}"))
    }

    #[test]
    fn one_process_at_a_time_has_a_network_namespace() {
        in_namespace(|| {
            assert_eq!(holder().unwrap(), None);
            let first = claim(&me(1)).unwrap().unwrap();
            assert_eq!(claim(&me(2)).unwrap().unwrap_err(), me(1));
            assert_eq!(holder().unwrap(), Some(me(1)));
            drop(first);
            assert_eq!(holder().unwrap(), None);
            let _second = claim(&me(2)).unwrap().unwrap();
            assert_eq!(holder().unwrap(), Some(me(2)));
        });
    }

    #[test]
    fn claim_of_an_exiting_process_is_waited_for() {
        in_namespace(|| {
            let first = claim(&me(1)).unwrap().unwrap();
            let refused = claim_within(Duration::ZERO, &me(2)).unwrap();
            assert_eq!(refused.unwrap_err(), me(1));
            thread::scope(|scope| {
                let second = scope.spawn(|| claim_within(Duration::from_secs(60), &me(2)).unwrap());
                thread::sleep(POLL);
                drop(first);
                second.join().unwrap().unwrap();
            });
        });
    }

    #[test]
    fn namespaces_are_independent() {
        in_namespace(|| {
            let _first = claim(&me(1)).unwrap().unwrap();
            in_namespace(|| claim(&me(2)).unwrap().unwrap());
        });
    }

    #[test]
    fn a_waiting_process_gets_it_when_the_other_goes() {
        in_namespace(|| {
            let first = claim(&me(1)).unwrap().unwrap();
            thread::scope(|scope| {
                let waiting = scope.spawn(|| wait(&me(2)).unwrap());
                thread::sleep(POLL * 3);
                assert_eq!(holder().unwrap(), Some(me(1)));
                drop(first);
                let _second = waiting.join().unwrap();
                assert_eq!(holder().unwrap(), Some(me(2)));
            });
        });
    }

    /// A table of that name without an owner, as a loaded listing leaves it, keeps no process out; flushing everything takes nothing away.
    #[test]
    fn other_tools_cannot_take_it_or_keep_it() {
        use ferrovia_lab::namespace::run;
        in_namespace(|| {
            run("nft add table ip ferrovia-owner");
            let _first = claim(&me(1)).unwrap().unwrap();
            run("nft flush ruleset");
            assert_eq!(holder().unwrap(), Some(me(1)));
            let listing = run("nft list ruleset");
            assert!(listing.contains("flags owner"), "{listing}");
            assert!(
                listing.contains("comment \"ferrovia 0.1.0, pid 1\""),
                "{listing}"
            );
        });
    }

    #[test]
    fn without_tables_with_owners_a_name_does_the_same() {
        in_namespace(|| {
            let first = claim_name(NAME).unwrap().unwrap();
            let owner = claim_name(NAME).unwrap().unwrap_err().to_string();
            let pid = std::process::id();
            assert!(owner.ends_with(&format!(", pid {pid}")), "{owner}");
            assert!(holder().unwrap().is_some());
            drop(first);
            assert_eq!(holder().unwrap(), None);
        });
    }

    #[test]
    fn text_of_other_processes_is_safe_to_print() {
        let owner = Owner::new(&format!("\u{1b}[31m{}", "x".repeat(200)));
        assert_eq!(owner.to_string().len(), LONGEST);
        assert!(!owner.to_string().contains('\u{1b}'));
        assert!(Owner::new("").to_string().starts_with("an unidentified"));
    }
}
