//! Monitors commits of other processes to our tables.
//!
//! The kernel sends a notification for every object of every commit. A filter in the kernel drops those of our own commits, so that a
//! transaction of a hundred thousand elements neither floods the receive buffer nor displaces notifications of other processes.

use std::collections::{BTreeSet, VecDeque};

use ferrovia_core::family::Family;
use ferrovia_netlink::uapi::nf_tables::NFT_MSG_NEWGEN;
use ferrovia_netlink::uapi::nfnetlink::{NFNL_SUBSYS_NFTABLES, NFNLGRP_NFTABLES};
use ferrovia_netlink::{self as netlink, Message, Protocol, Socket, messages, nfnetlink};

use super::{Error, decode, failed, family_number, message_type};

/// A change of the ruleset by another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RulesetChange {
    /// A commit touched a table.
    Table { family: Family, table: String },
    /// The receive buffer overflowed and notifications were lost: everything must be verified.
    Lost,
}

/// Receives notifications about commits of other processes.
#[derive(Debug)]
pub struct Monitor {
    socket: Socket,
    tables: Vec<String>,
    /// Tables touched by the commit whose notifications are being read.
    touched: BTreeSet<(Family, String)>,
    /// Changes of complete commits that [`Self::wait`] has not returned yet.
    changes: VecDeque<RulesetChange>,
}

impl Monitor {
    /// Listens for commits to tables of these names by anyone but the socket with port `own_port`.
    ///
    /// # Errors
    /// If we may not listen or a system call fails.
    pub fn open(own_port: u32, tables: &[&str]) -> Result<Self, Error> {
        let broken = failed("monitor the ruleset");
        let socket = Socket::open(Protocol::Netfilter).map_err(broken)?;
        socket.disable_timeout().map_err(broken)?;
        socket.ignore_port(own_port).map_err(broken)?;
        socket.join(NFNLGRP_NFTABLES).map_err(broken)?;
        let tables = tables.iter().map(|&name| name.to_owned()).collect();
        Ok(Self {
            socket,
            tables,
            touched: BTreeSet::new(),
            changes: VecDeque::new(),
        })
    }

    /// Waits for the next change, however long it takes.
    ///
    /// # Errors
    /// If the netlink socket fails; the monitor should be opened again then.
    pub fn wait(&mut self) -> Result<RulesetChange, Error> {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return Ok(change);
            }
            match self.receive() {
                Ok(()) => {}
                Err(netlink::Error::Overrun) => return Ok(RulesetChange::Lost),
                Err(error) => return Err(failed("monitor the ruleset")(error)),
            }
        }
    }

    fn receive(&mut self) -> Result<(), netlink::Error> {
        match self.socket.receive() {
            Ok(datagram) => {
                for message in messages(datagram) {
                    note(&message, &self.tables, &mut self.touched, &mut self.changes);
                }
                Ok(())
            }
            Err(netlink::Error::Overrun) => {
                // The caller verifies everything now, and changes during that must be noticed.
                self.socket.drain()?;
                self.touched.clear();
                Err(netlink::Error::Overrun)
            }
            Err(error) => Err(error),
        }
    }
}

/// Keeps one message of a commit in mind, or, if it is the last one, hands out what the commit
/// touched.
pub(super) fn note(
    message: &Message<'_>,
    tables: &[String],
    touched: &mut BTreeSet<(Family, String)>,
    changes: &mut VecDeque<RulesetChange>,
) {
    if message.kind == message_type(NFT_MSG_NEWGEN) {
        let done = std::mem::take(touched).into_iter();
        changes.extend(done.map(|(family, table)| RulesetChange::Table { family, table }));
    } else if nfnetlink::subsystem(message.kind) == NFNL_SUBSYS_NFTABLES {
        let family = Family::ALL
            .into_iter()
            .find(|family| message.body.first() == Some(&family_number(*family)));
        let table =
            decode::table_of(message).filter(|&name| tables.iter().any(|table| table == name));
        touched.extend(
            family
                .zip(table)
                .map(|(family, table)| (family, table.to_owned())),
        );
    }
}
