//! IPVS, the load balancer in the kernel, over generic netlink.
//!
//! [`Ipvs`] reads and changes virtual servers and destinations. [`IpvsApplier`] is the ipvs mode's way into the kernel, in which they are
//! only one part of four; `drain` remembers the destinations that still have connections. `schedulers` finds out what this kernel has, and
//! [`settings`] are the kernel settings that the mode depends on. What is to be written is decided in `ferrovia-core`.

mod applier;
mod batch;
mod decode;
mod drain;
mod encode;
mod error;
mod schedulers;
pub mod settings;
mod tally;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use ferrovia_core::dialect::ipvs::{DestinationRemoval, IpvsDestination, IpvsOp, VirtualServerKey};
use ferrovia_core::family::Family;
use ferrovia_netlink::uapi::ip_vs::{
    IPVS_CMD_ATTR_TIMEOUT_TCP, IPVS_CMD_ATTR_TIMEOUT_TCP_FIN, IPVS_CMD_ATTR_TIMEOUT_UDP,
    IPVS_CMD_GET_DEST, IPVS_CMD_GET_SERVICE, IPVS_CMD_SET_CONFIG,
};
use ferrovia_netlink::{self as netlink, Protocol, Refusal, RefusedRequest, Socket, genetlink};

use self::encode::{IpvsAction, IpvsRequest, head};
use crate::exec;

pub use applier::{ApplyError, IpvsApplier};
pub use decode::{FoundDestination, FoundServer, Stats, Timeouts};
pub use error::Error;

/// `IPVS_GENL_NAME` of `linux/ip_vs.h`.
const IPVS_GENL_NAME: &str = "IPVS";
/// How long loading a module may take.
const MODPROBE_LIMIT: Duration = Duration::from_secs(30);

/// A connection to IPVS in the network namespace it was opened in.
#[derive(Debug)]
pub struct Ipvs {
    socket: Socket,
    /// The number that the kernel gave to IPVS when it was loaded.
    family: u16,
}

/// What came of changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounts {
    /// Servers that were not there before.
    pub made: usize,
    /// Servers that were there and are not any more.
    pub deleted: usize,
}

impl Ipvs {
    /// Opens a connection. Where the kernel does not know IPVS its module is loaded, if that can be done.
    ///
    /// # Errors
    /// If this kernel has no IPVS.
    pub fn open() -> Result<Self, Error> {
        let failed = failed("find the IPVS netlink family");
        let mut socket = Socket::open(Protocol::Generic).map_err(&failed)?;
        if let Some(family) = genetlink::family_id(&mut socket, IPVS_GENL_NAME).map_err(&failed)? {
            return Ok(Self { socket, family });
        }
        let modprobe = match load_module() {
            Ok(()) => "loading the module had no effect".to_owned(),
            Err(error) => error.to_string(),
        };
        match genetlink::family_id(&mut socket, IPVS_GENL_NAME).map_err(&failed)? {
            Some(family) => Ok(Self { socket, family }),
            None => Err(Error::NoIpvs { modprobe }),
        }
    }

