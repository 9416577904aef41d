//! Creates the lab's namespaces, gives access to them and removes them.
//!
//! [`crate::layout`] has their hosts and addresses, `servers.rs` their servers.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use crate::iproute;
use crate::layout::{self, Pod, Role};
use crate::neighbours;
use crate::netns;
use crate::rootless;
use crate::servers::{self, Servers};
use crate::sys;
use crate::wiring;

/// The options of a world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The ports on which every pod answers, over all protocols.
    pub ports: Vec<u16>,
    /// The ports on which every pod answers HTTP requests.
    pub http_ports: Vec<u16>,
    /// The ports on which pods with host network answer, over TCP and UDP.
    pub host_ports: Vec<u16>,
    /// Whether the local pods share a bridge, `cbr0`, instead of having a routed link each.
    pub bridge: bool,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            ports: vec![53, 80, 443, 5000, 8080, 8081, 8443, 9090, 9376, 9999],
            http_ports: vec![],
            host_ports: vec![6443],
            bridge: false,
        }
    }
}

/// Why a world could not be created or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    Io { action: String, source: io::Error },
}

/// A cluster of network namespaces. Dropping it removes them and kills processes that still run inside.
#[derive(Debug)]
pub struct World {
    // Fields are dropped in order: the servers' sockets are closed before the namespaces are removed.
    servers: Servers,
    namespaces: Namespaces,
    spec: Spec,
    next_source_port: AtomicU16,
}

impl World {
    /// Creates a world, with servers in every pod.
    pub fn new(spec: Spec) -> Result<Self, Error> {
        let namespaces = Namespaces::build(spec.bridge)?;
        let world = Self {
            servers: Servers::new().map_err(failed("start the servers"))?,
            namespaces,
            spec,
            next_source_port: AtomicU16::new(SOURCE_PORTS.0),
        };
        for pod in Pod::ALL.into_iter().chain(Pod::HOST_NETWORK) {
            world.start(pod)?;
        }
        Ok(world)
    }

    /// Removes leftover namespaces of processes that no longer exist.
    pub fn sweep() -> Result<(), Error> {
        let entries = match fs::read_dir(netns::FOLDER) {
            Ok(entries) => entries,
            // No namespace was ever created on this machine.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed("read the list of namespaces")(error)),
        };
        let orphans: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| {
                owner(name).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
            })
            .collect();
        kill_inside(&orphans);
        remove(&orphans)
    }

    /// The name of a namespace, as `ip -n` and `ip netns` take it.
    pub fn name(&self, role: Role) -> &str {
        &self.namespaces.get(role).name
    }

    /// A command that runs inside a namespace.
    pub fn exec(&self, role: Role, program: &str) -> Command {
        let mut command = Command::new(program);
        sys::start_inside(&mut command, Arc::clone(&self.namespaces.get(role).handle));
        command
    }

    /// Moves the calling thread into a namespace until the guard is dropped.
    pub fn enter(&self, role: Role) -> Result<Inside, Error> {
        let home = File::open("/proc/thread-self/ns/net")
            .map_err(failed("open the thread's own namespace"))?;
        let namespace = self.namespaces.get(role);
        sys::enter(namespace.handle.as_fd())
            .map_err(failed(format!("enter namespace {}", namespace.name)))?;
        Ok(Inside {
            home,
            _bound_to_thread: PhantomData,
        })
    }

    /// Starts a pod's servers. They run when the world has been created.
    pub fn start(&self, pod: Pod) -> Result<(), Error> {
        let sockets = {
            let _inside = self.enter(pod.role())?;
            let (ports, http_ports) = if Pod::HOST_NETWORK.contains(&pod) {
                (&self.spec.host_ports, &Vec::new())
            } else {
                (&self.spec.ports, &self.spec.http_ports)
            };
            servers::listen(pod, ports, http_ports)
                .map_err(failed(format!("listen in {}", pod.name())))?
        };
        self.servers
            .serve(pod, sockets)
            .map_err(failed(format!("start {}", pod.name())))
    }

    /// Closes a pod's sockets and connections; its kernel then refuses calls.
    pub fn stop(&self, pod: Pod) -> Result<(), Error> {
        self.servers
            .stop(pod)
            .map_err(failed(format!("stop {}", pod.name())))
    }

    /// Waits until the kernel delivers packets to all IPv6 addresses of a namespace locally, including addresses that were just added.
    pub fn wait_for_addresses(&self, role: Role) -> Result<(), Error> {
        let _inside = self.enter(role)?;
        neighbours::wait_until_local().map_err(failed("wait for IPv6 addresses"))
    }

    /// Whether an address is one of the node under test, as a masqueraded source must be.
    pub fn is_node_address(&self, address: IpAddr) -> bool {
        layout::NODE_ADDRESSES.contains(&address)
            || (self.spec.bridge && layout::BRIDGE_ADDRESSES.contains(&address))
    }

    /// A source port that no recent call of this world used, so that connection tracking does not
    /// take a connection for an older one.
    pub(crate) fn fresh_source_port(&self) -> u16 {
        let (first, last) = SOURCE_PORTS;
        let next = |port: u16| Some(if port >= last { first } else { port + 1 });
        match self
            .next_source_port
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
        {
            Ok(port) | Err(port) => port,
        }
    }
}