    /// Changes how long connections are remembered; what is 0 stays as it is.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_timeouts(&mut self, timeouts: Timeouts) -> Result<(), Error> {
        let set = self.socket.request(self.family, 0, |w| {
            head(w, IPVS_CMD_SET_CONFIG);
            w.u32(IPVS_CMD_ATTR_TIMEOUT_TCP, timeouts.tcp);
            w.u32(IPVS_CMD_ATTR_TIMEOUT_TCP_FIN, timeouts.tcp_fin);
            w.u32(IPVS_CMD_ATTR_TIMEOUT_UDP, timeouts.udp);
        });
        set.map_err(failed("set the IPVS timeouts"))
    }

    /// All virtual servers of a family, no matter who created them, except those that a mark leads to.
    ///
    /// # Errors
    /// If the netlink socket fails.
    pub fn servers(&mut self, family: Family) -> Result<Vec<FoundServer>, Error> {
        self.socket
            .dump(
                self.family,
                |w| head(w, IPVS_CMD_GET_SERVICE),
                |all: &mut Vec<_>, message| {
                    let found = decode::found_server(message);
                    all.extend(found.filter(|f| Family::of(f.server.key.address) == family));
                },
            )
            .map_err(failed("read the virtual servers"))
    }

    /// The destinations of a server; none if it is not there.
    ///
    /// # Errors
    /// If the netlink socket fails.
    pub fn destinations(
        &mut self,
        server: &VirtualServerKey,
    ) -> Result<Vec<FoundDestination>, Error> {
        let family = Family::of(server.address);
        self.socket
            .dump(
                self.family,
                |w| {
                    head(w, IPVS_CMD_GET_DEST);
                    encode::key_of_server(w, server);
                },
                |all: &mut Vec<_>, message| {
                    all.extend(decode::found_destination(family, message));
                },
            )
            .map_err(failed("read the destinations of a virtual server"))
    }

    /// Makes changes. What is there already is changed instead of made; that something to be removed is gone is no failure. What goes does so
    /// when all that comes is there; where something both comes and goes, the order is kept.
    /// A destination that is to drain gets weight 0, and it is for the caller to remember it.
    ///
    /// # Errors
    /// [`Error::Refused`] names the first change that was refused. The kernel went on with the others.
    pub fn apply(&mut self, ops: &[IpvsOp]) -> Result<ServerCounts, Error> {
        let mut applied = count(ops);
        let mut refused = Vec::new();
        let mut rest = ops.iter().enumerate();
        let mut begin = 0;
        for end in batch::cuts(ops).into_iter().chain([ops.len()]) {
            let part = rest.by_ref().take(end - begin);
            let (go, come): (Vec<_>, Vec<_>) = part.partition(|(_, op)| batch::is_removal(op));
            begin = end;
            refused.extend(self.try_all(&come, &mut applied)?);
            refused.extend(self.try_all(&go, &mut applied)?);
        }
        refused.sort_by_key(|(at, _)| *at);
        let others = refused.len().saturating_sub(1);
        let first_refused = refused.into_iter().next();
        match first_refused.and_then(|(at, refusal)| Some((*ops.get(at)?, refusal))) {
            None => Ok(applied),
            Some((op, refusal)) => Err(Error::Refused {
                op,
                refusal,
                others,
            }),
        }
    }

    /// Makes changes, each in the first way that works, and returns those that could not be made. Each comes with its place in the batch.
    fn try_all(
        &mut self,
        ops: &[(usize, &IpvsOp)],
        applied: &mut ServerCounts,
    ) -> Result<Vec<RefusedRequest>, Error> {
        let first = ops.iter().map(|(_, op)| self.command(first_try(op)));
        let first: Vec<_> = first.collect();
        let (mut failed, mut again) = (Vec::new(), Vec::new());
        for (index, refusal) in self.request(&first)? {
            let Some((at, op)) = ops.get(index) else {
                continue;
            };
            match op {
                IpvsOp::PutServer(_) => applied.made -= 1,
                IpvsOp::DeleteServer(_) => applied.deleted -= 1,
                IpvsOp::PutDestination(..) | IpvsOp::RemoveDestination { .. } => {}
            }
            match second_try(op, &refusal) {
                Retry::Nothing => {}
                Retry::Failed => failed.push((*at, refusal)),
                // The kernel does not have "make or change" in one.
                Retry::Try(action) => again.push((*at, self.command(action))),
            }
        }
        let (places, second): (Vec<usize>, Vec<IpvsRequest>) = again.into_iter().unzip();
        let refused = self.request(&second)?.into_iter();
        failed.extend(refused.filter_map(|(index, refusal)| Some((*places.get(index)?, refusal))));
        Ok(failed)
    }

    fn command(&self, action: IpvsAction) -> IpvsRequest {
        IpvsRequest {
            family: self.family,
            action,
        }
    }

    fn request(&mut self, commands: &[IpvsRequest]) -> Result<Vec<RefusedRequest>, Error> {
        let answered = self.socket.pipeline(commands);
        answered.map_err(failed("change virtual servers"))
    }
}

/// How a change is tried first: as if what is to be made were not there.
fn first_try(op: &IpvsOp) -> IpvsAction {
    match *op {
        IpvsOp::PutServer(server) => IpvsAction::NewServer(server),
        IpvsOp::DeleteServer(key) => IpvsAction::DeleteServer(key),
        IpvsOp::PutDestination(key, to) => IpvsAction::NewDestination(key, to),
        IpvsOp::RemoveDestination {
            server,
            destination: address,
            removal,
        } => match removal {
            DestinationRemoval::AtOnce => IpvsAction::DeleteDestination(server, address),
            DestinationRemoval::Drain => IpvsAction::SetDestination(server, drained(address)),
        },
    }
}

fn drained(address: SocketAddr) -> IpvsDestination {
    IpvsDestination { address, weight: 0 }
}

/// What follows from a refusal.
enum Retry {
    /// All is as it should be.
    Nothing,
    Try(IpvsAction),
    /// It cannot be done.
    Failed,
}

fn second_try(op: &IpvsOp, refusal: &Refusal) -> Retry {
    match (*op, refusal.errno) {
        (IpvsOp::PutServer(server), libc::EEXIST) => Retry::Try(IpvsAction::SetServer(server)),
        (IpvsOp::PutDestination(key, to), libc::EEXIST) => {
            Retry::Try(IpvsAction::SetDestination(key, to))
        }
        (IpvsOp::DeleteServer(_), libc::ESRCH)
        | (IpvsOp::RemoveDestination { .. }, libc::ESRCH | libc::ENOENT) => Retry::Nothing,
        _ => Retry::Failed,
    }
}

/// How many servers come and go if nothing is refused.
fn count(ops: &[IpvsOp]) -> ServerCounts {
    let number = |is: fn(&&IpvsOp) -> bool| ops.iter().filter(is).count();
    ServerCounts {
        made: number(|op| matches!(op, IpvsOp::PutServer(_))),
        deleted: number(|op| matches!(op, IpvsOp::DeleteServer(_))),
    }
}

fn load_module() -> Result<(), exec::Error> {
    let program = Path::new("modprobe");
    exec::run(program, &["ip_vs"], String::new(), MODPROBE_LIMIT).map(drop)
}

fn failed(action: &'static str) -> impl Fn(netlink::Error) -> Error {
    move |cause| Error::Netlink { action, cause }
}

/// Reads a message as everything that IPVS may answer.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_hostile(message: &netlink::Message<'_>) -> usize {
    let destination = |family| decode::found_destination(family, message).is_some();
    let destinations = Family::ALL
        .into_iter()
        .filter(|family| destination(*family));
    usize::from(decode::found_server(message).is_some()) + destinations.count()
}