/// The source ports of calls: above the node ports, which a proxy may use.
const SOURCE_PORTS: (u16, u16) = (33_000, 60_999);

/// Keeps the calling thread in a namespace; dropping this returns it to its own.
#[derive(Debug)]
pub struct Inside {
    home: File,
    // A namespace belongs to a thread, so that another one must not drop the guard.
    _bound_to_thread: PhantomData<*const ()>,
}

impl Drop for Inside {
    fn drop(&mut self) {
        // A thread that cannot return would send its next packets from the wrong namespace, and tests
        // would draw wrong conclusions.
        if let Err(error) = sys::enter(self.home.as_fd()) {
            eprintln!("cannot leave a network namespace of the lab: {error}");
            std::process::abort();
        }
    }
}

/// A named namespace and an open handle of it.
#[derive(Debug)]
struct Namespace {
    name: String,
    handle: Arc<File>,
}

/// All namespaces of a world. Dropping it removes them.
#[derive(Debug)]
struct Namespaces {
    by_role: [Namespace; Role::ALL.len()],
}

impl Namespaces {
    fn build(bridge: bool) -> Result<Self, Error> {
        static WORLDS: AtomicU32 = AtomicU32::new(0);
        let number = WORLDS.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("fv-{}-{number}", std::process::id());
        let name = |role: Role| format!("{prefix}-{}", role.name());

        let names = Role::ALL.map(name);
        let made = netns::add(&names)
            .map_err(|error| {
                let advice = rootless::advice();
                failed(format!("cannot create network namespaces; {advice}"))(error)
            })
            .and_then(|()| open_all(&names));
        let namespaces = match made {
            Ok(by_role) => Self { by_role },
            Err(error) => {
                // Some may exist. The first error is the one to report.
                let _ = remove(&names);
                return Err(error);
            }
        };
        namespaces.set_sysctls()?;
        iproute::run(&wiring::links(name)).map_err(failed("make links"))?;
        namespaces.configure(bridge)?;
        Ok(namespaces)
    }

    fn get(&self, role: Role) -> &Namespace {
        // `Role::ALL` is in the order of declaration, and so is the array made from it.
        &self.by_role[role as usize]
    }

    /// Writes the kernel settings. `/proc/sys/net` shows the namespace of the reading thread,
    /// so a separate thread enters each.
    fn set_sysctls(&self) -> Result<(), Error> {
        let go_round = || {
            for role in Role::ALL {
                let Namespace { name, handle } = self.get(role);
                sys::enter(handle.as_fd()).map_err(failed(format!("enter namespace {name}")))?;
                wiring::SYSCTLS.into_iter().try_for_each(set_sysctl)?;
                if matches!(role, Role::Node | Role::Node2) {
                    wiring::SYSCTLS_OF_NODES
                        .into_iter()
                        .try_for_each(set_sysctl)?;
                }
                let there = |(key, _): &(&str, _)| sysctl_path(key).exists();
                wiring::SYSCTLS_IF_THERE
                    .into_iter()
                    .filter(there)
                    .try_for_each(set_sysctl)?;
            }
            Ok(())
        };
        std::thread::scope(|scope| scope.spawn(go_round).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Adds addresses and routes to every namespace, then waits until its links are up.
    fn configure(&self, bridge: bool) -> Result<(), Error> {
        self.in_each(|role| iproute::run(&wiring::configuration(role, bridge)))
            .map_err(failed("set up links"))?;
        self.in_each(|role| iproute::wait_until_carrying(&wiring::links_of(role)))
            .map_err(failed("wait for links"))?;
        self.in_each(|_| {
            neighbours::wait_until_resolvable().and_then(|()| neighbours::wait_until_local())
        })
        .map_err(failed("wait for IPv6 addresses"))
    }

    /// Runs an operation in every namespace in turn, in a separate thread.
    fn in_each(&self, action: impl Fn(Role) -> io::Result<()> + Sync) -> io::Result<()> {
        let go_round = || {
            Role::ALL.into_iter().try_for_each(|role| {
                sys::enter(self.get(role).handle.as_fd())?;
                action(role)
            })
        };
        std::thread::scope(|scope| scope.spawn(go_round).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        let names = self
            .by_role
            .each_ref()
            .map(|namespace| namespace.name.as_str());
        kill_inside(&names);
        if let Err(error) = remove(&names) {
            eprintln!("cannot remove the lab's namespaces: {error}");
        }
    }
}

fn open_all(names: &[String; Role::ALL.len()]) -> Result<[Namespace; Role::ALL.len()], Error> {
    let mut namespaces = Vec::with_capacity(names.len());
    for name in names {
        let path = netns::path(name);
        let handle = File::open(&path).map_err(failed(format!("open {}", path.display())))?;
        namespaces.push(Namespace {
            name: name.clone(),
            handle: Arc::new(handle),
        });
    }
    // One is created for each name, so that the length always matches.
    namespaces
        .try_into()
        .map_err(|_| failed("open all namespaces")(io::ErrorKind::Other.into()))
}

/// Removes as many of these namespaces as possible. Another process may sweep at the same time, so that a missing one is not an error.
fn remove(names: &[impl AsRef<str>]) -> Result<(), Error> {
    let removed = names
        .iter()
        .map(AsRef::as_ref)
        .map(|name| netns::remove(name).map_err(failed(format!("remove namespace {name}"))));
    removed.collect::<Vec<_>>().into_iter().collect()
}

/// Kills every other process that is in one of the namespaces.
fn kill_inside(names: &[impl AsRef<str>]) {
    // Device and inode identify a namespace. The device matters: a name whose namespace was
    // never mounted is a plain file, and its inode may have the number of a foreign namespace.
    let identity = |path: PathBuf| fs::metadata(path).ok().map(|data| (data.dev(), data.ino()));
    let inside: BTreeSet<(u64, u64)> = names
        .iter()
        .filter_map(|name| identity(netns::path(name.as_ref())))
        .collect();
    let Ok(processes) = fs::read_dir("/proc") else {
        return;
    };
    if inside.is_empty() {
        return;
    }
    for process in processes.flatten() {
        let Some(pid) = process
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let lives_inside =
            identity(process.path().join("ns/net")).is_some_and(|space| inside.contains(&space));
        if lives_inside && u32::try_from(pid) != Ok(std::process::id()) {
            sys::kill(pid);
        }
    }
}

/// The process that created a namespace, if its name has our format: `fv-<pid>-<n>-<role>`.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix("fv-")?.split('-').next()?.parse().ok()
}

fn set_sysctl((key, value): (&str, &str)) -> Result<(), Error> {
    fs::write(sysctl_path(key), value).map_err(failed(format!("set {key}")))
}

fn sysctl_path(key: &str) -> PathBuf {
    Path::new("/proc/sys/net").join(key)
}

fn failed(action: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    let action = action.into();
    move |source| Error::Io { action, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_names_have_an_owner() {
        assert_eq!(owner("fv-4711-0-pod-a"), Some(4711));
        assert_eq!(owner("cni-4711"), None);
        assert_eq!(owner("fv-lost"), None);
    }

    #[test]
    fn roles_are_declared_in_the_order_they_are_listed() {
        for (position, role) in Role::ALL.into_iter().enumerate() {
            assert_eq!(role as usize, position);
        }
    }
}
